//go:build (linux && (amd64 || arm64)) || (windows && amd64)

package cl

import (
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library holds the addresses of the calls in the ICD loader's library.
type library struct {
	getPlatformIDs, getPlatformInfo, getDeviceIDs, getDeviceInfo               uintptr
	createContext, releaseContext, createCommandQueue, releaseCommandQueue     uintptr
	createProgramWithSource, buildProgram, getProgramBuildInfo, releaseProgram uintptr
	createKernel, releaseKernel, setKernelArg                                  uintptr
	createBuffer, releaseMemObject                                             uintptr
	enqueueReadBuffer, enqueueWriteBuffer, enqueueFillBuffer                   uintptr
	enqueueNDRangeKernel, finish                                               uintptr
}

// Load opens the machine's OpenCL library. It fails where there is none.
func Load() (API, error) {
	var first error
	for _, name := range libraries {
		lib, err := open(name)
		if err != nil {
			if first == nil {
				first = err
			}
			continue
		}
		l := new(library)
		for call, at := range map[string]*uintptr{
			"clGetPlatformIDs": &l.getPlatformIDs, "clGetPlatformInfo": &l.getPlatformInfo, "clGetDeviceIDs": &l.getDeviceIDs, "clGetDeviceInfo": &l.getDeviceInfo,
			"clCreateContext": &l.createContext, "clReleaseContext": &l.releaseContext,
			"clCreateCommandQueue": &l.createCommandQueue, "clReleaseCommandQueue": &l.releaseCommandQueue,
			"clCreateProgramWithSource": &l.createProgramWithSource, "clBuildProgram": &l.buildProgram, "clGetProgramBuildInfo": &l.getProgramBuildInfo,
			"clReleaseProgram": &l.releaseProgram, "clCreateKernel": &l.createKernel, "clReleaseKernel": &l.releaseKernel, "clSetKernelArg": &l.setKernelArg,
			"clCreateBuffer": &l.createBuffer, "clReleaseMemObject": &l.releaseMemObject,
			"clEnqueueReadBuffer": &l.enqueueReadBuffer, "clEnqueueWriteBuffer": &l.enqueueWriteBuffer, "clEnqueueFillBuffer": &l.enqueueFillBuffer,
			"clEnqueueNDRangeKernel": &l.enqueueNDRangeKernel, "clFinish": &l.finish,
		} {
			if *at, err = symbol(lib, call); err != nil {
				return nil, fmt.Errorf("%s has no %s, it is older than OpenCL 1.2: %w", name, call, err)
			}
		}
		return l, nil
	}
	return nil, first
}

func check(call string, r uintptr) error {
	if code := int32(r); code != 0 {
		return &Error{call, code}
	}
	return nil
}

// do is a call that returns its status.
func do(call string, fn uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(fn, args...)
	return check(call, r)
}

func (l *library) Platforms() ([]Platform, error) {
	var n uint32
	const call = "clGetPlatformIDs"
	r, _, _ := purego.SyscallN(l.getPlatformIDs, 0, 0, uintptr(unsafe.Pointer(&n)))
	if err := check(call, r); err != nil || n == 0 {
		return nil, err
	}
	list := make([]Platform, n)
	r, _, _ = purego.SyscallN(l.getPlatformIDs, uintptr(n), uintptr(unsafe.Pointer(&list[0])), 0)
	return list, check(call, r)
}

func (l *library) Devices(p Platform) ([]Device, error) {
	var n uint32
	const call, all = "clGetDeviceIDs", 0xffffffff
	r, _, _ := purego.SyscallN(l.getDeviceIDs, uintptr(p), all, 0, 0, uintptr(unsafe.Pointer(&n)))
	if err := check(call, r); err != nil || n == 0 {
		return nil, err
	}
	list := make([]Device, n)
	r, _, _ = purego.SyscallN(l.getDeviceIDs, uintptr(p), all, uintptr(n), uintptr(unsafe.Pointer(&list[0])), 0)
	return list, check(call, r)
}

// info asks for a property twice: for its size and for its bytes.
func info(call string, fn, object uintptr, what Info) ([]byte, error) {
	var n uintptr
	r, _, _ := purego.SyscallN(fn, object, uintptr(what), 0, 0, uintptr(unsafe.Pointer(&n)))
	if err := check(call, r); err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	r, _, _ = purego.SyscallN(fn, object, uintptr(what), n, uintptr(unsafe.Pointer(&b[0])), 0)
	return b, check(call, r)
}

func (l *library) PlatformInfo(p Platform, what Info) ([]byte, error) {
	return info("clGetPlatformInfo", l.getPlatformInfo, uintptr(p), what)
}

func (l *library) DeviceInfo(d Device, what Info) ([]byte, error) {
	return info("clGetDeviceInfo", l.getDeviceInfo, uintptr(d), what)
}

func (l *library) CreateContext(d Device) (Context, error) {
	var code int32
	r, _, _ := purego.SyscallN(l.createContext, 0, 1, uintptr(unsafe.Pointer(&d)), 0, 0, uintptr(unsafe.Pointer(&code)))
	return Context(r), check("clCreateContext", uintptr(code))
}

func (l *library) ReleaseContext(c Context) error {
	return do("clReleaseContext", l.releaseContext, uintptr(c))
}

func (l *library) CreateQueue(c Context, d Device) (Queue, error) {
	var code int32
	r, _, _ := purego.SyscallN(l.createCommandQueue, uintptr(c), uintptr(d), 0, uintptr(unsafe.Pointer(&code)))
	return Queue(r), check("clCreateCommandQueue", uintptr(code))
}

func (l *library) ReleaseQueue(q Queue) error {
	return do("clReleaseCommandQueue", l.releaseCommandQueue, uintptr(q))
}

func (l *library) CreateProgram(c Context, source string) (Program, error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	text := unsafe.StringData(source)
	pin.Pin(text)
	n, code := uintptr(len(source)), int32(0)
	r, _, _ := purego.SyscallN(l.createProgramWithSource, uintptr(c), 1, uintptr(unsafe.Pointer(&text)), uintptr(unsafe.Pointer(&n)), uintptr(unsafe.Pointer(&code)))
	return Program(r), check("clCreateProgramWithSource", uintptr(code))
}

func (l *library) BuildProgram(p Program, d Device, options string) error {
	o := append([]byte(options), 0)
	r, _, _ := purego.SyscallN(l.buildProgram, uintptr(p), 1, uintptr(unsafe.Pointer(&d)), uintptr(unsafe.Pointer(&o[0])), 0, 0)
	return check("clBuildProgram", r)
}

func (l *library) BuildLog(p Program, d Device) (string, error) {
	const call, log = "clGetProgramBuildInfo", 0x1183
	var n uintptr
	r, _, _ := purego.SyscallN(l.getProgramBuildInfo, uintptr(p), uintptr(d), log, 0, 0, uintptr(unsafe.Pointer(&n)))
	if err := check(call, r); err != nil || n == 0 {
		return "", err
	}
	b := make([]byte, n)
	r, _, _ = purego.SyscallN(l.getProgramBuildInfo, uintptr(p), uintptr(d), log, n, uintptr(unsafe.Pointer(&b[0])), 0)
	return Text(b), check(call, r)
}

func (l *library) ReleaseProgram(p Program) error {
	return do("clReleaseProgram", l.releaseProgram, uintptr(p))
}

func (l *library) CreateKernel(p Program, name string) (Kernel, error) {
	var code int32
	n := append([]byte(name), 0)
	r, _, _ := purego.SyscallN(l.createKernel, uintptr(p), uintptr(unsafe.Pointer(&n[0])), uintptr(unsafe.Pointer(&code)))
	return Kernel(r), check("clCreateKernel", uintptr(code))
}

func (l *library) ReleaseKernel(k Kernel) error {
	return do("clReleaseKernel", l.releaseKernel, uintptr(k))
}

func (l *library) SetArg(k Kernel, index int, size uintptr, value unsafe.Pointer) error {
	r, _, _ := purego.SyscallN(l.setKernelArg, uintptr(k), uintptr(index), size, uintptr(value))
	return check("clSetKernelArg", r)
}

func (l *library) CreateBuffer(c Context, bytes int64) (Mem, error) {
	var code int32
	const readWrite = 1
	r, _, _ := purego.SyscallN(l.createBuffer, uintptr(c), readWrite, uintptr(bytes), 0, uintptr(unsafe.Pointer(&code)))
	return Mem(r), check("clCreateBuffer", uintptr(code))
}

func (l *library) ReleaseBuffer(m Mem) error {
	return do("clReleaseMemObject", l.releaseMemObject, uintptr(m))
}

func (l *library) Read(q Queue, dst []byte, src Mem, off int64) error {
	const wait = 1
	r, _, _ := purego.SyscallN(l.enqueueReadBuffer, uintptr(q), uintptr(src), wait, uintptr(off), uintptr(len(dst)), uintptr(unsafe.Pointer(unsafe.SliceData(dst))), 0, 0, 0)
	return check("clEnqueueReadBuffer", r)
}

func (l *library) Write(q Queue, dst Mem, off int64, src []byte) error {
	const wait = 1
	r, _, _ := purego.SyscallN(l.enqueueWriteBuffer, uintptr(q), uintptr(dst), wait, uintptr(off), uintptr(len(src)), uintptr(unsafe.Pointer(unsafe.SliceData(src))), 0, 0, 0)
	return check("clEnqueueWriteBuffer", r)
}

// zero is what Fill repeats.
var zero uint32

func (l *library) Fill(q Queue, dst Mem, off, bytes int64) error {
	r, _, _ := purego.SyscallN(l.enqueueFillBuffer, uintptr(q), uintptr(dst), uintptr(unsafe.Pointer(&zero)), unsafe.Sizeof(zero), uintptr(off), uintptr(bytes), 0, 0, 0)
	return check("clEnqueueFillBuffer", r)
}

func (l *library) Launch(q Queue, k Kernel, global, local *[3]uintptr) error {
	r, _, _ := purego.SyscallN(l.enqueueNDRangeKernel, uintptr(q), uintptr(k), 3, 0, uintptr(unsafe.Pointer(global)), uintptr(unsafe.Pointer(local)), 0, 0, 0)
	return check("clEnqueueNDRangeKernel", r)
}

func (l *library) Finish(q Queue) error { return do("clFinish", l.finish, uintptr(q)) }
