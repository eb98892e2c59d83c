package opencl

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"samebit/backend"
	"samebit/backend/opencl/internal/cl"
	"samebit/internal/canon"
	"samebit/tensor"
)

//go:embed kernels/*.cl
var sources embed.FS

// options never relax a rounding. -cl-std fixes the language; the rest are
// definitions of a program.
const options = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"

// program names what is compiled together: a file with those it builds on, for one
// storage type of weights where it reads any.
type program struct {
	file string
	dt   tensor.DType
	rows int // of a tile of outputs
}

var (
	probeOps  = program{file: "probe"}
	rowOps    = program{file: "rows"}
	attnOps   = program{file: "attention"}
	deltaOps  = program{file: "delta"}
	moeOps    = program{file: "moe"}
	groupSize = int64(64) // GROUP and PAGE of the kernels
)

// parts are the files that a program builds on, besides common.cl.
var parts = map[string][]string{
	"attention": {"arena"}, "delta": {"arena"}, "linear": {"weights"}, "experts": {"arena", "weights", "linear"},
	"gradrows": {"arena", "rowblocks"}, "gradlinear": {"weights"}, "gradattention": {"arena"}, "graddelta": {"arena", "delta"},
	"archive": {"arena", "window"}, "landmarks": {"arena", "window"}, "table": {"arena", "window"}, "mixing": {"arena", "window"},
	"mixgrad": {"arena", "rowblocks"}, "archivegrad": {"arena", "window"},
}

const laneCount = 32 // LANES of the kernels

// linearOps are the products with a storage type in tiles of some rows.
func linearOps(dt tensor.DType, rows int) program { return program{"linear", dt, rows} }

// expertOps are those of experts of a storage type.
func expertOps(dt tensor.DType) program { return program{"experts", dt, 1} }

// source is a program's text, of which the arena comes last but the file itself.
func (p program) source() (string, error) {
	var b strings.Builder
	for _, f := range append(append([]string{"common"}, parts[p.file]...), p.file) {
		text, err := sources.ReadFile("kernels/" + f + ".cl")
		if err != nil {
			return "", err
		}
		b.Write(text)
	}
	return b.String(), nil
}

func (p program) options() string {
	if p.rows == 0 {
		return options
	}
	return fmt.Sprintf("%s -DVALUE=value_%s -DROWS=%d -DTYPE=%d", options, strings.ToLower(p.dt.String()), p.rows, p.dt)
}

func (p program) String() string {
	if p.rows == 0 {
		return p.file + ".cl"
	}
	return fmt.Sprintf("%s.cl for %v weights and %d rows", p.file, p.dt, p.rows)
}

// compiled is a program on a device with the kernels used so far.
type compiled struct {
	prog    cl.Program
	kernels map[string]*kernel
}

type kernel struct {
	h     cl.Kernel
	moves int // Device.moves when its arena was set, less than 0 for never
}

func (c *compiled) release(api cl.API) error {
	var errs []error
	for _, k := range c.kernels {
		errs = append(errs, api.ReleaseKernel(k.h))
	}
	return errors.Join(append(errs, api.ReleaseProgram(c.prog))...)
}

// kernel compiles what it must. d.mu is held.
func (d *Device) kernel(p program, name string) (*kernel, error) {
	c := d.programs[p]
	if c == nil {
		var err error
		if c, err = d.compile(p); err != nil {
			return nil, fmt.Errorf("compiling %v for %s: %w", p, d.info.Model, err)
		}
		d.programs[p] = c
	}
	if k := c.kernels[name]; k != nil {
		return k, nil
	}
	h, err := d.api.CreateKernel(c.prog, name)
	if err != nil {
		return nil, fmt.Errorf("kernel %s of %v: %w", name, p, err)
	}
	k := &kernel{h, -1}
	c.kernels[name] = k
	return k, nil
}

func (d *Device) compile(p program) (*compiled, error) {
	text, err := p.source()
	if err != nil {
		return nil, err
	}
	prog, err := d.api.CreateProgram(d.ctx, text)
	if err != nil {
		return nil, err
	}
	if err := d.api.BuildProgram(prog, d.id, p.options()); err != nil {
		log, _ := d.api.BuildLog(prog, d.id) // the failure itself is known
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, log), d.api.ReleaseProgram(prog))
	}
	return &compiled{prog, map[string]*kernel{}}, nil
}

// call is a kernel launch under way: arguments in order, then run. The first error
// ends it.
type call struct {
	d   *Device
	k   *kernel
	n   int // arguments so far
	err error
}

// set takes size bytes that lie in d.args.
func (c *call) set(size uintptr) {
	if c.err == nil {
		c.err = c.d.api.SetArg(c.k.h, c.n, size, unsafe.Pointer(&c.d.args))
	}
	c.n++
}

func (c *call) u32(v int) *call {
	binary.LittleEndian.PutUint32(c.d.args[:], uint32(v))
	c.set(4)
	return c
}

func (c *call) u64(v uint64) *call {
	binary.LittleEndian.PutUint64(c.d.args[:], v)
	c.set(8)
	return c
}

