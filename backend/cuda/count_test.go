package cuda_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// The time of a kernel on a device is estimated from what the emulator counts
// (docs/cuda.md): these tests print the counts per unit of work and keep the
// ratios that the estimate rests on.
func TestCounts(t *testing.T) {
	dev, watch := watched(t)
	// run counts one kernel of what f does.
	run := func(kernel string, f func(r *rig, rnd *tensortest.Rand)) emu.Counts {
		t.Helper()
		r := newRig(t, dev)
		rnd := tensortest.NewRand(1, kernel)
		r.must(r.s.Sync())
		watch.ResetCounts()
		f(r, rnd)
		r.must(r.s.Sync())
		c := watch.Counts()[kernel]
		if c.Launches == 0 {
			t.Fatalf("%s was not launched", kernel)
		}
		return c
	}
	issued := func(c emu.Counts) (n int64) {
		for _, v := range c.Issued {
			n += v
		}
		return n
	}
	ratio := func(name string, got, low, high float64) {
		t.Helper()
		t.Logf("%-50s %8.3f", name, got)
		if got < low || got > high {
			t.Errorf("%s is %.3f, want %.3f to %.3f", name, got, low, high)
		}
	}
	linear := func(dt tensor.DType, rows, n, k int, kernel string) (emu.Counts, float64) {
		var bytes int64
		c := run(kernel, func(r *rig, rnd *tensortest.Rand) {
			w := r.weight(rnd, dt, n, k)
			bytes = w.Bytes()
			r.s.Linear(r.f32(nil, rows, n), r.random(rnd, 1, rows, k), w)
		})
		return c, float64(bytes)
	}
	for _, z := range []struct {
		dt     tensor.DType
		kernel string
		read   float64 // at most, of the weight's bytes
		each   float64 // warp instructions per 32 weights, at most
	}{
		{tensor.F32, "gemv1_F32", 1.15, 5}, {tensor.BF16, "gemv1_BF16", 1.2, 5.5},
		{tensor.Q8_0, "gemv1_Q8_0", 1.2, 7.6}, {tensor.Q4_K, "gemv1_Q4_K", 1.6, 8.8},
	} {
		const n, k = 64, 4096
		c, bytes := linear(z.dt, 1, n, k, z.kernel)
		ratio(z.kernel+": sectors read / weight bytes", float64(32*c.ReadSectors)/bytes, 1, z.read)
		ratio(z.kernel+": warp instructions / 32 weights", float64(issued(c))/(n*k/32), 1, z.each)
		ratio(z.kernel+": shared passes / 32 weights", float64(c.SharedPasses)/(n*k/32), 0, 1.1)
	}
	for _, kernel := range []string{"gemmLarge_F32", "gemmLarge_BF16", "gemmLarge_Q4_K"} {
		dt := map[string]tensor.DType{"gemmLarge_F32": tensor.F32, "gemmLarge_BF16": tensor.BF16, "gemmLarge_Q4_K": tensor.Q4_K}[kernel]
		const rows, n, k = 256, 256, 256
		c, _ := linear(dt, rows, n, k, kernel)
		fma := float64(c.Issued[emu.FMA])
		ratio(kernel+": FMA / needed", fma/(rows*n*k/32), 1, 1.001)
		ratio(kernel+": FMA / warp instructions", fma/float64(issued(c)), 0.74, 1)
		ratio(kernel+": shared passes / FMA", float64(c.SharedPasses)/fma, 0, 0.4)
		ratio(kernel+": shared conflicts / shared passes", float64(c.SharedConflicts)/float64(c.SharedPasses), 0, 0.2)
	}
	attend := func(kernel string, past, rows, hq, hkv, d int) emu.Counts {
		return run(kernel, func(r *rig, rnd *tensortest.Rand) {
			var pages []tensor.Tensor
			for range (past + rows + backend.Page - 1) / backend.Page {
				pages = append(pages, r.random(rnd, 1, 2, hkv, backend.Page, d))
			}
			p := r.s.Plan([]backend.Seg{{Rows: rows, Slot: past, Pos: past, KV: pages}})
			r.s.Attention(r.f32(nil, rows, hq, d), r.random(rnd, 1, rows, hq, d), p, 0, 0.1, 0)
		})
	}
	{
		const past, hq, hkv, d = 1023, 8, 2, 128
		c := attend("attendBlocks4", past, 1, hq, hkv, d)
		ratio("attendBlocks4: sectors read / bytes of keys and values", float64(32*c.ReadSectors)/(2*4*hkv*d*(past+1)), 1, 1.1)
		ratio("attendBlocks4: FMA / warp instructions", float64(c.Issued[emu.FMA])/float64(issued(c)), 0.34, 1)
		c = attend("attendTile2", 448, 64, 2, 1, d)
		ratio("attendTile2: FMA / warp instructions", float64(c.Issued[emu.FMA])/float64(issued(c)), 0.5, 1)
		ratio("attendTile2: shared passes / FMA", float64(c.SharedPasses)/float64(c.Issued[emu.FMA]), 0, 1)
	}
	{
		const rows, dk, dv = 16, 128, 128
		c := run("gatedDelta128", func(r *rig, rnd *tensortest.Rand) {
			p := r.s.Plan([]backend.Seg{{Rows: rows, DeltaIn: r.random(rnd, 1, 1, 1, dk, dv), DeltaOut: r.f32(nil, 1, 1, dk, dv)}})
			r.s.GatedDelta(r.f32(nil, rows, 1, dv), r.random(rnd, 0.1, rows, 1, dk), r.random(rnd, 0.1, rows, 1, dk), r.random(rnd, 1, rows, 1, dv),
				r.random(rnd, 0.5, rows, 1), r.random(rnd, 0.5, rows, 1), p, 0)
		})
		ratio("gatedDelta128: warp instructions / (row, 32 states)", float64(issued(c))/(rows*dk*dv/32), 4, 6.5)
	}
}
