package cuda_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// attendCase is attention of the last rows of a sequence, with operands in plain
// order: q [rows, hq, d], k and v [slots, hkv, d].
type attendCase struct {
	past, rows, hq, hkv, d, window int
	scale                          float64
	q, k, v                        []float32
}

func newAttendCase(past, rows, hq, hkv, d, window int) *attendCase {
	rnd := tensortest.NewRand(backendtest.Seed, "attention", fmt.Sprint(past, rows, hq, hkv, d, window))
	slots := past + rows
	return &attendCase{past: past, rows: rows, hq: hq, hkv: hkv, d: d, window: window, scale: float64(float32(1 / math.Sqrt(float64(d)))),
		q: rnd.F32(tensortest.Ordinary, rows*hq*d), k: rnd.F32(tensortest.Ordinary, slots*hkv*d), v: rnd.F32(tensortest.Ordinary, slots*hkv*d)}
}

// louder makes the scores larger: what matters then is that the maximum is taken off
// before exp.
func (c *attendCase) louder(by float32) *attendCase {
	for i := range c.q {
		c.q[i] *= by
	}
	return c
}

// at is the output of a row and head in float64, and for every component the
// tolerance for operands that are moved by at most u of their size each. round is
// applied to the operands first.
//
// A score is a product of D components, so it moves by at most
//
//	E = scale·((2u + u²)·Σ|q·k| + 20·2^-23·⌈D/16⌉·(1+u)²·Σ|q·k|),
//
// sums as in linearCase.check, the largest of the visible slots, and by 4·2^-24 of
// itself through the steps of float32 that follow. Weights e^s / Σ e^s then move by
// at most a factor e^(2E). Each weight is rounded to bfloat16 (2^-8), each value
// moves by u; exp, the running factors and sums take at most
// (40·⌈S/16⌉ + 64·⌈S/64⌉ + 64)·2^-23 of Σ p·|v|, S the visible slots.
func (c *attendCase) at(row, head int, u float64, round func(float32) float64) (out, tol []float64) {
	own := c.past + row
	lo := 0
	if c.window > 0 {
		lo = max(0, own-c.window+1)
	}
	kv := head / (c.hq / c.hkv)
	n := own - lo + 1
	s := make([]float64, n)
	most, moved := math.Inf(-1), 0.0
	for j := range s {
		size := 0.0
		for i := range c.d {
			p := round(c.q[(row*c.hq+head)*c.d+i]) * round(c.k[((lo+j)*c.hkv+kv)*c.d+i])
			s[j] += p
			size += math.Abs(p)
		}
		s[j] *= c.scale
		most = max(most, s[j])
		moved = max(moved, c.scale*size*(2*u+u*u+20*0x1p-23*float64((c.d+15)/16)*(1+u)*(1+u))+4*0x1p-24*math.Abs(s[j]))
	}
	sum := 0.0
	for j := range s {
		s[j] = math.Exp(s[j] - most)
		sum += s[j]
	}
	out, tol = make([]float64, c.d), make([]float64, c.d)
	steps := float64(40*((n+15)/16)+64*((n+63)/64)+64) * 0x1p-23
	factor := math.Exp(2*moved)*(1+0x1p-8)*(1+u)*(1+steps) - 1
	for i := range c.d {
		for j := range s {
			p := s[j] / sum * round(c.v[((lo+j)*c.hkv+kv)*c.d+i])
			out[i] += p
			tol[i] += math.Abs(p) * factor
		}
	}
	return out, tol
}

