// Package emu runs PTX on the processor: it implements the driver interface of
// package driver with an interpreter, so that every kernel can be run, and
// watched, on machines without a GPU.
//
// The text is the one that a device's driver would load, byte for byte.
// Arithmetic is correctly rounded and keeps subnormals; NaN results are PTX's
// canonical one. What a device would let pass is a [Fault] here, with the kernel,
// the PTX line and the thread: reads of memory that nothing wrote, accesses out of
// bounds, misaligned or after Free, races in shared memory, barriers and shuffles
// that some threads never reach, and loops without an end. A text with
// approximate instructions, or with sums and products that an assembler may fuse,
// is not loaded.
//
// Work given to a stream runs as late as it may, when the stream is synchronised
// or memory is freed: a program that changes a staging buffer too early is found.
package emu

import (
	"fmt"
	"maps"
	"runtime"
	"sync"

	"samebit/backend/cuda/driver"
)

// Config describes the emulated devices. The zero value is one device with
// 1 GiB.
type Config struct {
	Devices int   // 0 means 1, negative none
	Memory  int64 // bytes of each; 0 means 1 GiB
	Workers int   // blocks that run at a time; 0 means GOMAXPROCS
	Steps   int64 // basic blocks that the warps of one block may enter; 0 means 1<<32
	// Capability is the compute capability, times ten: modules for newer ones are
	// refused. 0 means 75.
	Capability int
	// Sums is how tensor cores add, which no device promises.
	Sums   Sums
	Shared int // bytes of shared memory that a block can have; 0 means 64 KiB, as compute capability 7.5 has
}

// Driver is an emulated driver. It remembers what it compiled: a text that is loaded
// again, also after its device was closed, costs nothing.
type Driver struct {
	cfg  Config
	devs []*Device
	done texts
}

// New returns a driver with devices as cfg says.
func New(cfg Config) *Driver {
	n := cfg.Devices
	switch {
	case n == 0:
		n = 1
	case n < 0:
		n = 0
	}
	if cfg.Memory == 0 {
		cfg.Memory = 1 << 30
	}
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Steps <= 0 {
		cfg.Steps = 1 << 32
	}
	if cfg.Capability == 0 {
		cfg.Capability = 75
	}
	if cfg.Shared == 0 {
		cfg.Shared = 64 << 10
	}
	d := &Driver{cfg: cfg}
	for i := range n {
		d.devs = append(d.devs, newDevice(cfg, i, &d.done))
	}
	return d
}

// Version is CUDA 12.0.
func (d *Driver) Version() int { return 12000 }

// Count is the number of devices.
func (d *Driver) Count() (int, error) {
	if len(d.devs) == 0 {
		return 0, fmt.Errorf("emu: %w", driver.ErrNoDevice)
	}
	return len(d.devs), nil
}

func (d *Driver) device(i int) (*Device, error) {
	if i < 0 || i >= len(d.devs) {
		return nil, fmt.Errorf("emu: device %d of %d: %w", i, len(d.devs), driver.ErrNoDevice)
	}
	return d.devs[i], nil
}

// Info describes device i.
func (d *Driver) Info(i int) (driver.Info, error) {
	if _, err := d.device(i); err != nil {
		return driver.Info{}, err
	}
	return driver.Info{
		Name: "PTX emulator", Memory: d.cfg.Memory, Major: d.cfg.Capability / 10, Minor: d.cfg.Capability % 10, Multiprocs: d.cfg.Workers, WarpSize: 32, MaxThreads: 1024,
		Shared: min(48<<10, d.cfg.Shared), SharedOptin: d.cfg.Shared, ClockKHz: 1_000_000, MemoryClockKHz: 1_000_000, MemoryBusBits: 64, L2: 1 << 20,
	}, nil
}

// Open returns device i; it can be asked for its counts as a *Device.
func (d *Driver) Open(i int) (driver.Context, error) {
	v, err := d.device(i)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opened++
	return v, nil
}

// Device is an emulated device and its context. It is safe for concurrent use.
type Device struct {
	cfg     Config
	index   int
	done    *texts
	mu      sync.Mutex
	atomics sync.Mutex
	opened  int
	mem     memory
	lost    error
	next    uintptr // handle
	modules map[driver.Module]*loaded
	funcs   map[driver.Function]*function
	streams map[driver.Stream]*stream
	events  map[driver.Event]*event
	graphs  map[driver.Graph][]work
	execs   map[driver.Exec][]work
	hosts   map[*byte]int // memory of AllocHost
	counts  map[string]*Counts
	ran     map[string]Ran
}

func newDevice(cfg Config, index int, done *texts) *Device {
	return &Device{
		cfg: cfg, index: index, done: done, mem: memory{limit: cfg.Memory},
		modules: map[driver.Module]*loaded{}, funcs: map[driver.Function]*function{}, streams: map[driver.Stream]*stream{},
		events: map[driver.Event]*event{}, graphs: map[driver.Graph][]work{}, execs: map[driver.Exec][]work{},
		hosts: map[*byte]int{}, counts: map[string]*Counts{}, ran: map[string]Ran{},
	}
}

