// Package opencl runs the ops on an OpenCL device, with the bits of package ref.
// The kernels are the OpenCL C files in kernels, compiled by the device's driver
// when an op is first used; the driver is loaded at run time, without cgo.
//
// Only devices that round as docs/numerics.md 1 wants are accepted, which their
// capability flags and a few probes say; there is no inexact mode.
package opencl

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
)

const remedy = "install an OpenCL driver and the loader; Debian's packages pocl-opencl-icd and ocl-icd-libopencl1 give one that runs on the processor"

// Config chooses a device. The zero value is the first one of all platforms.
type Config struct {
	Platform string // part of the platform's name, in any case; empty: all platforms
	Device   int    // ordinal among the devices of those platforms
}

// Device runs ops on an OpenCL device. It implements backend.Device.
//
// All streams share one command queue, so that memory is used in the order of the
// calls, whatever stream they came from.
type Device struct {
	api   cl.API
	id    cl.Device
	info  backend.Info
	cfg   Config
	limit int64 // bytes of a buffer

	mu       sync.Mutex // guards all below
	ctx      cl.Context
	queue    cl.Queue
	slabs    [maxSlabs]*slab
	moves    int // counts changes of slabs
	programs map[program]*compiled
	args     [64]byte // of the launch under way, which must not move
	global   [3]uintptr
	local    [3]uintptr
	streams  map[*stream]bool
	closed   bool
}

// New opens a device. The error is backend.ErrNoDevice where no driver or no such
// device is found, and backend.ErrUnsupported where the device cannot give exact
// results.
func New(cfg Config) (*Device, error) {
	api, err := cl.Load()
	if err != nil {
		return nil, fmt.Errorf("opencl: %w: %w: %s", backend.ErrNoDevice, err, remedy)
	}
	return open(api, cfg)
}

// Found is a device as the machine's drivers list it.
type Found struct {
	Platform string
	Model    string
	Err      error // why it cannot give exact results, nil if it may
}

// Devices lists the devices in the order of Config.Device. It looks at their
// capability flags and runs nothing.
func Devices() ([]Found, error) {
	api, err := cl.Load()
	if err != nil {
		return nil, fmt.Errorf("opencl: %w: %w: %s", backend.ErrNoDevice, err, remedy)
	}
	list, err := devices(api, "")
	if err != nil {
		return nil, err
	}
	l := make([]Found, len(list))
	for i, d := range list {
		info, err := properties(api, d.id)
		l[i] = Found{Platform: d.platform, Model: info.model, Err: errors.Join(err, info.exact())}
	}
	return l, nil
}

type place struct {
	platform string
	id       cl.Device
}

