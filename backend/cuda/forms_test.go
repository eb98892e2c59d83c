package cuda_test

import (
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda/emu"
	"samebit/backend/ref"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// The suite's operands have gaps and odd addresses; those of models do not, which
// lets kernels read 16 bytes at a time and take larger tiles. These tests run
// that side against package ref.

// rig runs ops with aligned operands on one device.
type rig struct {
	t   *testing.T
	dev backend.Device
	s   backend.Stream
}

func newRig(t *testing.T, dev backend.Device) *rig {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{t, dev, s}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// f32 is a tensor of its own, filled with v or zeros.
func (r *rig) f32(v []float32, dim ...int) tensor.Tensor {
	r.t.Helper()
	n := 1
	for _, d := range dim {
		n *= d
	}
	b, err := r.dev.Alloc(4 * n)
	r.must(err)
	r.t.Cleanup(func() { r.dev.Free(b) })
	x, err := tensor.New(b, 0, tensor.F32, dim...)
	r.must(err)
	if v != nil {
		r.s.Write(x, tensor.AsBytes(v))
	}
	return x
}

func (r *rig) read(x tensor.Tensor) []float32 {
	r.t.Helper()
	v := make([]float32, x.Len())
	r.s.Read(tensor.AsBytes(v), x)
	r.must(r.s.Sync())
	return v
}

// both runs f on package ref and on the emulator and compares what it returns.
func both(t *testing.T, dev backend.Device, f func(r *rig, rnd *tensortest.Rand) []tensor.Tensor) {
	t.Helper()
	var want [][]float32
	for i, d := range []backend.Device{ref.New(), dev} {
		r := newRig(t, d)
		for j, x := range f(r, tensortest.NewRand(backendtest.Seed, t.Name())) {
			v := r.read(x)
			if i == 0 {
				want = append(want, v)
			} else if s := tensortest.DiffBits(want[j], v); s != "" {
				t.Errorf("output %d (-ref +%s): %s", j, dev.Name(), s)
			}
		}
	}
}

// ran fails the test unless a kernel of that name was launched.
func ran(t *testing.T, d *emu.Device, kernel string) {
	t.Helper()
	if d.Counts()[kernel].Launches == 0 {
		t.Errorf("%s was not launched", kernel)
	}
	d.ResetCounts()
}

func TestLinearForms(t *testing.T) {
	dev, watch := watched(t)
	for _, dt := range backendtest.Dtypes() {
		k := max(dt.BlockValues(), 132)
		k = (k + dt.BlockValues() - 1) / dt.BlockValues() * dt.BlockValues()
		for _, z := range []struct {
			rows, n int
			kernel  string
		}{{1, 70, "gemv1_%v"}, {3, 33, "gemv4_%v"}, {8, 64, "gemv4_%v"}, {9, 65, "gemmSmall_%v"}, {130, 257, "gemmLarge_%v"}} {
			if testing.Short() && z.rows == 130 && dt != tensor.BF16 {
				continue
			}
			kernel := fmt.Sprintf(z.kernel, dt)
			t.Run(kernel, func(t *testing.T) {
				both(t, dev, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
					raw, err := tensor.New(tensor.Bytes(backendtest.Weights(rnd, tensortest.Ordinary, dt, z.n*k)), 0, dt, z.n, k)
					r.must(err)
					w, err := r.dev.Pack(raw, backend.UseLinear)
					r.must(err)
					r.t.Cleanup(func() { r.dev.Unpack(w) })
					x, y := r.f32(rnd.F32(tensortest.Ordinary, z.rows*k), z.rows, k), r.f32(nil, z.rows, z.n)
					r.s.Linear(y, x, w)
					return []tensor.Tensor{y}
				})
				ran(t, watch, kernel)
			})
		}
	}
}

func TestAttentionForms(t *testing.T) {
	dev, watch := watched(t)
	for _, z := range []struct {
		past, rows, hq, hkv, d, window int
		kernels                        []string
	}{
		{130, 1, 2, 2, 64, 0, []string{"attendBlocks1", "mergeBlocks"}},
		{2300, 1, 4, 1, 128, 0, []string{"attendBlocks4", "mergeBlocks"}},
		{300, 2, 5, 1, 256, 200, []string{"attendBlocks4", "mergeBlocks"}},
		{70, 3, 4, 1, 320, 0, []string{"attendBlocks4", "mergeBlocks"}},
		{0, 33, 1, 1, 320, 0, []string{"attendBlocks1", "mergeBlocks"}},
		{65, 40, 2, 1, 64, 0, []string{"attendTile1"}},
		{0, 70, 2, 1, 132, 0, []string{"attendTile4"}},
		{190, 35, 2, 1, 128, 150, []string{"attendTile2"}},
		{190, 66, 1, 1, 20, 30, []string{"attendTile1"}},
	} {
		t.Run(fmt.Sprintf("%d+%d/%d:%d/%d/%d", z.past, z.rows, z.hq, z.hkv, z.d, z.window), func(t *testing.T) {
			both(t, dev, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				var pages []tensor.Tensor
				for range (z.past + z.rows + backend.Page - 1) / backend.Page {
					pages = append(pages, r.f32(nil, 4, z.hkv, backend.Page, z.d))
				}
				put := func(from, n int) backend.Plan {
					p := r.s.Plan([]backend.Seg{{Rows: n, Slot: from, Pos: from, KV: pages}})
					v := rnd.F32(tensortest.Ordinary, 2*n*z.hkv*z.d)
					if from > 0 {
						v[len(v)-3] = float32(inf) // a value that the rows before must not see
					}
					r.s.PutKV(p, 1, r.f32(v[:len(v)/2], n, z.hkv, z.d), r.f32(v[len(v)/2:], n, z.hkv, z.d))
					return p
				}
				if z.past > 0 {
					put(0, z.past)
				}
				p := put(z.past, z.rows)
				q, y := r.f32(rnd.F32(tensortest.Ordinary, z.rows*z.hq*z.d), z.rows, z.hq, z.d), r.f32(nil, z.rows, z.hq, z.d)
				w := r.f32(nil, z.rows, z.hq, z.past+z.rows)
				r.s.Attention(y, q, p, 1, 0.125, z.window)
				r.s.AttnWeights(w, q, p, 1, 0.125, z.window)
				return []tensor.Tensor{y, w}
			})
			for _, k := range z.kernels {
				if watch.Counts()[k].Launches == 0 {
					t.Errorf("%s was not launched", k)
				}
			}
			watch.ResetCounts()
		})
	}
}

