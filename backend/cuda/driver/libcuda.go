//go:build (linux && (amd64 || arm64)) || (windows && amd64)

package driver

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
	"unsafe"
)

// Load binds the CUDA driver library at path, or with "" that of the machine. It
// fails with ErrNoDriver, ErrNoDevice or ErrOldDriver.
func Load(path string) (Driver, error) {
	if path == "" {
		path = libraryName
	}
	find, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	l := new(library)
	for e, name := range symbols {
		if l.fn[e] = find(name); l.fn[e] == 0 {
			return nil, fmt.Errorf("cuda: %s has no function %s: %w", path, name, ErrOldDriver)
		}
	}
	f := l.take()
	defer l.give(f)
	if err := l.fail(f, l.call(cuInit, f, f.set(0)), ""); err != nil {
		return nil, err
	}
	if err := l.fail(f, l.call(cuDriverGetVersion, f, f.set(f.word0())), ""); err != nil {
		return nil, err
	}
	d := &realDriver{library: l, version: int(int32(f.word[0]))}
	if d.version < 11040 {
		return nil, fmt.Errorf("cuda: the driver knows CUDA %d.%d: %w", d.version/1000, d.version%1000/10, ErrOldDriver)
	}
	return d, nil
}

// realDriver is the driver of a library.
type realDriver struct {
	*library
	version int
}

func (d *realDriver) Version() int { return d.version }

func (d *realDriver) Count() (int, error) {
	f := d.take()
	defer d.give(f)
	if err := d.fail(f, d.call(cuDeviceGetCount, f, f.set(f.word0())), ""); err != nil {
		return 0, err
	}
	n := int(int32(f.word[0]))
	if n == 0 {
		return 0, fmt.Errorf("cuda: %w", ErrNoDevice)
	}
	return n, nil
}

// get is the handle of device i.
func (d *realDriver) get(f *frame, i int) (uintptr, error) {
	err := d.fail(f, d.call(cuDeviceGet, f, f.set(f.word0(), uintptr(i))), fmt.Sprintf("device %d", i))
	return uintptr(uint32(f.word[0])), err
}

func (d *realDriver) Info(i int) (Info, error) {
	f := d.take()
	defer d.give(f)
	h, err := d.get(f, i)
	if err != nil {
		return Info{}, err
	}
	what := fmt.Sprintf("device %d", i)
	var v Info
	name := f.params[:256]
	clear(name)
	if err := d.fail(f, d.call(cuDeviceGetName, f, f.set(uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)-1), h)), what); err != nil {
		return Info{}, err
	}
	v.Name = string(name[:bytes.IndexByte(name, 0)])
	if err := d.fail(f, d.call(cuDeviceTotalMem, f, f.set(f.word0(), h)), what); err != nil {
		return Info{}, err
	}
	v.Memory = int64(f.word[0])
	for _, a := range []struct {
		attribute uintptr
		to        *int
	}{
		{1, &v.MaxThreads}, {8, &v.Shared}, {10, &v.WarpSize}, {13, &v.ClockKHz}, {16, &v.Multiprocs}, {36, &v.MemoryClockKHz},
		{37, &v.MemoryBusBits}, {38, &v.L2}, {75, &v.Major}, {76, &v.Minor}, {97, &v.SharedOptin},
	} {
		f.word[0] = 0
		if err := d.fail(f, d.call(cuDeviceGetAttribute, f, f.set(f.word0(), a.attribute, h)), fmt.Sprintf("%s, attribute %d", what, a.attribute)); err != nil {
			return Info{}, err
		}
		*a.to = int(int32(f.word[0]))
	}
	return v, nil
}

func (d *realDriver) Open(i int) (Context, error) {
	f := d.take()
	defer d.give(f)
	h, err := d.get(f, i)
	if err != nil {
		return nil, err
	}
	f.word[0] = 0
	if err := d.fail(f, d.call(cuDevicePrimaryCtxRetain, f, f.set(f.word0(), h)), fmt.Sprintf("device %d", i)); err != nil {
		return nil, err
	}
	return &realContext{library: d.library, device: h, index: i, handle: uintptr(f.word[0])}, nil
}

// realContext is the primary context of a device.
type realContext struct {
	*library
	device uintptr
	index  int
	handle uintptr
}

// do calls a function in the context. A context is current to a thread, and Go
// moves goroutines between threads, so each call makes it current first.
func (c *realContext) do(e entry, f *frame, n int) Result {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args := f.args
	f.args[0] = c.handle
	if r := c.call(cuCtxSetCurrent, f, 1); r != Success {
		return r
	}
	f.args = args
	return c.call(e, f, n)
}

// plain is a call without results whose arguments are numbers.
func (c *realContext) plain(e entry, what string, args ...uintptr) error {
	f := c.take()
	defer c.give(f)
	return c.fail(f, c.do(e, f, f.set(args...)), what)
}

