package delta

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/internal/canon"
	"samebit/internal/canon/canontest"
)

// naiveConv is numerics.md 8: a DOT over the taps, SiLU.
func naiveConv(c *Conv) {
	taps, n := c.Taps, c.Channels
	x, w := make([]float32, taps), make([]float32, taps)
	for t := range c.T {
		for ch := range n {
			for j := range taps {
				x[j], w[j] = c.at(t - taps + 1 + j)[ch], c.W[j*n+ch]
			}
			y := dot(x, w)
			c.Dst[t*c.DstStride+ch] = canon.SiLU(y)
		}
	}
	hist := []float32{}
	for j := range taps - 1 {
		hist = append(hist, c.at(c.T-taps+1+j)...)
	}
	copy(c.Out, hist)
}

func randomConv(r *rand.Rand, T, channels, taps int) *Conv {
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
			if r.IntN(16) == 0 {
				x[i] *= 0x1p-70 // products underflow, to -0 too
			}
		}
		return x
	}
	c := &Conv{T: T, Channels: channels, Taps: taps, DstStride: channels + 3, XStride: channels + 2}
	c.X, c.W, c.In = draw(T*c.XStride), draw(taps*channels), draw((taps-1)*channels)
	return c
}

func convOutputs(c *Conv) (*Conv, func() bool) {
	d := *c
	var a, b func() bool
	d.Dst, a = canontest.Guarded(c.T * c.DstStride)
	d.Out, b = canontest.Guarded(len(c.In))
	return &d, func() bool { return a() && b() }
}

func sameConv(t *testing.T, what string, got, want *Conv, intact bool) {
	t.Helper()
	if d := canontest.Diff(got.Dst, want.Dst); d != "" {
		t.Fatalf("%s: out:\n%s", what, d)
	}
	if d := canontest.Diff(got.Out, want.Out); d != "" {
		t.Fatalf("%s: history:\n%s", what, d)
	}
	if !intact {
		t.Fatalf("%s: wrote outside its slices", what)
	}
}

func TestConvShapes(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		const seed = 21
		r := rand.New(rand.NewPCG(seed, 1))
		for _, taps := range []int{1, 2, 3, 4, 5, 8} {
			for _, n := range []int{1, 7, 8, 15, 16, 17, 31, 40, 67} {
				for _, T := range []int{0, 1, 2, 3, 4, 9} {
					c := randomConv(r, T, n, taps)
					want, _ := convOutputs(c)
					naiveConv(want)
					got, intact := convOutputs(c)
					k.Conv(got)
					what := fmt.Sprintf("taps=%d channels=%d T=%d seed %d", taps, n, T, seed)
					sameConv(t, what, got, want, intact())
					got, intact = convOutputs(c)
					copy(got.Out, c.In)
					got.In = got.Out
					k.Conv(got)
					sameConv(t, what+" in place", got, want, intact())
				}
			}
		}
	})
}

func TestConvGolden(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		for _, g := range canontest.Cases(t, "conv4_silu") {
			hist, w := g.In["hist"].F32(), g.In["w"].F32()
			n := len(w) / 4
			c := &Conv{T: 1, Channels: n, Taps: 4, DstStride: n, XStride: n, W: make([]float32, 4*n), In: make([]float32, 3*n), X: make([]float32, n)}
			for ch := range n {
				for j := range 4 {
					c.W[j*n+ch] = w[4*ch+j]
					if j < 3 {
						c.In[j*n+ch] = hist[4*ch+j]
					}
				}
				c.X[ch] = hist[4*ch+3]
			}
			got, intact := convOutputs(c)
			k.Conv(got)
			if d := canontest.Diff(got.Dst, g.Out["y"].F32()); d != "" || !intact() {
				t.Errorf("conv4_silu:\n%s", d)
			}
		}
	})
}

// Products that underflow to -0 end in +0: the block is added to a total of +0.
func TestConvUnderflow(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		for _, taps := range []int{1, 3, 4} {
			c := randomConv(rand.New(rand.NewPCG(27, 4)), 5, 21, taps)
			for _, x := range [][]float32{c.X, c.In} {
				for i := range x {
					x[i] = -0x1p-80
				}
			}
			for i := range c.W {
				c.W[i] = 0x1p-80
			}
			got, _ := convOutputs(c)
			k.Conv(got)
			if d := canontest.Diff(got.Dst, make([]float32, len(got.Dst))); d != "" {
				t.Errorf("taps=%d:\n%s", taps, d)
			}
		}
	})
}

// A cut anywhere gives the same rows and the same history.
func TestConvCuts(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(23, 2))
		c := randomConv(r, 13, 37, 4)
		want, _ := convOutputs(c)
		k.Conv(want)
		for cut := 0; cut <= c.T; cut++ {
			got, intact := convOutputs(c)
			a, b := *got, *got
			a.T = cut
			k.Conv(&a)
			b.T, b.In = c.T-cut, a.Out
			b.X, b.Dst = c.X[cut*c.XStride:], got.Dst[cut*c.DstStride:]
			k.Conv(&b)
			sameConv(t, fmt.Sprintf("cut at %d", cut), got, want, intact())
		}
	})
}

// A short row behind zero rows, as left padding makes it, is the row alone:
// nothing but zeros reaches its outputs and its history.
func TestConvLeftPadding(t *testing.T) {
	sets(t, func(t *testing.T, k *Kernels) {
		r := rand.New(rand.NewPCG(25, 3))
		for pad := range 9 {
			for n := 1; n < 7; n++ {
				alone := randomConv(r, n, 21, 4)
				clear(alone.In)
				got, _ := convOutputs(alone)
				k.Conv(got)
				padded := *alone
				padded.T = pad + n
				padded.X = append(make([]float32, pad*alone.XStride), alone.X...)
				p, _ := convOutputs(&padded)
				k.Conv(p)
				p.Dst = p.Dst[pad*p.DstStride:]
				sameConv(t, fmt.Sprintf("%d rows behind %d pads", n, pad), p, got, true)
			}
		}
	})
}

func BenchmarkConv4(b *testing.B) {
	for _, s := range isa.Available() {
		k := For(s)
		b.Run(fmt.Sprintf("%v/channels=8192", s), func(b *testing.B) {
			c, _ := convOutputs(randomConv(rand.New(rand.NewPCG(1, 1)), 4, 8192, 4))
			for b.Loop() {
				k.Conv(c)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(4*8192), "ns/value")
		})
	}
}