func code(err error) int32 {
	var e *cl.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// devices lists those of all platforms whose name holds a text.
func devices(api cl.API, name string) ([]place, error) {
	platforms, err := api.Platforms()
	if err != nil && code(err) != cl.PlatformNotFound {
		return nil, fmt.Errorf("opencl: listing platforms: %w", err)
	}
	var l []place
	for _, p := range platforms {
		b, err := api.PlatformInfo(p, cl.PlatformName)
		if err != nil {
			return nil, fmt.Errorf("opencl: naming a platform: %w", err)
		}
		platform := cl.Text(b)
		if !strings.Contains(strings.ToLower(platform), strings.ToLower(name)) {
			continue
		}
		ids, err := api.Devices(p)
		if err != nil && code(err) != cl.DeviceNotFound {
			return nil, fmt.Errorf("opencl: listing the devices of %s: %w", platform, err)
		}
		for _, id := range ids {
			l = append(l, place{platform, id})
		}
	}
	return l, nil
}

// facts are what a device says about itself.
type facts struct {
	model, version                    string
	fp, memory, alloc, local, group   int64
	units                             int64
	available, compiler, littleEndian bool
}

func properties(api cl.API, id cl.Device) (f facts, err error) {
	get := func(what cl.Info) (b []byte) {
		if err == nil {
			b, err = api.DeviceInfo(id, what)
		}
		return b
	}
	f.model, f.version = cl.Text(get(cl.DeviceName)), cl.Text(get(cl.DeviceVersion))
	for what, v := range map[cl.Info]*int64{cl.DeviceFPConfig: &f.fp, cl.DeviceMemory: &f.memory, cl.DeviceMaxAlloc: &f.alloc,
		cl.DeviceLocal: &f.local, cl.DeviceGroupSize: &f.group, cl.DeviceUnits: &f.units} {
		*v = cl.Number(get(what))
	}
	for what, v := range map[cl.Info]*bool{cl.DeviceAvailable: &f.available, cl.DeviceCompiler: &f.compiler, cl.DeviceLittle: &f.littleEndian} {
		*v = cl.Number(get(what)) != 0
	}
	if err != nil {
		return f, fmt.Errorf("opencl: asking a device for its properties: %w", err)
	}
	return f, nil
}

const localBytes = 24 << 10 // what the largest kernel keeps per group

// exact says what keeps a device from exact results.
func (f *facts) exact() error {
	var missing []string
	for _, c := range []struct {
		have bool
		name string
	}{
		{f.fp&cl.FMA != 0, "CL_FP_FMA"}, {f.fp&cl.Denorm != 0, "CL_FP_DENORM"}, {f.fp&cl.Nearest != 0, "CL_FP_ROUND_TO_NEAREST"},
		{f.fp&cl.InfNaN != 0, "CL_FP_INF_NAN"}, {f.fp&cl.DivideSqr != 0, "CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT"},
		{f.compiler, "CL_DEVICE_COMPILER_AVAILABLE"}, {f.littleEndian, "CL_DEVICE_ENDIAN_LITTLE"}, {f.available, "CL_DEVICE_AVAILABLE"},
		{f.group >= groupSize, "work groups of 64"}, {f.local >= localBytes, "24 KiB of local memory"},
	} {
		if !c.have {
			missing = append(missing, c.name)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("opencl: %s (%s) lacks %s, without which it cannot give the bits of other devices: %w: choose another device",
		f.model, f.version, strings.Join(missing, ", "), backend.ErrUnsupported)
}

func open(api cl.API, cfg Config) (*Device, error) {
	list, err := devices(api, cfg.Platform)
	if err != nil {
		return nil, err
	}
	if cfg.Device < 0 || cfg.Device >= len(list) {
		of := ""
		if cfg.Platform != "" {
			of = fmt.Sprintf(" of platforms named %q", cfg.Platform)
		}
		hint := remedy
		if len(list) > 0 {
			hint = "devices are numbered from 0; samebit doctor lists them"
		}
		return nil, fmt.Errorf("opencl: device %d of %d%s: %w: %s", cfg.Device, len(list), of, backend.ErrNoDevice, hint)
	}
	at := list[cfg.Device]
	f, err := properties(api, at.id)
	if err != nil {
		return nil, err
	}
	if err := f.exact(); err != nil {
		return nil, err
	}
	d := &Device{api: api, id: at.id, cfg: cfg, limit: f.alloc, programs: map[program]*compiled{}, streams: map[*stream]bool{}}
	d.info = backend.Info{Name: "opencl", Model: f.model + ", " + at.platform, Kernels: "OpenCL C 1.2", Memory: f.memory}
	if cfg.Device > 0 {
		d.info.Name = fmt.Sprintf("opencl:%d", cfg.Device)
	}
	if d.ctx, err = api.CreateContext(at.id); err != nil {
		return nil, fmt.Errorf("opencl: opening %s: %w", f.model, err)
	}
	if d.queue, err = api.CreateQueue(d.ctx, at.id); err != nil {
		api.ReleaseContext(d.ctx)
		return nil, fmt.Errorf("opencl: opening %s: %w", f.model, err)
	}
	if err := d.probe(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Device) Name() string       { return d.info.Name }
func (d *Device) Info() backend.Info { return d.info }

// Close frees all memory and programs of the device. Its streams fail from then on.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	errs := []error{d.api.Finish(d.queue)}
	for s := range d.streams {
		errs = append(errs, s.release())
	}
	d.closed = true
	for _, c := range d.programs {
		errs = append(errs, c.release(d.api))
	}
	d.programs = nil
	for i, s := range d.slabs {
		if s != nil {
			errs = append(errs, d.api.ReleaseBuffer(s.mem))
			d.slabs[i] = nil
		}
	}
	errs = append(errs, d.api.ReleaseQueue(d.queue), d.api.ReleaseContext(d.ctx))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("opencl: closing %s: %w", d.info.Model, err)
	}
	return nil
}
