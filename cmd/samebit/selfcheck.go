package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/internal/blockq"
	"samebit/tensor"
)

// selfCheck is how one set of kernels did.
type selfCheck struct {
	Kernels   string `json:"kernels"`
	Ops       int    `json:"ops"`
	Values    int    `json:"values"`
	Differing int    `json:"differing"`
	First     string `json:"first,omitempty"`
	Problem   string `json:"problem,omitempty"` // what kept it from running
}

// selfChecks runs a few ops of odd sizes on every set of kernels that this machine
// has and compares each value with the plain loops of package ref.
func selfChecks(ctx context.Context, threads int) ([]selfCheck, error) {
	want, err := runOps(ref.New())
	if err != nil {
		return nil, fmt.Errorf("doctor: reference: %w", err)
	}
	var all []selfCheck
	for _, impl := range cpu.Impls() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, checkKernels(impl, threads, want))
	}
	return all, nil
}

func checkKernels(impl string, threads int, want []opResult) selfCheck {
	c := selfCheck{Kernels: impl}
	dev, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
	if err != nil {
		c.Problem = err.Error()
		return c
	}
	defer dev.Close()
	got, err := runOps(dev)
	if err != nil {
		c.Problem = err.Error()
		return c
	}
	return checkAgainst(c, got, want)
}

// checkAgainst counts what differs.
func checkAgainst(c selfCheck, got, want []opResult) selfCheck {
	for i, g := range got {
		c.Ops++
		for j, v := range g.values {
			c.Values++
			if w := want[i].values[j]; v != w {
				if c.Differing++; c.First == "" {
					c.First = fmt.Sprintf("%s, value %d: %08x, want %08x", g.op, j, v, w)
				}
			}
		}
	}
	return c
}

// opResult are the bits of one op, all NaN the same.
type opResult struct {
	op     string
	values []uint32
}

// script runs ops on a device and keeps what they wrote.
type script struct {
	dev  backend.Device
	s    backend.Stream
	rnd  *rand.Rand
	bufs []tensor.Buffer
	done []opResult
	err  error
}

// runOps is the script itself. Sizes are odd on purpose, and inputs hold zeros of
// both signs, subnormal and large numbers.
func runOps(dev backend.Device) ([]opResult, error) {
	s, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	c := &script{dev: dev, s: s, rnd: rand.New(rand.NewPCG(1, 2))}
	defer c.free()
	c.rows()
	c.products()
	c.attention()
	c.delta()
	return c.done, c.err
}

func (c *script) rows() {
	const r, n = 5, 1061
	x, y, w := c.random(r, n), c.random(r, n), c.random(n)
	out := func() tensor.Tensor { return c.zeros(r, n) }
	c.op("RMSNorm", out(), func(d tensor.Tensor) { c.s.RMSNorm(d, x, w, 1e-6) })
	c.op("LayerNorm", out(), func(d tensor.Tensor) { c.s.LayerNorm(d, x, w, w, 1e-5) })
	c.op("SwiGLU", out(), func(d tensor.Tensor) { c.s.SwiGLU(d, x, y) })
	c.op("SigmoidMul", out(), func(d tensor.Tensor) { c.s.SigmoidMul(d, x, y) })
	c.op("Softmax", out(), func(d tensor.Tensor) { c.s.Softmax(d, x) })
	c.op("Add", out(), func(d tensor.Tensor) { c.s.Add(d, x, y) })
}

func (c *script) products() {
	const n, k = 77, 288
	v := c.values(n * k)
	types := []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q5_1, tensor.Q8_0}
	for _, dt := range types {
		if c.err != nil {
			return
		}
		w, err := c.pack(dt, v, n, k)
		if err != nil {
			c.err = err
			return
		}
		for _, r := range []int{1, 37} {
			x := c.random(r, k)
			c.op(fmt.Sprintf("Linear %v, %d rows", dt, r), c.zeros(r, n), func(d tensor.Tensor) { c.s.Linear(d, x, w) })
		}
		c.dev.Unpack(w)
	}
}

func (c *script) attention() {
	const r, hq, hkv, d = 75, 4, 2, 40
	seg := backend.Seg{Rows: r, KV: []tensor.Tensor{c.zeros(2, hkv, backend.Page, d), c.zeros(2, hkv, backend.Page, d)}}
	q, k, v, w := c.random(r, hq, d), c.random(r, hkv, d), c.random(r, hkv, d), c.random(d)
	rope, err := backend.NewRoPE(1e6, d, backend.Scaling{}, nil)
	if err != nil {
		c.fail(err)
	}
	if c.err != nil {
		return
	}
	p := c.s.Plan([]backend.Seg{seg})
	turned := c.zeros(r, hq, d)
	c.op("NormRoPE", turned, func(dst tensor.Tensor) { c.s.NormRoPE(dst, q, w, 1e-6, rope, p) })
	c.op("Attention", c.zeros(r, hq, d), func(dst tensor.Tensor) {
		c.s.PutKV(p, 0, k, v)
		c.s.Attention(dst, turned, p, 0, 0.125, 0)
	})
}

