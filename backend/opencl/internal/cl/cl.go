// Package cl is the part of the OpenCL 1.2 API that backend/opencl uses: some
// twenty calls behind an interface, so that tests can put failures between the
// device and its driver.
package cl

import (
	"fmt"
	"unsafe"
)

// Handles of the driver's objects. Zero is none.
type (
	Platform uintptr
	Device   uintptr
	Context  uintptr
	Queue    uintptr
	Program  uintptr
	Kernel   uintptr
	Mem      uintptr
)

// API is an OpenCL implementation. Errors of calls that reached it are *Error.
// Read, Write and Finish wait for everything before them in the queue; Fill and
// Launch do not wait.
type API interface {
	Platforms() ([]Platform, error)
	PlatformInfo(p Platform, what Info) ([]byte, error)
	Devices(p Platform) ([]Device, error)
	DeviceInfo(d Device, what Info) ([]byte, error)

	CreateContext(d Device) (Context, error)
	ReleaseContext(c Context) error
	CreateQueue(c Context, d Device) (Queue, error)
	ReleaseQueue(q Queue) error

	// CreateProgram takes the source; BuildProgram compiles it for the device.
	CreateProgram(c Context, source string) (Program, error)
	BuildProgram(p Program, d Device, options string) error
	BuildLog(p Program, d Device) (string, error)
	ReleaseProgram(p Program) error
	CreateKernel(p Program, name string) (Kernel, error)
	ReleaseKernel(k Kernel) error
	// SetArg copies size bytes at value.
	SetArg(k Kernel, index int, size uintptr, value unsafe.Pointer) error

	CreateBuffer(c Context, bytes int64) (Mem, error)
	ReleaseBuffer(m Mem) error
	Read(q Queue, dst []byte, src Mem, off int64) error
	Write(q Queue, dst Mem, off int64, src []byte) error
	// Fill writes zeros; off and bytes are multiples of 4.
	Fill(q Queue, dst Mem, off, bytes int64) error
	// Launch runs a kernel over global work items in groups of local ones.
	Launch(q Queue, k Kernel, global, local *[3]uintptr) error
	Finish(q Queue) error
}

// Info names a property of a platform or a device.
type Info uint32

const (
	PlatformName    Info = 0x0902
	DeviceUnits     Info = 0x1002
	DeviceGroupSize Info = 0x1004
	DeviceMaxAlloc  Info = 0x1010
	DeviceFPConfig  Info = 0x101b
	DeviceMemory    Info = 0x101f
	DeviceLocal     Info = 0x1023
	DeviceLittle    Info = 0x1026
	DeviceAvailable Info = 0x1027
	DeviceCompiler  Info = 0x1028
	DeviceName      Info = 0x102b
	DeviceVersion   Info = 0x102f
)

// Bits of DeviceFPConfig.
const (
	Denorm    = 1 << 0
	InfNaN    = 1 << 1
	Nearest   = 1 << 2
	FMA       = 1 << 5
	DivideSqr = 1 << 7
)

// Error is the failure of a call.
type Error struct {
	Call string // as in the OpenCL specification
	Code int32
}

func (e *Error) Error() string {
	if n := names[e.Code]; n != "" {
		return fmt.Sprintf("%s: %s (%d)", e.Call, n, e.Code)
	}
	return fmt.Sprintf("%s: error %d", e.Call, e.Code)
}

// Codes that callers tell apart.
const (
	DeviceNotFound   = -1
	MemAllocFailure  = -4
	OutOfResources   = -5
	OutOfHostMemory  = -6
	InvalidValue     = -30
	InvalidBufSize   = -61
	PlatformNotFound = -1001
)

// NoMemory says whether there was not enough memory for the call.
func (e *Error) NoMemory() bool {
	return e.Code == MemAllocFailure || e.Code == OutOfResources || e.Code == OutOfHostMemory || e.Code == InvalidBufSize
}

var names = map[int32]string{
	-1: "CL_DEVICE_NOT_FOUND", -2: "CL_DEVICE_NOT_AVAILABLE", -3: "CL_COMPILER_NOT_AVAILABLE", -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
	-5: "CL_OUT_OF_RESOURCES", -6: "CL_OUT_OF_HOST_MEMORY", -11: "CL_BUILD_PROGRAM_FAILURE", -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
	-30: "CL_INVALID_VALUE", -32: "CL_INVALID_PLATFORM", -33: "CL_INVALID_DEVICE", -34: "CL_INVALID_CONTEXT", -36: "CL_INVALID_COMMAND_QUEUE",
	-38: "CL_INVALID_MEM_OBJECT", -43: "CL_INVALID_BUILD_OPTIONS", -44: "CL_INVALID_PROGRAM", -45: "CL_INVALID_PROGRAM_EXECUTABLE",
	-46: "CL_INVALID_KERNEL_NAME", -48: "CL_INVALID_KERNEL", -49: "CL_INVALID_ARG_INDEX", -50: "CL_INVALID_ARG_VALUE", -51: "CL_INVALID_ARG_SIZE",
	-52: "CL_INVALID_KERNEL_ARGS", -54: "CL_INVALID_WORK_GROUP_SIZE", -55: "CL_INVALID_WORK_ITEM_SIZE", -61: "CL_INVALID_BUFFER_SIZE",
	-1001: "CL_PLATFORM_NOT_FOUND_KHR",
}

// Text is a property that is a string, without its end mark.
func Text(b []byte) string {
	for len(b) > 0 && (b[len(b)-1] == 0 || b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return string(b)
}

// Number is a property that is an integer in the driver's byte order, which is
// little-endian on every machine that this package binds.
func Number(b []byte) int64 {
	var v uint64
	for i := min(len(b), 8) - 1; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return int64(v)
}