// check compares with operands as they are and, if they were rounded, more closely
// with what the tensor cores saw.
func (c *attendCase) check(got []float32, rounded bool) error {
	const u = 0x1p-8
	for row := range c.rows {
		for head := range c.hq {
			for name, o := range map[string]struct {
				u     float64
				round func(float32) float64
			}{"rounded operands": {0, toBF16}, "operands": {u, func(v float32) float64 { return float64(v) }}} {
				if name == "rounded operands" && !rounded {
					continue
				}
				out, tol := c.at(row, head, o.u, o.round)
				for i := range out {
					if v := got[(row*c.hq+head)*c.d+i]; !(math.Abs(float64(v)-out[i]) <= tol[i]) {
						return fmt.Errorf("row %d, head %d, component %d is %v; the %s give %v, at most %g away", row, head, i, v, name, out[i], tol[i])
					}
				}
			}
		}
	}
	return nil
}

// run runs the case, behind rows of another sequence.
func (c *attendCase) run(r *rig) []float32 {
	r.t.Helper()
	pages := func(slots int) (l []tensor.Tensor) {
		for range (slots + backend.Page - 1) / backend.Page {
			l = append(l, r.f32(nil, 4, c.hkv, backend.Page, c.d))
		}
		return l
	}
	kv, each := pages(c.past+c.rows), c.hkv*c.d
	if c.past > 0 {
		p := r.s.Plan([]backend.Seg{{Rows: c.past, KV: kv}})
		r.s.PutKV(p, 1, r.f32(c.k[:c.past*each], c.past, c.hkv, c.d), r.f32(c.v[:c.past*each], c.past, c.hkv, c.d))
	}
	const other = 9 // rows of another sequence before them
	all := c.rows + other
	with := func(v []float32) tensor.Tensor {
		wide := len(v) / c.rows
		return r.f32(append(make([]float32, other*wide), v...), all, wide/c.d, c.d)
	}
	p := r.s.Plan([]backend.Seg{{Rows: other, KV: pages(other)}, {Row: other, Rows: c.rows, Slot: c.past, Pos: c.past, KV: kv}})
	r.s.PutKV(p, 1, with(c.k[c.past*each:]), with(c.v[c.past*each:]))
	got := make([]float32, all*c.hq*c.d)
	y := r.f32(nil, all, c.hq, c.d)
	r.s.Attention(y, with(c.q), p, 1, float32(c.scale), c.window)
	r.s.Read(tensor.AsBytes(got), y)
	r.must(r.s.Sync())
	return got[other*c.hq*c.d:]
}

// Attention of many rows is within the stated tolerances, whatever the order and
// the rounding of the tensor cores.
func TestFastAttention(t *testing.T) {
	for i, z := range []struct {
		past, rows, hq, hkv, d, window int
		kernel                         string
	}{
		{0, 9, 1, 1, 64, 0, "fastTile64"},
		{61, 35, 4, 2, 40, 0, "fastTile64"},
		{190, 35, 5, 1, 128, 0, "fastTile128"},
		{130, 17, 3, 1, 72, 70, "fastTile128"}, // the first rows see less than the last in both directions
		{300, 33, 2, 1, 8, 33, "fastTile64"},
		{200, 20, 6, 1, 16, 5, "fastTile64"}, // blocks that some rows do not see
		{64, 64, 1, 1, 12, 0, "attendTile1"}, // 8 does not divide D: exact kernels
		{0, 10, 1, 1, 136, 0, "attendTile4"}, // too wide
	} {
		t.Run(fmt.Sprintf("%d+%d/%d:%d/%d/%d", z.past, z.rows, z.hq, z.hkv, z.d, z.window), func(t *testing.T) {
			c := newAttendCase(z.past, z.rows, z.hq, z.hkv, z.d, z.window)
			if i%3 == 1 {
				c.louder(50)
			}
			for s := range 4 {
				if testing.Short() && s != i%4 {
					continue
				}
				dev, watch := watchedAt(t, emu.Sums(s), true)
				got := c.run(newRig(t, dev))
				if err := c.check(got, strings.HasPrefix(z.kernel, "fast")); err != nil {
					t.Errorf("sums %d: %v", s, err)
				}
				if watch.Counts()[z.kernel].Launches != 1 {
					t.Errorf("%s was not launched", z.kernel)
				}
			}
		})
	}
}