// making is a call whose first argument receives a handle.
func (c *realContext) making(e entry, what string, args ...uintptr) (uintptr, error) {
	f := c.take()
	defer c.give(f)
	f.args[0] = f.word0()
	n := 1 + copy(f.args[1:], args)
	if err := c.fail(f, c.do(e, f, n), what); err != nil {
		return 0, err
	}
	return uintptr(f.word[0]), nil
}

func (c *realContext) MemInfo() (free, total int64, err error) {
	f := c.take()
	defer c.give(f)
	if err := c.fail(f, c.do(cuMemGetInfo, f, f.set(f.word0(), f.word1())), ""); err != nil {
		return 0, 0, err
	}
	return int64(f.word[0]), int64(f.word[1]), nil
}

func (c *realContext) Close() error {
	f := c.take()
	defer c.give(f)
	return c.fail(f, c.call(cuDevicePrimaryCtxRelease, f, f.set(c.device)), fmt.Sprintf("device %d", c.index))
}

func (c *realContext) LoadModule(name string, ptx []byte) (Module, error) {
	f := c.take()
	defer c.give(f)
	defer f.release()
	image := append(slices.Clone(ptx), 0)
	log := make([]byte, 8<<10)
	// CU_JIT_ERROR_LOG_BUFFER and its size, which is a value and no address.
	options := &[2]int32{5, 6}
	values := &[2]uintptr{f.bytes(log), uintptr(len(log) - 1)}
	f.src.Pin(options)
	f.src.Pin(values)
	n := f.set(f.word0(), f.bytes(image), 2, uintptr(unsafe.Pointer(options)), uintptr(unsafe.Pointer(values)))
	if err := c.fail(f, c.do(cuModuleLoadDataEx, f, n), fmt.Sprintf("module %s, %d bytes", name, len(ptx))); err != nil {
		if text := string(bytes.TrimSpace(log[:bytes.IndexByte(log, 0)])); text != "" {
			err.(*Error).Detail = text
		}
		return 0, err
	}
	return Module(f.word[0]), nil
}

func (c *realContext) UnloadModule(m Module) error {
	return c.plain(cuModuleUnload, "", uintptr(m))
}

func (c *realContext) Function(m Module, name string) (Function, error) {
	f := c.take()
	defer c.give(f)
	defer f.release()
	z := append([]byte(name), 0)
	if err := c.fail(f, c.do(cuModuleGetFunction, f, f.set(f.word0(), uintptr(m), f.bytes(z))), "kernel "+name); err != nil {
		return 0, err
	}
	return Function(f.word[0]), nil
}

func (c *realContext) FuncInfo(fn Function) (FuncInfo, error) {
	f := c.take()
	defer c.give(f)
	var v FuncInfo
	for _, a := range []struct {
		attribute uintptr
		to        *int
	}{{0, &v.MaxThreads}, {1, &v.Shared}, {3, &v.Local}, {4, &v.Registers}} {
		f.word[0] = 0
		if err := c.fail(f, c.do(cuFuncGetAttribute, f, f.set(f.word0(), a.attribute, uintptr(fn))), fmt.Sprintf("attribute %d", a.attribute)); err != nil {
			return FuncInfo{}, err
		}
		*a.to = int(int32(f.word[0]))
	}
	return v, nil
}

func (c *realContext) SetMaxShared(fn Function, bytes int) error {
	return c.plain(cuFuncSetAttribute, fmt.Sprintf("%d bytes of dynamic shared memory", bytes), uintptr(fn), 8, uintptr(bytes))
}

func (c *realContext) Alloc(bytes int) (Ptr, error) {
	if bytes <= 0 {
		return 0, fmt.Errorf("cuda: Alloc of %d bytes", bytes)
	}
	p, err := c.making(cuMemAlloc, fmt.Sprintf("%d bytes", bytes), uintptr(bytes))
	return Ptr(p), err
}

func (c *realContext) Free(p Ptr) error {
	return c.plain(cuMemFree, "", uintptr(p))
}

func (c *realContext) AllocHost(bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, fmt.Errorf("cuda: AllocHost of %d bytes", bytes)
	}
	f := c.take()
	defer c.give(f)
	if err := c.fail(f, c.do(cuMemAllocHost, f, f.set(f.ptr0(), uintptr(bytes))), fmt.Sprintf("%d bytes of host memory", bytes)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(f.ptr), bytes), nil
}

