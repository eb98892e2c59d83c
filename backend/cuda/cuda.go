// Package cuda runs the ops on NVIDIA GPUs with the bits of package ref: its
// kernels are text for the driver's compiler, the driver is loaded at run time,
// and neither cgo nor a CUDA toolkit is needed. With the driver of package emu the
// same kernels run on any processor, slowly and fully checked.
package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"samebit/backend"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/kernels"
	"samebit/tensor"
)

// Config chooses a device.
type Config struct {
	Driver  driver.Driver // nil: that of the machine
	Ordinal int           // device of the driver
	Name    string        // of the device, for reports; empty: "cuda:" and the ordinal

	// Fast gives up the bits of package ref for speed: Linear of more than 8 rows and
	// Attention of 8 and more run on tensor cores, their operands rounded to bfloat16
	// (docs/cuda.md 8). The
	// device says so in its Info, its name ends in ",fast", and models loaded on it
	// have another ID, so that no state or cache entry passes for an exact one.
	Fast bool
}

// Device runs ops on a GPU. It implements backend.Device.
type Device struct {
	ctx  driver.Context
	info driver.Info
	name string
	fast bool

	scratch int // bytes that a gradient's intermediate results may take, if less will do

	mu      sync.Mutex
	modules map[string]driver.Module
	funcs   map[string]driver.Function
	service driver.Stream // of Alloc and Pack
	staging []byte        // of Pack, page-locked
	closed  bool
	held    int // buffers and weights
	slow    string
}

// scratchMost is how much memory the gradients of a stream use at a time for packed
// weights, or for states, that they could also take piece by piece.
const scratchMost = 256 << 20

// New opens a device. It fails with a driver error that names the remedy, or with
// ErrUnsupported if the device's arithmetic is not that of docs/numerics.md 1.
func New(cfg Config) (*Device, error) {
	drv := cfg.Driver
	if drv == nil {
		var err error
		if drv, err = driver.Load(""); err != nil {
			return nil, err
		}
	}
	n, err := drv.Count()
	if err != nil {
		return nil, err
	}
	if cfg.Ordinal < 0 || cfg.Ordinal >= n {
		return nil, fmt.Errorf("cuda: device %d of %d: %w", cfg.Ordinal, n, driver.ErrNoDevice)
	}
	info, err := drv.Info(cfg.Ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: device %d: %w", cfg.Ordinal, err)
	}
	if info.Major*10+info.Minor < 75 {
		return nil, fmt.Errorf("cuda: device %d, %s, has compute capability %d.%d: %w", cfg.Ordinal, info.Name, info.Major, info.Minor, driver.ErrOldDevice)
	}
	if cfg.Fast {
		if err := canBeFast(info); err != nil {
			return nil, fmt.Errorf("cuda: device %d: %w", cfg.Ordinal, err)
		}
	}
	ctx, err := drv.Open(cfg.Ordinal)
	if err != nil {
		return nil, fmt.Errorf("cuda: device %d: %w", cfg.Ordinal, err)
	}
	d := &Device{ctx: ctx, info: info, name: cfg.Name, fast: cfg.Fast, scratch: scratchMost, modules: map[string]driver.Module{}, funcs: map[string]driver.Function{}}
	if d.name == "" {
		d.name = fmt.Sprintf("cuda:%d", cfg.Ordinal)
	}
	if d.fast {
		d.name += fastMark
	}
	if d.service, err = ctx.NewStream(); err == nil {
		err = d.probe()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: opening %s: %w", d.name, err), d.Close())
	}
	return d, nil
}

func (d *Device) Name() string { return d.name }

func (d *Device) Info() backend.Info {
	i := backend.Info{Name: d.name, Model: d.info.Name, Kernels: fmt.Sprintf("ptx sm_75 on %d.%d", d.info.Major, d.info.Minor), Memory: d.info.Memory}
	if d.fast {
		i.Kernels, i.Inexact = fmt.Sprintf("fast (not bit-exact), ptx sm_80 on %d.%d", d.info.Major, d.info.Minor), inexact
	}
	d.mu.Lock()
	i.Slow = d.slow
	d.mu.Unlock()
	return i
}

// probes are operands of the primitive steps whose results an inexact device gets
// wrong: subnormals, double rounding, fused or split steps (numerics.md 1, 14).
var probes = [][7]uint32{ // a, b, c; FMA, a·b, a·b + c in two roundings, a/b
	{0x00000003, 0x3f000000, 0x00000000, 0x00000002, 0x00000002, 0x00000002, 0x00000006},
	{0x3f800001, 0x3f800001, 0xbf800002, 0x28800000, 0x3f800002, 0x00000000, 0x3f800000},
	{0x33800800, 0x3f7ff001, 0x3f800000, 0x3f800001, 0x33800000, 0x3f800000, 0x33801000},
	{0x80000001, 0x3f000000, 0x00000000, 0x80000000, 0x80000000, 0x00000000, 0x80000002},
	{0x3f800000, 0x40400000, 0x00000000, 0x40400000, 0x40400000, 0x40400000, 0x3eaaaaab},
	{0x007fffff, 0x40000000, 0x80000001, 0x00fffffd, 0x00fffffe, 0x00fffffd, 0x00400000},
}

