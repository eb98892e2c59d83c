//go:build gorgoniacu && cgo && linux

package cudriver

// #include <stdint.h>
// #include <cuda.h>
//
// // launch hands the parameters over as one piece of memory. The list of it must
// // not lie in Go memory, since it points there.
// static CUresult launch(uintptr_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
//                        unsigned shared, uintptr_t s, void *params, size_t n) {
//     void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE, &n, CU_LAUNCH_PARAM_END};
//     return cuLaunchKernel((CUfunction)f, gx, gy, gz, bx, by, bz, shared, (CUstream)s, 0, extra);
// }
// static CUresult max_shared(uintptr_t f, int n) { return cuFuncSetAttribute((CUfunction)f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, n); }
// static CUresult begin_capture(uintptr_t s) { return cuStreamBeginCapture((CUstream)s, CU_STREAM_CAPTURE_MODE_RELAXED); }
// static CUresult end_capture(uintptr_t s, uintptr_t *g) { return cuStreamEndCapture((CUstream)s, (CUgraph *)g); }
// static CUresult instantiate(uintptr_t g, uintptr_t *x) { return cuGraphInstantiateWithFlags((CUgraphExec *)x, (CUgraph)g, 0); }
// static CUresult launch_graph(uintptr_t x, uintptr_t s) { return cuGraphLaunch((CUgraphExec)x, (CUstream)s); }
// static CUresult close_graph(uintptr_t g) { return cuGraphDestroy((CUgraph)g); }
// static CUresult close_exec(uintptr_t x) { return cuGraphExecDestroy((CUgraphExec)x); }
import "C"

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"samebit/backend/cuda/driver"
)

// oldest is the oldest driver that has all calls, 1000·major + 10·minor.
const oldest = 11040

// New returns the driver that the program is linked with. It fails with
// driver.ErrOldDriver.
func New() (driver.Driver, error) {
	v := cu.Version()
	if v < 0 {
		return nil, &driver.Error{Call: "cuDriverGetVersion", Code: driver.Unknown}
	}
	if v < oldest {
		return nil, fmt.Errorf("cuda: the driver knows CUDA %d.%d: %w", v/1000, v%1000/10, driver.ErrOldDriver)
	}
	return library{v}, nil
}

type library struct{ version int }

func (l library) Version() int { return l.version }

func (l library) Count() (int, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return 0, fail(err, "cuDeviceGetCount", "")
	}
	if n == 0 {
		return 0, fmt.Errorf("cuda: %w", driver.ErrNoDevice)
	}
	return n, nil
}

func (l library) get(i int) (cu.Device, error) {
	d, err := cu.GetDevice(i)
	return d, fail(err, "cuDeviceGet", fmt.Sprintf("device %d", i))
}

func (l library) Info(i int) (driver.Info, error) {
	d, err := l.get(i)
	if err != nil {
		return driver.Info{}, err
	}
	what := fmt.Sprintf("device %d", i)
	var v driver.Info
	if v.Name, err = d.Name(); err != nil {
		return driver.Info{}, fail(err, "cuDeviceGetName", what)
	}
	if v.Memory, err = d.TotalMem(); err != nil {
		return driver.Info{}, fail(err, "cuDeviceTotalMem", what)
	}
	for _, a := range []struct {
		attribute cu.DeviceAttribute
		to        *int
	}{
		{cu.MaxThreadsPerBlock, &v.MaxThreads}, {cu.MaxSharedMemoryPerBlock, &v.Shared}, {cu.WarpSize, &v.WarpSize}, {cu.ClockRate, &v.ClockKHz},
		{cu.MultiprocessorCount, &v.Multiprocs}, {cu.MemoryClockRate, &v.MemoryClockKHz}, {cu.GlobalMemoryBusWidth, &v.MemoryBusBits}, {cu.L2CacheSize, &v.L2},
		{cu.ComputeCapabilityMajor, &v.Major}, {cu.ComputeCapabilityMinor, &v.Minor}, {C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &v.SharedOptin},
	} {
		if *a.to, err = d.Attribute(a.attribute); err != nil {
			return driver.Info{}, fail(err, "cuDeviceGetAttribute", fmt.Sprintf("%s, attribute %d", what, a.attribute))
		}
	}
	return v, nil
}

