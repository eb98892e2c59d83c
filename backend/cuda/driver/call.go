//go:build (linux && (amd64 || arm64)) || (windows && amd64)

package driver

import (
	"runtime"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// entry is a function of the driver library.
type entry int

const (
	cuInit entry = iota
	cuDriverGetVersion
	cuGetErrorName
	cuGetErrorString
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuMemGetInfo
	cuModuleLoadDataEx
	cuModuleUnload
	cuModuleGetFunction
	cuFuncGetAttribute
	cuFuncSetAttribute
	cuMemAlloc
	cuMemFree
	cuMemAllocHost
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD8Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventElapsedTime
	cuLaunchKernel
	cuStreamBeginCapture
	cuStreamEndCapture
	cuGraphInstantiate
	cuGraphLaunch
	cuGraphDestroy
	cuGraphExecDestroy
	entries
)

// symbols are the names in the library: those of CUDA 11.4 that every later
// driver keeps.
var symbols = [entries]string{
	"cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
	"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
	"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2", "cuCtxSetCurrent", "cuMemGetInfo_v2",
	"cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute",
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemAllocHost_v2", "cuMemFreeHost",
	"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async",
	"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize",
	"cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventElapsedTime", "cuLaunchKernel",
	"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy",
}

// frame is the memory of one call: its arguments and what they point to. It is
// pinned, because the library sees its addresses, and used again, so that a call
// allocates nothing.
type frame struct {
	pin    runtime.Pinner
	src    runtime.Pinner // memory of the caller
	last   entry          // called
	args   [11]uintptr
	word   [2]uint64
	ptr    unsafe.Pointer // memory outside the Go heap
	extra  [5]uintptr
	params [MaxParams]byte
}

// library is a loaded driver library.
type library struct {
	fn   [entries]uintptr
	mu   sync.Mutex
	free []*frame
}

func (l *library) take() *frame {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		f := l.free[n-1]
		l.free = l.free[:n-1]
		return f
	}
	f := new(frame)
	f.pin.Pin(f)
	return f
}

func (l *library) give(f *frame) {
	f.word, f.ptr = [2]uint64{}, nil
	l.mu.Lock()
	l.free = append(l.free, f)
	l.mu.Unlock()
}

// call calls a function with the first n arguments of the frame.
func (l *library) call(e entry, f *frame, n int) Result {
	f.last = e
	r, _, _ := purego.SyscallN(l.fn[e], f.args[:n]...)
	return Result(int32(r))
}

func (f *frame) set(args ...uintptr) int { return copy(f.args[:], args) }

// word0 and word1 are addresses of results.
func (f *frame) word0() uintptr { return uintptr(unsafe.Pointer(&f.word[0])) }
func (f *frame) word1() uintptr { return uintptr(unsafe.Pointer(&f.word[1])) }
func (f *frame) ptr0() uintptr  { return uintptr(unsafe.Pointer(&f.ptr)) }

// bytes pins memory of the caller until release and returns its address.
func (f *frame) bytes(b []byte) uintptr {
	p := unsafe.SliceData(b)
	f.src.Pin(p)
	return uintptr(unsafe.Pointer(p))
}

func (f *frame) release() { f.src.Unpin() }

// text is the zero-terminated text at f.ptr.
func (f *frame) text() string {
	if f.ptr == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(f.ptr, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(f.ptr), n))
}

// fail is the error of the last call of a frame, nil for Success.
func (l *library) fail(of *frame, r Result, what string) error {
	if r == Success {
		return nil
	}
	err := &Error{Call: strings.TrimSuffix(symbols[of.last], "_v2"), What: what, Code: r}
	f := l.take()
	defer l.give(f)
	if l.call(cuGetErrorName, f, f.set(uintptr(r), f.ptr0())) == Success {
		err.Name = f.text()
	}
	if l.call(cuGetErrorString, f, f.set(uintptr(r), f.ptr0())) == Success {
		err.Detail = f.text()
	}
	return err
}