func (c *script) delta() {
	const r, hk, hv, dk, dv, taps = 9, 2, 4, 24, 40, 4
	const ch = 2*hk*dk + hv*dv
	seg := backend.Seg{Rows: r, DeltaIn: c.random(1, hv, dk, dv), DeltaOut: c.zeros(1, hv, dk, dv), ConvIn: c.random(1, taps-1, ch), ConvOut: c.zeros(1, taps-1, ch)}
	x, w := c.random(r, ch), c.random(taps, ch)
	q, k, v := c.random(r, hk, dk), c.random(r, hk, dk), c.random(r, hv, dv)
	a, b, e, bias := c.random(r, hv), c.random(r, hv), c.random(hv), c.random(hv)
	g, beta, qn, kn := c.zeros(r, hv), c.zeros(r, hv), c.zeros(r, hk, dk), c.zeros(r, hk, dk)
	if c.err != nil {
		return
	}
	p := c.s.Plan([]backend.Seg{seg})
	c.op("Conv", c.zeros(r, ch), func(d tensor.Tensor) { c.s.Conv(d, x, w, p, 0) })
	c.op("L2Norm", qn, func(d tensor.Tensor) { c.s.L2Norm(d, q, 1e-6, 0.25) })
	c.op("L2Norm", kn, func(d tensor.Tensor) { c.s.L2Norm(d, k, 1e-6, 1) })
	c.op("DeltaGates", g, func(d tensor.Tensor) { c.s.DeltaGates(d, beta, a, b, e, bias) })
	c.op("GatedDelta", c.zeros(r, hv, dv), func(d tensor.Tensor) { c.s.GatedDelta(d, qn, kn, v, g, beta, p, 0) })
}

// op runs f and keeps the bits of dst.
func (c *script) op(name string, dst tensor.Tensor, f func(dst tensor.Tensor)) {
	if c.err != nil {
		return
	}
	f(dst)
	bits := make([]uint32, dst.Len())
	c.s.Read(tensor.AsBytes(bits), dst)
	if err := c.s.Sync(); err != nil {
		c.err = fmt.Errorf("%s: %w", name, err)
		return
	}
	for i, b := range bits {
		if v := math.Float32frombits(b); v != v {
			bits[i] = 0x7fc00000
		}
	}
	c.done = append(c.done, opResult{name, bits})
}

func (c *script) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// values are seeded numbers with the odd ones among them.
func (c *script) values(n int) []float32 {
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1.8p-130, 0x1p-126, 37.5, -88}
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(c.rnd.NormFloat64())
		if c.rnd.IntN(29) == 0 {
			v[i] = special[c.rnd.IntN(len(special))]
		}
	}
	return v
}

func (c *script) random(dim ...int) tensor.Tensor {
	t := c.zeros(dim...)
	if c.err != nil {
		return t
	}
	v := c.values(t.Len())
	c.s.Write(t, tensor.AsBytes(v))
	return t
}

func (c *script) zeros(dim ...int) tensor.Tensor {
	n := 4
	for _, d := range dim {
		n *= d
	}
	b, err := c.dev.Alloc(n)
	if err != nil {
		c.fail(err)
		return tensor.Tensor{}
	}
	c.bufs = append(c.bufs, b)
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	if err != nil {
		c.fail(err)
	}
	return t
}

func (c *script) pack(dt tensor.DType, v []float32, n, k int) (backend.Weight, error) {
	raw := make([]byte, dt.Bytes(len(v)))
	switch dt {
	case tensor.F32:
		copy(raw, tensor.AsBytes(v))
	case tensor.BF16, tensor.F16:
		for i, x := range v {
			h := blockq.F32ToBF16(x)
			if dt == tensor.F16 {
				h = blockq.F32ToF16(x)
			}
			raw[2*i], raw[2*i+1] = byte(h), byte(h>>8)
		}
	default:
		t, ok := blockq.Of(dt)
		if !ok {
			return nil, fmt.Errorf("no blocks of type %v", dt)
		}
		if err := blockq.Quantize(raw, v, t); err != nil {
			return nil, err
		}
	}
	t, err := tensor.New(tensor.Bytes(raw), 0, dt, n, k)
	if err != nil {
		return nil, err
	}
	return c.dev.Pack(t, backend.UseLinear)
}

func (c *script) free() {
	for _, b := range c.bufs {
		c.dev.Free(b)
	}
}