func (c *call) f32(v float32) *call { return c.u32(int(math.Float32bits(v))) }

func (c *call) flag(v bool) *call {
	if v {
		return c.u32(1)
	}
	return c.u32(0)
}

// mem is a buffer of the driver.
func (c *call) mem(m cl.Mem) *call {
	*(*cl.Mem)(unsafe.Pointer(&c.d.args)) = m
	c.set(unsafe.Sizeof(m))
	return c
}

// at is the slab of m and the element of size bytes at which m begins.
func (c *call) at(m *memory, size int64) *call { return c.from(m, m.off/size) }

// floats is the slab of m and its float i.
func (c *call) floats(m *memory, i int64) *call { return c.from(m, m.off/4+i) }

func (c *call) from(m *memory, element int64) *call {
	if c.err != nil { // the device may be closed and without slabs
		c.n += 2
		return c
	}
	return c.mem(c.d.slabs[m.slab].mem).u64(uint64(element))
}

// run launches over the work items of three axes in groups of local along the first.
func (c *call) run(local, n0, n1, n2 int) error {
	if c.err == nil {
		// axis 0 ends inside its last group, which the kernels look after
		groups := (n0 + local - 1) / local
		c.d.global = [3]uintptr{uintptr(groups * local), uintptr(n1), uintptr(n2)}
		c.d.local = [3]uintptr{uintptr(local), 1, 1}
		c.err = c.d.api.Launch(c.d.queue, c.k.h, &c.d.global, &c.d.local)
	}
	return c.err
}

// arena sets the slabs. A kernel keeps them until they change.
func (c *call) arena() *call {
	d := c.d
	if c.k.moves == d.moves {
		c.n += maxSlabs
		return c
	}
	var any cl.Mem
	for _, s := range d.slabs {
		if s != nil {
			any = s.mem
		}
	}
	for _, s := range d.slabs {
		m := any
		if s != nil {
			m = s.mem
		}
		c.mem(m)
	}
	if c.err == nil {
		c.k.moves = d.moves
	}
	return c
}

// probes are operands on which inexact devices fail: double rounding, subnormals,
// products that must not be fused.
var probes = [][3]uint32{
	{0x3f800001, 0x3f800001, 0xbf800002}, {0x33800800, 0x3f7ff001, 0x3f800000}, {0x00000003, 0x3f000000, 0}, {0x00000001, 0x3f000000, 0x00000001},
	{0x80000001, 0x3f000000, 0}, {0x7f7fffff, 0x40000000, 0xff7fffff}, {0x3f800000, 0x80000000, 0}, {0x00400000, 0x3f400000, 0x00000007},
	{0x3f800001, 0x40400000, 0x3eaaaaab}, {0x41200000, 0x40e00000, 0xc28c0000}, {0x00800001, 0x40000000, 0x80000001}, {0xc2aeac50, 0x3eaaaaab, 0x3f7fffff},
}

// probe runs them and refuses the device if a bit is wrong.
func (d *Device) probe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	const results = 5
	in, out := make([]float32, 3*len(probes)), make([]float32, results*len(probes))
	for i, p := range probes {
		for j, bits := range p {
			in[3*i+j] = math.Float32frombits(bits)
		}
	}
	mem, err := d.api.CreateBuffer(d.ctx, int64(4*(len(in)+len(out))))
	if err != nil {
		return fmt.Errorf("opencl: probing %s: %w", d.info.Model, err)
	}
	err = d.probeIn(mem, in, out)
	if err = errors.Join(err, d.api.ReleaseBuffer(mem)); err != nil {
		return fmt.Errorf("opencl: probing %s: %w", d.info.Model, err)
	}
	for i, p := range probes {
		a, b, c := in[3*i], in[3*i+1], in[3*i+2]
		want := [results]float32{canon.FMA32(a, b, c), float32(a*b) + c, a / b, canon.Sqrt(math.Float32frombits(p[0] &^ (1 << 31))), canon.Exp(a)}
		for j, op := range [results]string{"fma", "a*b + c", "a / b", "sqrt(|a|)", "exp(a)"} {
			if got := out[results*i+j]; math.Float32bits(got) != math.Float32bits(want[j]) && (got == got || want[j] == want[j]) {
				return fmt.Errorf("opencl: %s gives %08x for %s of (%08x, %08x, %08x), want %08x: it cannot give the bits of other devices: %w: choose another device, or a newer driver",
					d.info.Model, math.Float32bits(got), op, p[0], p[1], p[2], math.Float32bits(want[j]), backend.ErrUnsupported)
			}
		}
	}
	return nil
}

func (d *Device) probeIn(mem cl.Mem, in, out []float32) error {
	if err := d.api.Write(d.queue, mem, 0, tensor.AsBytes(in)); err != nil {
		return err
	}
	k, err := d.kernel(probeOps, "probe")
	if err != nil {
		return err
	}
	c := &call{d: d, k: k}
	if err := c.mem(mem).u32(len(in)).u32(len(probes)).run(laneCount, len(probes), 1, 1); err != nil {
		return err
	}
	return d.api.Read(d.queue, tensor.AsBytes(out), mem, int64(4*len(in)))
}