func (c *realContext) FreeHost(b []byte) error {
	return c.plain(cuMemFreeHost, "", uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}

func (c *realContext) CopyIn(s Stream, dst Ptr, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	f := c.take()
	defer c.give(f)
	defer f.release()
	r := c.do(cuMemcpyHtoDAsync, f, f.set(uintptr(dst), f.bytes(src), uintptr(len(src)), uintptr(s)))
	if r != Success {
		return c.fail(f, r, fmt.Sprintf("%d bytes to %#x", len(src), uint64(dst)))
	}
	return nil
}

func (c *realContext) CopyOut(s Stream, dst []byte, src Ptr) error {
	if len(dst) == 0 {
		return nil
	}
	f := c.take()
	defer c.give(f)
	defer f.release()
	r := c.do(cuMemcpyDtoHAsync, f, f.set(f.bytes(dst), uintptr(src), uintptr(len(dst)), uintptr(s)))
	if r != Success {
		return c.fail(f, r, fmt.Sprintf("%d bytes from %#x", len(dst), uint64(src)))
	}
	return nil
}

func (c *realContext) Copy(s Stream, dst, src Ptr, bytes int) error {
	if bytes == 0 {
		return nil
	}
	f := c.take()
	defer c.give(f)
	r := c.do(cuMemcpyDtoDAsync, f, f.set(uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s)))
	if r != Success {
		return c.fail(f, r, fmt.Sprintf("%d bytes from %#x to %#x", bytes, uint64(src), uint64(dst)))
	}
	return nil
}

func (c *realContext) Fill(s Stream, dst Ptr, value byte, bytes int) error {
	if bytes == 0 {
		return nil
	}
	f := c.take()
	defer c.give(f)
	r := c.do(cuMemsetD8Async, f, f.set(uintptr(dst), uintptr(value), uintptr(bytes), uintptr(s)))
	if r != Success {
		return c.fail(f, r, fmt.Sprintf("%d bytes at %#x", bytes, uint64(dst)))
	}
	return nil
}

func (c *realContext) NewStream() (Stream, error) {
	s, err := c.making(cuStreamCreate, "", 1) // CU_STREAM_NON_BLOCKING
	return Stream(s), err
}

func (c *realContext) CloseStream(s Stream) error {
	return c.plain(cuStreamDestroy, "", uintptr(s))
}

func (c *realContext) Sync(s Stream) error {
	return c.plain(cuStreamSynchronize, "", uintptr(s))
}

func (c *realContext) NewEvent() (Event, error) {
	e, err := c.making(cuEventCreate, "", 0)
	return Event(e), err
}

func (c *realContext) CloseEvent(e Event) error {
	return c.plain(cuEventDestroy, "", uintptr(e))
}

func (c *realContext) Record(e Event, s Stream) error {
	return c.plain(cuEventRecord, "", uintptr(e), uintptr(s))
}

func (c *realContext) Elapsed(from, to Event) (time.Duration, error) {
	ms, err := c.making(cuEventElapsedTime, "", uintptr(from), uintptr(to))
	return time.Duration(float64(math.Float32frombits(uint32(ms))) * float64(time.Millisecond)), err
}

// Launch hands the parameters over as one piece of memory, which the driver
// copies.
func (c *realContext) Launch(s Stream, fn Function, l Launch, params []byte) error {
	if len(params) > MaxParams {
		return fmt.Errorf("cuda: cuLaunchKernel: %d bytes of parameters, at most %d: %w", len(params), MaxParams, ErrKernel)
	}
	f := c.take()
	defer c.give(f)
	copy(f.params[:], params)
	f.word[0] = uint64(len(params))
	// CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE and _END.
	f.extra = [5]uintptr{1, uintptr(unsafe.Pointer(&f.params)), 2, f.word0(), 0}
	g, b := l.Grid, l.Block
	f.args = [11]uintptr{uintptr(fn), uintptr(g[0]), uintptr(g[1]), uintptr(g[2]), uintptr(b[0]), uintptr(b[1]), uintptr(b[2]),
		uintptr(l.Shared), uintptr(s), 0, uintptr(unsafe.Pointer(&f.extra))}
	if r := c.do(cuLaunchKernel, f, 11); r != Success {
		return c.fail(f, r, fmt.Sprintf("grid %v, block %v, %d bytes of shared memory, %d of parameters", g, b, l.Shared, len(params)))
	}
	return nil
}

// BeginCapture is relaxed: a goroutine may end on another thread what it began.
func (c *realContext) BeginCapture(s Stream) error {
	return c.plain(cuStreamBeginCapture, "", uintptr(s), 2)
}

func (c *realContext) EndCapture(s Stream) (Graph, error) {
	f := c.take()
	defer c.give(f)
	if err := c.fail(f, c.do(cuStreamEndCapture, f, f.set(uintptr(s), f.word0())), ""); err != nil {
		return 0, err
	}
	return Graph(f.word[0]), nil
}

func (c *realContext) Instantiate(g Graph) (Exec, error) {
	x, err := c.making(cuGraphInstantiate, "", uintptr(g), 0)
	return Exec(x), err
}

func (c *realContext) LaunchGraph(s Stream, x Exec) error {
	f := c.take()
	defer c.give(f)
	if r := c.do(cuGraphLaunch, f, f.set(uintptr(x), uintptr(s))); r != Success {
		return c.fail(f, r, "")
	}
	return nil
}

func (c *realContext) CloseGraph(g Graph) error {
	return c.plain(cuGraphDestroy, "", uintptr(g))
}

func (c *realContext) CloseExec(x Exec) error {
	return c.plain(cuGraphExecDestroy, "", uintptr(x))
}