func TestDeltaForms(t *testing.T) {
	dev, watch := watched(t)
	for _, dk := range []int{32, 64, 128, 96} {
		kernel := fmt.Sprintf("gatedDelta%d", dk)
		if dk == 96 {
			kernel = "gatedDelta"
		}
		t.Run(kernel, func(t *testing.T) {
			const hk, hv, dv, rows = 1, 2, 64, 6
			both(t, dev, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				f := func(scale float32, dim ...int) tensor.Tensor {
					n := 1
					for _, d := range dim {
						n *= d
					}
					v := rnd.F32(tensortest.Ordinary, n)
					for i := range v {
						v[i] *= scale
					}
					return r.f32(v, dim...)
				}
				var segs []backend.Seg
				for i, n := range []int{1, 2, 3} {
					segs = append(segs, backend.Seg{Row: i * (i + 1) / 2, Rows: n, DeltaIn: f(1, 2, hv, dk, dv), DeltaOut: f(1, 2, hv, dk, dv)})
				}
				p, y := r.s.Plan(segs), f(1, rows, hv, dv)
				r.s.GatedDelta(y, f(0.1, rows, hk, dk), f(0.1, rows, hk, dk), f(1, rows, hv, dv), f(0.5, rows, hv), f(0.5, rows, hv), p, 1)
				return []tensor.Tensor{y, segs[0].DeltaOut, segs[1].DeltaOut, segs[2].DeltaOut}
			})
			ran(t, watch, kernel)
		})
	}
}