func (l library) Open(i int) (driver.Context, error) {
	d, err := l.get(i)
	if err != nil {
		return nil, err
	}
	c, err := d.RetainPrimaryCtx()
	if err != nil {
		return nil, fail(err, "cuDevicePrimaryCtxRetain", fmt.Sprintf("device %d", i))
	}
	return &context{d, i, c}, nil
}

// context is the primary context of a device. Handles are the driver's pointers:
// those of cu are structs around one.
type context struct {
	device cu.Device
	index  int
	handle cu.CUContext
}

func handle[T cu.Module | cu.Function | cu.Stream | cu.Event](v T) uintptr {
	return *(*uintptr)(unsafe.Pointer(&v))
}

func wrapped[T cu.Module | cu.Function | cu.Stream | cu.Event](h uintptr) T {
	return *(*T)(unsafe.Pointer(&h))
}

// do calls f in the context. A context is current to a thread, and Go moves
// goroutines between threads, so each call makes it current first.
func (c *context) do(call, what string, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(c.handle); err != nil {
		return fail(err, "cuCtxSetCurrent", "")
	}
	return fail(f(), call, what)
}

// own is do for the calls that cu does not have.
func (c *context) own(call, what string, f func() C.CUresult) error {
	return c.do(call, what, func() error { return code(f()) })
}

// result is what a call made here returned, as cu's own type of errors is.
type result int32

func (r result) Error() string { return fmt.Sprintf("error %d", int32(r)) }

func code(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return result(r)
}

// fail is the error of a call, from the number that cu's unexported type of
// errors holds.
func fail(err error, call, what string) error {
	if err == nil {
		return nil
	}
	v := reflect.ValueOf(err)
	if !v.CanInt() {
		return fmt.Errorf("cuda: %s (%s): %w", call, what, err)
	}
	e := &driver.Error{Call: call, What: what, Code: driver.Result(v.Int())}
	var s *C.char
	if C.cuGetErrorName(C.CUresult(e.Code), &s) == C.CUDA_SUCCESS && s != nil {
		e.Name = C.GoString(s)
	}
	if C.cuGetErrorString(C.CUresult(e.Code), &s) == C.CUDA_SUCCESS && s != nil {
		e.Detail = C.GoString(s)
	}
	return e
}

func (c *context) MemInfo() (free, total int64, err error) {
	err = c.do("cuMemGetInfo", "", func() (err error) { free, total, err = cu.MemInfo(); return })
	return free, total, err
}

func (c *context) Close() error {
	return fail(c.device.ReleasePrimaryCtx(), "cuDevicePrimaryCtxRelease", fmt.Sprintf("device %d", c.index))
}

func (c *context) LoadModule(name string, ptx []byte) (driver.Module, error) {
	var m cu.Module
	log := make([]byte, 8<<10)
	err := c.do("cuModuleLoadDataEx", fmt.Sprintf("module %s, %d bytes", name, len(ptx)), func() (err error) {
		m, err = cu.LoadDataEx(string(ptx), &cu.JITErrorLogBuffer{Buffer: log[:len(log)-1]})
		return err
	})
	if e, ok := err.(*driver.Error); ok {
		if text := bytes.TrimSpace(log[:bytes.IndexByte(log, 0)]); len(text) > 0 {
			e.Detail = string(text)
		}
	}
	if err != nil {
		return 0, err
	}
	return driver.Module(handle(m)), nil
}

func (c *context) UnloadModule(m driver.Module) error {
	return c.do("cuModuleUnload", "", func() error { return wrapped[cu.Module](uintptr(m)).Unload() })
}

