package driver

import (
	"errors"
	"fmt"

	"samebit/backend"
)

// Causes that a caller may branch on. Each names what can be done about it.
var (
	// ErrNoDriver is the cause when the driver library is not on the machine.
	ErrNoDriver = fmt.Errorf("%w: the CUDA driver library is missing (install NVIDIA's driver, or use the device cpu or cuda:emu)", backend.ErrNoDevice)
	// ErrNoDevice is the cause when the driver sees no such device.
	ErrNoDevice = fmt.Errorf("%w: the CUDA driver sees none (check nvidia-smi, CUDA_VISIBLE_DEVICES and the device's number, or use the device cpu or cuda:emu)", backend.ErrNoDevice)
	// ErrOldDriver is the cause when the driver lacks a call or cannot read the
	// kernels' PTX version.
	ErrOldDriver = fmt.Errorf("%w: the CUDA driver is too old (CUDA 11.4 or newer is needed: update NVIDIA's driver)", backend.ErrUnsupported)
	// ErrOldDevice is the cause when the device's instructions are too few.
	ErrOldDevice = fmt.Errorf("%w: the kernels need compute capability 7.5 or newer (use another device)", backend.ErrUnsupported)
	// ErrOutOfMemory is the cause when an allocation or a launch does not fit.
	ErrOutOfMemory = fmt.Errorf("%w on the CUDA device (use a smaller batch or context, close other states, or another device)", backend.ErrNoMemory)
	// ErrLost is the cause when the device or its context can no longer be used:
	// what was computed since the last Sync is gone.
	ErrLost = errors.New("the CUDA device is lost to this process (close it and open it again in a new process; see the kernel log if it happens again)")
	// ErrBusy is the cause when another process holds the device alone.
	ErrBusy = errors.New("the CUDA device is held by another process (wait for it, or use another device)")
	// ErrKernel is the cause when a module, a function or the shape of a launch
	// is refused: a fault of the program, not of the machine.
	ErrKernel = errors.New("the CUDA driver refuses a kernel")
	// ErrClosed is the cause when a handle is used that was given back.
	ErrClosed = fmt.Errorf("%w: a CUDA handle", backend.ErrClosed)
)

// Result is a CUresult.
type Result int32

// Results that the driver API may return and that are told apart here.
const (
	Success            Result = 0
	InvalidValue       Result = 1
	OutOfMemory        Result = 2
	NotInitialized     Result = 3
	Deinitialized      Result = 4
	StubLibrary        Result = 34
	DeviceUnavailable  Result = 46
	NoDevice           Result = 100
	InvalidDevice      Result = 101
	InvalidImage       Result = 200
	InvalidContext     Result = 201
	NoBinaryForGPU     Result = 209
	ECCUncorrectable   Result = 214
	InvalidPTX         Result = 218
	UnsupportedPTX     Result = 222
	NotFound           Result = 500
	InvalidHandle      Result = 400
	NotReady           Result = 600
	IllegalAddress     Result = 700
	LaunchOutOfRes     Result = 701
	LaunchTimeout      Result = 702
	ContextDestroyed   Result = 709
	Assert             Result = 710
	HardwareStack      Result = 714
	IllegalInstruction Result = 715
	MisalignedAddress  Result = 716
	InvalidAddrSpace   Result = 717
	InvalidPC          Result = 718
	LaunchFailed       Result = 719
	NotSupported       Result = 801
	DriverMismatch     Result = 803
	CompatUnsupported  Result = 804
	Unknown            Result = 999
)

// cause is the sentinel of a result, or nil.
func (r Result) cause() error {
	switch r {
	case OutOfMemory:
		return ErrOutOfMemory
	case NotInitialized, Deinitialized, ECCUncorrectable, InvalidContext, IllegalAddress, LaunchTimeout, ContextDestroyed,
		Assert, HardwareStack, IllegalInstruction, MisalignedAddress, InvalidAddrSpace, InvalidPC, LaunchFailed, Unknown:
		return ErrLost
	case NoDevice, InvalidDevice, StubLibrary:
		return ErrNoDevice
	case DeviceUnavailable:
		return ErrBusy
	case UnsupportedPTX, DriverMismatch, CompatUnsupported:
		return ErrOldDriver
	case NoBinaryForGPU:
		return ErrOldDevice
	case InvalidImage, InvalidPTX, NotFound, LaunchOutOfRes:
		return ErrKernel
	case InvalidHandle:
		return ErrClosed
	}
	return nil
}

// Error is a call of the driver that failed. errors.Is finds its cause among the
// sentinels of this package.
type Error struct {
	Call   string // "cuMemAlloc"
	What   string // the object and its numbers, "3000000 bytes"
	Code   Result
	Name   string // the driver's name of the code, "CUDA_ERROR_OUT_OF_MEMORY"
	Detail string // the driver's explanation or the compiler's log
}

func (e *Error) Error() string {
	s := "cuda: " + e.Call
	if e.What != "" {
		s += " (" + e.What + ")"
	}
	if e.Name != "" {
		s += fmt.Sprintf(": %s (%d)", e.Name, int32(e.Code))
	} else {
		s += fmt.Sprintf(": error %d", int32(e.Code))
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	if c := e.Code.cause(); c != nil {
		s += ": " + c.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Code.cause() }