// Counts are those of each kernel, by name, since the last ResetCounts. Work that
// was not synchronised is not in them.
func (v *Device) Counts() map[string]Counts {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string]Counts{}
	for name, c := range v.counts {
		out[name] = *c
	}
	return out
}

// ResetCounts makes all counts zero, and forgets what ran.
func (v *Device) ResetCounts() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.counts)
	clear(v.ran)
}

// Ran says which lines of a kernel's text ran.
type Ran struct {
	p      *program
	blocks []bool
}

// Line reports whether a warp entered the basic block with that line of the module.
func (r Ran) Line(line int) bool {
	for i := len(r.blocks) - 2; i >= 0; i-- { // the last one is the end of the text
		if from := int(r.p.blocks[i].from); from > 0 && from <= line {
			return r.blocks[i]
		}
	}
	return false
}

// Ran is by kernel what ran since the last ResetCounts.
func (v *Device) Ran() map[string]Ran {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.ran)
}

// Held is what was not given back: allocations, host buffers, modules, streams,
// events, graphs and ready graphs.
func (v *Device) Held() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, a := range v.mem.live {
		if a.name == "" {
			n++
		}
	}
	return n + len(v.hosts) + len(v.modules) + len(v.streams) + len(v.events) + len(v.graphs) + len(v.execs)
}

func (v *Device) handle() uintptr { v.next++; return v.next }

// enter begins a call.
func (v *Device) enter(call string) error {
	v.mu.Lock()
	switch {
	case v.lost != nil:
		return fmt.Errorf("emu: %s: %w: %w", call, driver.ErrLost, v.lost)
	case v.opened == 0:
		return fmt.Errorf("emu: %s: %w", call, driver.ErrClosed)
	}
	return nil
}

func (v *Device) leave() { v.mu.Unlock() }

func closed(call string, h any) error {
	return fmt.Errorf("emu: %s of handle %v: %w", call, h, driver.ErrClosed)
}

// MemInfo is the free memory and all of it.
func (v *Device) MemInfo() (free, total int64, err error) {
	defer v.leave()
	if err := v.enter("MemInfo"); err != nil {
		return 0, 0, err
	}
	return v.mem.limit - v.mem.used, v.mem.limit, nil
}

// Close releases the context; the last Close makes a lost device whole and empty.
func (v *Device) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.opened == 0 {
		return closed("Close", v.index)
	}
	if v.opened--; v.opened == 0 && v.lost != nil {
		fresh := newDevice(v.cfg, v.index, v.done)
		v.mem, v.modules, v.funcs, v.streams, v.events, v.graphs, v.execs, v.hosts = fresh.mem, fresh.modules, fresh.funcs, fresh.streams, fresh.events, fresh.graphs, fresh.execs, fresh.hosts
		v.lost = nil
	}
	return nil
}

// Alloc returns memory that nothing has written.
func (v *Device) Alloc(bytes int) (driver.Ptr, error) {
	defer v.leave()
	if err := v.enter("Alloc"); err != nil {
		return 0, err
	}
	if bytes <= 0 {
		return 0, fmt.Errorf("emu: Alloc of %d bytes", bytes)
	}
	a := v.mem.alloc(bytes, "")
	if a == nil {
		return 0, fmt.Errorf("emu: Alloc of %d bytes, %d of %d are free: %w", bytes, v.mem.limit-v.mem.used, v.mem.limit, driver.ErrOutOfMemory)
	}
	return driver.Ptr(a.base), nil
}

// Free waits for all streams, as a driver does.
func (v *Device) Free(p driver.Ptr) error {
	defer v.leave()
	if err := v.enter("Free"); err != nil {
		return err
	}
	for _, s := range v.inOrder() {
		if err := v.drain(s); err != nil {
			return err
		}
	}
	if a := v.mem.find(uint64(p)); a == nil || a.name != "" || !v.mem.free(uint64(p)) {
		_, why := v.mem.explain(uint64(p), 1)
		return fmt.Errorf("emu: Free of %#x: %s: %w", uint64(p), why, driver.ErrClosed)
	}
	return nil
}

// AllocHost returns memory of the host, which a device would lock.
func (v *Device) AllocHost(bytes int) ([]byte, error) {
	defer v.leave()
	if err := v.enter("AllocHost"); err != nil {
		return nil, err
	}
	if bytes <= 0 || int64(bytes) > v.mem.limit {
		return nil, fmt.Errorf("emu: AllocHost of %d bytes: %w", bytes, driver.ErrOutOfMemory)
	}
	b := make([]byte, bytes)
	v.hosts[&b[0]] = bytes
	return b, nil
}

// FreeHost waits for all streams.
func (v *Device) FreeHost(b []byte) error {
	defer v.leave()
	if err := v.enter("FreeHost"); err != nil {
		return err
	}
	for _, s := range v.inOrder() {
		if err := v.drain(s); err != nil {
			return err
		}
	}
	if len(b) == 0 || v.hosts[&b[0]] == 0 {
		return closed("FreeHost", "of memory that is not of AllocHost")
	}
	delete(v.hosts, &b[0])
	return nil
}
