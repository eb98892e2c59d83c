package lm

import (
	"math"
	"sync"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/tensor"
)

// places writes the rows that are added to the embeddings of segments.
func (m *Model) places(c *nn.Ctx, dst tensor.Tensor, segs []backend.Seg) error {
	if m.Position == Learned {
		var at []int32
		for _, g := range segs {
			for i := range g.Rows {
				at = append(at, int32(g.Pos+i))
			}
		}
		index, err := ints(c, at)
		if err == nil {
			c.Stream.Embed(dst, m.positions, index)
		}
		return err
	}
	v := make([]float32, 0, dst.Len())
	for _, g := range segs {
		for i := range g.Rows {
			v = append(v, sinusoids(g.Pos+i, m.Layer.Hidden)...)
		}
	}
	c.Stream.Write(dst, tensor.AsBytes(v))
	return nil
}

// sinusoids are sines and after them cosines of a position times falling
// frequencies, cut to w values. Angles are formed and reduced in float64: in float32
// they would be off by hundredths at position 10⁶.
func sinusoids(pos, w int) []float32 {
	half := (w + 1) / 2
	v := make([]float32, 2*half)
	for i, f := range frequencies(half) {
		a := float64(pos) * f
		turns := math.Round(a / tauHi)
		a = math.FMA(-turns, tauHi, a)
		a = math.FMA(-turns, tauLo, a)
		v[i], v[half+i] = canon.SinCos(float32(a))
	}
	return v[:w]
}

// 2π in two parts.
const (
	tauHi = 0x1.921fb54442d18p+2
	tauLo = 0x1.1a62633145c07p-52
)

// cached are frequencies by their number.
var cached = struct {
	sync.Mutex
	by map[int][]float64
}{by: map[int][]float64{}}

// frequencies are exp(-ln(10000)·i/half), each rounded once from more bits.
func frequencies(half int) []float64 {
	cached.Lock()
	defer cached.Unlock()
	if f := cached.by[half]; f != nil {
		return f
	}
	f := make([]float64, half)
	for i := range f {
		e := canon.Big(float64(-i))
		e.Quo(e, canon.Big(float64(half)))
		f[i], _ = canon.BigPow(canon.Big(10000), e).Float64()
	}
	cached.by[half] = f
	return f
}