func (c *context) Function(m driver.Module, name string) (driver.Function, error) {
	var f cu.Function
	z := append([]byte(name), 0)
	err := c.own("cuModuleGetFunction", "kernel "+name, func() C.CUresult {
		// cu wraps its error in text and loses the number.
		m := wrapped[cu.Module](uintptr(m))
		return C.cuModuleGetFunction((*C.CUfunction)(unsafe.Pointer(&f)), *(*C.CUmodule)(unsafe.Pointer(&m)), (*C.char)(unsafe.Pointer(&z[0])))
	})
	if err != nil {
		return 0, err
	}
	return driver.Function(handle(f)), nil
}

func (c *context) FuncInfo(fn driver.Function) (driver.FuncInfo, error) {
	var v driver.FuncInfo
	for _, a := range []struct {
		attribute cu.FunctionAttribute
		to        *int
	}{{cu.FnMaxThreadsPerBlock, &v.MaxThreads}, {cu.SharedSizeBytes, &v.Shared}, {cu.LocalSizeBytes, &v.Local}, {cu.NumRegs, &v.Registers}} {
		err := c.do("cuFuncGetAttribute", fmt.Sprintf("attribute %d", a.attribute), func() (err error) {
			*a.to, err = wrapped[cu.Function](uintptr(fn)).Attribute(a.attribute)
			return err
		})
		if err != nil {
			return driver.FuncInfo{}, err
		}
	}
	return v, nil
}

func (c *context) SetMaxShared(fn driver.Function, bytes int) error {
	return c.own("cuFuncSetAttribute", fmt.Sprintf("%d bytes of dynamic shared memory", bytes), func() C.CUresult { return C.max_shared(C.uintptr_t(fn), C.int(bytes)) })
}

func (c *context) Alloc(bytes int) (driver.Ptr, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuda: Alloc of %d bytes", bytes)
	}
	var p cu.DevicePtr
	err := c.do("cuMemAlloc", fmt.Sprintf("%d bytes", bytes), func() (err error) { p, err = cu.MemAlloc(int64(bytes)); return })
	if err != nil {
		return 0, err
	}
	return driver.Ptr(p), nil
}

func (c *context) Free(p driver.Ptr) error {
	return c.do("cuMemFree", "", func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

func (c *context) AllocHost(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: AllocHost of %d bytes", bytes)
	}
	var p unsafe.Pointer
	if err := c.own("cuMemAllocHost", fmt.Sprintf("%d bytes of host memory", bytes), func() C.CUresult { return C.cuMemAllocHost(&p, C.size_t(bytes)) }); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

func (c *context) FreeHost(b []byte) error {
	return c.do("cuMemFreeHost", "", func() error { return cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))) })
}

func (c *context) CopyIn(s driver.Stream, dst driver.Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	return c.do("cuMemcpyHtoDAsync", fmt.Sprintf("%d bytes to %#x", len(src), uint64(dst)), func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)), wrapped[cu.Stream](uintptr(s)))
	})
}

func (c *context) CopyOut(s driver.Stream, dst []byte, src driver.Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	return c.do("cuMemcpyDtoHAsync", fmt.Sprintf("%d bytes from %#x", len(dst), uint64(src)), func() error {
		return cu.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), int64(len(dst)), wrapped[cu.Stream](uintptr(s)))
	})
}

func (c *context) Copy(s driver.Stream, dst, src driver.Ptr, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return c.do("cuMemcpyDtoDAsync", fmt.Sprintf("%d bytes from %#x to %#x", bytes, uint64(src), uint64(dst)), func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(bytes), wrapped[cu.Stream](uintptr(s)))
	})
}

func (c *context) Fill(s driver.Stream, dst driver.Ptr, value byte, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return c.do("cuMemsetD8Async", fmt.Sprintf("%d bytes at %#x", bytes, uint64(dst)), func() error {
		return cu.MemsetD8Async(cu.DevicePtr(dst), value, int64(bytes), wrapped[cu.Stream](uintptr(s)))
	})
}

func (c *context) NewStream() (driver.Stream, error) {
	var s cu.Stream
	err := c.do("cuStreamCreate", "", func() (err error) { s, err = cu.MakeStream(cu.NonBlocking); return })
	if err != nil {
		return 0, err
	}
	return driver.Stream(handle(s)), nil
}

