package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/blockq"
	"samebit/internal/canon"
)

var nan = float32(math.NaN())

// dot is DOT of numerics.md 2.
func dot(x, y []float32) float32 {
	var total float32
	for b := 0; b < len(x); b += 128 {
		var acc float32
		for k := b; k < min(b+128, len(x)); k++ {
			acc = canon.FMA32(x[k], y[k], acc)
		}
		total += acc
	}
	return total
}

// rsum64 is RSUM of at most 64 elements by slot.
func rsum64(x *[64]float32) float32 {
	var lane [32]float32
	for i, v := range x {
		lane[i%32] += v
	}
	for h := 16; h > 0; h /= 2 {
		for i := range h {
			lane[i] += lane[i+h]
		}
	}
	return 0 + lane[0]
}

// triple is the contract's partial result of one block.
type triple struct {
	block int
	m, l  float32
	o     []float32
}

// refRow is one row of attention over the visible slots (ascending), word for
// word from numerics.md 7. key and value return the vectors of a slot.
func refRow(q []float32, key, value func(j int) []float32, visible []int, scale float32) (out []float32, m, l float32, parts []triple, score []float32) {
	d := len(q)
	o := make([]float32, d)
	m = float32(math.Inf(-1))
	for len(visible) > 0 {
		b := visible[0] / 64
		var js []int
		for len(visible) > 0 && visible[0]/64 == b {
			js, visible = append(js, visible[0]), visible[1:]
		}
		var p [64]float32
		mb := float32(math.Inf(-1))
		for _, j := range js {
			s := float32(dot(q, key(j)) * scale)
			score = append(score, s)
			p[j%64] = s
			if s > mb {
				mb = s
			}
		}
		for _, j := range js {
			p[j%64] = canon.Exp(p[j%64] - mb)
		}
		lb := rsum64(&p)
		ob := make([]float32, d)
		for c := range ob {
			var a float32
			for _, j := range js {
				a = canon.FMA32(p[j%64], value(j)[c], a)
			}
			ob[c] = 0 + a
		}
		parts = append(parts, triple{b, mb + 0, lb, ob})
		top := max(m, mb)
		al, be := canon.Exp(m-top), canon.Exp(mb-top)
		l = canon.FMA32(lb, be, float32(l*al))
		for c := range o {
			o[c] = canon.FMA32(ob[c], be, float32(o[c]*al))
		}
		m = top
	}
	out = make([]float32, d)
	if parts != nil {
		inv := 1 / l
		for c := range out {
			out[c] = o[c] * inv
		}
	}
	return out, m, l, parts, score
}

// slots lists [lo, hi).
func slots(lo, hi int) (v []int) {
	for j := lo; j < hi; j++ {
		v = append(v, j)
	}
	return v
}

// cache is a set of pages filled from per-slot vectors; slots that were never
// written hold NaN.
type cache struct {
	d    int
	k, v [][]float32
}

func newCache(slots, d int) *cache {
	c := &cache{d: d}
	for range (slots + 63) / 64 {
		k, v := make([]float32, 64*d), make([]float32, 64*d)
		for i := range k {
			k[i], v[i] = nan, nan
		}
		c.k, c.v = append(c.k, k), append(c.v, v)
	}
	return c
}

func (c *cache) set(j int, k, v []float32) {
	for i, x := range k {
		c.k[j/64][i*64+j%64] = x
	}
	copy(c.v[j/64][j%64*c.d:], v)
}

func (c *cache) key(j int) []float32 {
	k := make([]float32, c.d)
	for i := range k {
		k[i] = c.k[j/64][i*64+j%64]
	}
	return k
}

func (c *cache) value(j int) []float32 { return c.v[j/64][j%64*c.d:][:c.d] }

// half rounds the pages to bf16 and gives them to a job in that form.
func (c *cache) half(j *Job) {
	narrow := func(to []uint16, page []float32) []uint16 {
		for i, x := range page {
			h := blockq.F32ToBF16(x)
			page[i], to[At16(i)] = blockq.BF16ToF32(h), h
		}
		return to[:len(page)]
	}
	j.K, j.V = nil, nil
	for b := range c.k {
		if c.k[b] == nil {
			j.K16, j.V16 = append(j.K16, nil), append(j.V16, nil)
			continue
		}
		page := make([]uint16, len(c.k[b])+len(c.v[b]))
		j.K16, j.V16 = append(j.K16, narrow(page, c.k[b])), append(j.V16, narrow(page[len(c.k[b]):], c.v[b]))
	}
}

func fill(rng *rand.Rand, x []float32, amp float32) {
	for i := range x {
		x[i] = (rng.Float32()*2 - 1) * amp
	}
}

func randomCache(rng *rand.Rand, slots, d int) *cache {
	c := newCache(slots, d)
	k, v := make([]float32, d), make([]float32, d)
	for j := range slots {
		fill(rng, k, 2)
		fill(rng, v, 2)
		c.set(j, k, v)
	}
	return c
}

// diff names the first place where two slices differ in bits; all NaN are equal.
func diff(got, want []float32) string {
	if len(got) != len(want) {
		return fmt.Sprintf("length %d, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := math.Float32bits(got[i]), math.Float32bits(want[i])
		if g != w && !(got[i] != got[i] && want[i] != want[i]) {
			return fmt.Sprintf("[%d] = %08x (%g), want %08x (%g)", i, g, got[i], w, want[i])
		}
	}
	return ""
}

// guarded returns n NaN floats between guards and a check that those are whole.
func guarded(t testing.TB, n int) ([]float32, func()) {
	const g = 64
	const mark = 0x7fc0abcd
	a := make([]float32, n+2*g)
	for i := range a {
		a[i] = math.Float32frombits(mark)
	}
	return a[g : g+n : g+n], func() {
		t.Helper()
		for i, x := range a {
			if (i < g || i >= g+n) && math.Float32bits(x) != mark {
				t.Fatalf("guard at %d of %d was overwritten", i-g, n)
			}
		}
	}
}

func scratch(rows, d int) []float32 {
	s := make([]float32, ScratchSize(rows, d))
	for i := range s {
		s[i] = nan
	}
	return s
}

func eachSet(t *testing.T, f func(t *testing.T, k *Kernels)) {
	for _, s := range isa.Available() {
		t.Run(s.String(), func(t *testing.T) { f(t, For(s)) })
	}
}

func exp(x float32) float32 { return canon.Exp(x) }

// logMass is m + log l, -Inf for a row that sees nothing.
func logMass(m, l float32) float32 {
	if l == 0 {
		return float32(math.Inf(-1))
	}
	return m + canon.Log(l)
}

// softmaxIsGeneric tells the slow set apart, whose tests stay small.
func (k *Kernels) softmaxIsGeneric() bool {
	return reflect.ValueOf(k.softmax).Pointer() == reflect.ValueOf(softmaxGeneric).Pointer()
}