// probe runs the primitive steps once on the device.
func (d *Device) probe() (err error) {
	host := make([]byte, 16*len(probes))
	for i, p := range probes {
		for j := range 3 {
			binary.LittleEndian.PutUint32(host[16*i+4*j:], p[j])
		}
	}
	f, err := d.function("rows", "probe")
	if err != nil {
		return err
	}
	mem, err := d.ctx.Alloc(len(host))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.ctx.Free(mem)) }()
	back, err := d.ctx.AllocHost(len(host))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.ctx.FreeHost(back)) }()
	var p driver.Params
	one := [3]uint32{1, 1, 1}
	if err := d.ctx.CopyIn(d.service, mem, host); err != nil {
		return err
	}
	if err := d.ctx.Launch(d.service, f, driver.Launch{Grid: one, Block: one}, p.Ptr(mem).Int32(int32(len(probes))).Bytes()); err != nil {
		return err
	}
	if err := d.ctx.CopyOut(d.service, back, mem); err != nil {
		return err
	}
	if err := d.ctx.Sync(d.service); err != nil {
		return err
	}
	for i, p := range probes {
		for j, step := range []string{"FMA(a,b,c)", "a*b", "a*b + c", "a/b"} {
			if got := binary.LittleEndian.Uint32(back[16*i+4*j:]); got != p[3+j] {
				return fmt.Errorf("exact results are not possible on this device: %s of %08x %08x %08x is %08x, want %08x: %w",
					step, p[0], p[1], p[2], got, p[3+j], backend.ErrUnsupported)
			}
		}
	}
	return nil
}

// function finds a kernel and loads its module on first use.
func (d *Device) function(module, name string) (driver.Function, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f, ok := d.funcs[name]; ok {
		return f, nil
	}
	m, ok := d.modules[module]
	if !ok {
		if kernels.IsFast(module) && !d.fast { // no second choice is silent
			return 0, fmt.Errorf("cuda: %s of module %s is not exact and %s is not in fast mode: %w", name, module, d.name, backend.ErrUnsupported)
		}
		var err error
		if m, err = d.ctx.LoadModule(module, kernels.PTX(module)); err != nil {
			return 0, err
		}
		d.modules[module] = m
	}
	f, err := d.ctx.Function(m, name)
	if err != nil {
		return 0, err
	}
	d.funcs[name] = f
	return f, nil
}

// buffer is memory of a device.
type buffer struct {
	dev   *Device
	ptr   driver.Ptr
	n     int
	freed bool
}

func (b *buffer) Len() int     { return b.n }
func (b *buffer) Host() []byte { return nil }

func (d *Device) Alloc(bytes int) (tensor.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: Alloc of %d bytes: %w", bytes, backend.ErrNoMemory)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, fmt.Errorf("cuda: Alloc: device %w", backend.ErrClosed)
	}
	ptr, err := d.ctx.Alloc(max(bytes, 1))
	if err != nil {
		return nil, fmt.Errorf("cuda: Alloc of %d bytes: %w", bytes, err)
	}
	if err = d.ctx.Fill(d.service, ptr, 0, max(bytes, 1)); err == nil {
		err = d.ctx.Sync(d.service)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: Alloc of %d bytes: %w", bytes, err), d.ctx.Free(ptr))
	}
	d.held++
	return &buffer{dev: d, ptr: ptr, n: bytes}, nil
}

func (d *Device) Free(b tensor.Buffer) {
	m, ok := b.(*buffer)
	if !ok || m.dev != d {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.freed {
		return
	}
	m.freed = true
	d.ctx.Free(m.ptr) // a lost device has freed it already
	d.release()
}

// release counts one buffer, weight or stream less; the last one of a closed
// device closes the context.
func (d *Device) release() {
	d.held--
	d.end()
}

// Close ends the device. What is still open of it, streams, buffers and weights,
// may be given back afterwards; the context goes with the last.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	return d.end()
}

// end gives the context back when the device is closed and nothing is held.
func (d *Device) end() error {
	if !d.closed || d.held > 0 || d.ctx == nil {
		return nil
	}
	var errs []error
	for _, m := range d.modules {
		errs = append(errs, d.ctx.UnloadModule(m))
	}
	if d.staging != nil {
		errs = append(errs, d.ctx.FreeHost(d.staging))
	}
	if d.service != 0 {
		errs = append(errs, d.ctx.CloseStream(d.service))
	}
	errs = append(errs, d.ctx.Close())
	d.ctx = nil
	return errors.Join(errs...)
}