func (c *context) CloseStream(s driver.Stream) error {
	return c.do("cuStreamDestroy", "", func() error { v := wrapped[cu.Stream](uintptr(s)); return v.Destroy() })
}

func (c *context) Sync(s driver.Stream) error {
	return c.do("cuStreamSynchronize", "", func() error { return wrapped[cu.Stream](uintptr(s)).Synchronize() })
}

func (c *context) NewEvent() (driver.Event, error) {
	var e cu.Event
	err := c.do("cuEventCreate", "", func() (err error) { e, err = cu.MakeEvent(cu.DefaultEvent); return })
	if err != nil {
		return 0, err
	}
	return driver.Event(handle(e)), nil
}

func (c *context) CloseEvent(e driver.Event) error {
	return c.do("cuEventDestroy", "", func() error { v := wrapped[cu.Event](uintptr(e)); return cu.DestroyEvent(&v) })
}

func (c *context) Record(e driver.Event, s driver.Stream) error {
	return c.do("cuEventRecord", "", func() error { return wrapped[cu.Event](uintptr(e)).Record(wrapped[cu.Stream](uintptr(s))) })
}

func (c *context) Elapsed(from, to driver.Event) (time.Duration, error) {
	var ms float64
	err := c.do("cuEventElapsedTime", "", func() (err error) {
		ms, err = wrapped[cu.Event](uintptr(from)).Elapsed(wrapped[cu.Event](uintptr(to)))
		return err
	})
	return time.Duration(ms * float64(time.Millisecond)), err
}

func (c *context) Launch(s driver.Stream, fn driver.Function, l driver.Launch, params []byte) error {
	if len(params) > driver.MaxParams {
		return fmt.Errorf("cuda: cuLaunchKernel: %d bytes of parameters, at most %d: %w", len(params), driver.MaxParams, driver.ErrKernel)
	}
	g, b := l.Grid, l.Block
	what := fmt.Sprintf("grid %v, block %v, %d bytes of shared memory, %d of parameters", g, b, l.Shared, len(params))
	return c.own("cuLaunchKernel", what, func() C.CUresult {
		return C.launch(C.uintptr_t(fn), C.uint(g[0]), C.uint(g[1]), C.uint(g[2]), C.uint(b[0]), C.uint(b[1]), C.uint(b[2]),
			C.uint(l.Shared), C.uintptr_t(s), unsafe.Pointer(unsafe.SliceData(params)), C.size_t(len(params)))
	})
}

func (c *context) BeginCapture(s driver.Stream) error {
	return c.own("cuStreamBeginCapture", "", func() C.CUresult { return C.begin_capture(C.uintptr_t(s)) })
}

func (c *context) EndCapture(s driver.Stream) (driver.Graph, error) {
	var g C.uintptr_t
	err := c.own("cuStreamEndCapture", "", func() C.CUresult { return C.end_capture(C.uintptr_t(s), &g) })
	return driver.Graph(g), err
}

func (c *context) Instantiate(g driver.Graph) (driver.Exec, error) {
	var x C.uintptr_t
	err := c.own("cuGraphInstantiateWithFlags", "", func() C.CUresult { return C.instantiate(C.uintptr_t(g), &x) })
	return driver.Exec(x), err
}

func (c *context) LaunchGraph(s driver.Stream, x driver.Exec) error {
	return c.own("cuGraphLaunch", "", func() C.CUresult { return C.launch_graph(C.uintptr_t(x), C.uintptr_t(s)) })
}

func (c *context) CloseGraph(g driver.Graph) error {
	return c.own("cuGraphDestroy", "", func() C.CUresult { return C.close_graph(C.uintptr_t(g)) })
}

func (c *context) CloseExec(x driver.Exec) error {
	return c.own("cuGraphExecDestroy", "", func() C.CUresult { return C.close_exec(C.uintptr_t(x)) })
}
