package cuda_test

import (
	"fmt"
	"testing"

	"samebit/backend"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// What an H200 does in a second, at 1.98 GHz on 132 multiprocessors.
const (
	h200Bytes  = 4.8e12
	h200Issue  = 4 * 132 * 1.98e9 // instructions of warps; as many FMAs
	h200Shared = 132 * 1.98e9     // passes over the banks of shared memory
)

// share is the share of the bandwidth, or with no bytes of the FMA rate, at which a
// kernel runs on an H200 if nothing but its own counts limits it: it takes as long
// as the slowest of its memory (every byte once), its instructions and its passes
// of shared memory. Waiting, launches and a device that is not full come on top, so
// it is a bound from above. From below: registers moved from one to another are
// counted, which assemblers remove, and loads of 16 bytes count four passes.
func share(c emu.Counts, bytes float64) float64 {
	var issued float64
	for _, n := range c.Issued {
		issued += float64(n)
	}
	fma := float64(c.Issued[emu.FMA]) / h200Issue
	t := max(bytes/h200Bytes, issued/h200Issue, float64(c.SharedPasses)/h200Shared)
	if bytes > 0 {
		return bytes / h200Bytes / t
	}
	return fma / t
}

// The time of a kernel on a device is estimated from what the emulator counts
// (docs/cuda.md 6): this test prints the counts per unit of work and keeps the
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
		share  float64 // of the bandwidth, at least
	}{
		{tensor.F32, "gemv1_F32", 1.1, 3.1, 1}, {tensor.BF16, "gemv1_BF16", 1.1, 4.8, 1},
		{tensor.Q8_0, "gemv1_Q8_0", 1.2, 7.6, 0.95}, {tensor.Q4_K, "gemv1_Q4_K", 1.4, 7, 0.55},
	} {
		const n, k = 64, 4096
		c, bytes := linear(z.dt, 1, n, k, z.kernel)
		ratio(z.kernel+": sectors read / weight bytes", float64(32*c.ReadSectors)/bytes, 1, z.read)
		ratio(z.kernel+": warp instructions / 32 weights", float64(issued(c))/(n*k/32), 1, z.each)
		ratio(z.kernel+": share of an H200's bandwidth", share(c, bytes), z.share, 1)
		ratio(z.kernel+": shared passes / 32 weights", float64(c.SharedPasses)/(n*k/32), 0, 1.1)
	}
	shares := map[string]float64{} // of the FMAs
	for _, kernel := range []string{"gemmLarge_F32", "gemmLarge_BF16", "gemmLarge_Q4_K"} {
		dt := map[string]tensor.DType{"gemmLarge_F32": tensor.F32, "gemmLarge_BF16": tensor.BF16, "gemmLarge_Q4_K": tensor.Q4_K}[kernel]
		const rows, n, k = 256, 256, 256
		c, _ := linear(dt, rows, n, k, kernel)
		fma := float64(c.Issued[emu.FMA])
		ratio(kernel+": FMA / needed", fma/(rows*n*k/32), 1, 1.01) // unpacking has some
		ratio(kernel+": FMA / warp instructions", fma/float64(issued(c)), 0.74, 1)
		shares[kernel] = share(c, 0)
		ratio(kernel+": share of an H200's FMAs", shares[kernel], 0.7, 1)
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
		ratio("attendBlocks4: share of an H200's bandwidth", share(c, 2*4*hkv*d*(past+1)), 0.4, 1)
		c = attend("attendTile2", 448, 64, 2, 1, d)
		shares["attendTile2"] = share(c, 0)
		ratio("attendTile2: share of an H200's FMAs", shares["attendTile2"], 0.4, 1)
		ratio("attendTile2: FMA / warp instructions", float64(c.Issued[emu.FMA])/float64(issued(c)), 0.5, 1)
		ratio("attendTile2: shared passes / FMA", float64(c.SharedPasses)/float64(c.Issued[emu.FMA]), 0, 1)
	}
	// A prompt is products and attention, whose times add up. Qwen3-0.6B: 28 layers of
	// 1,024, heads 16 and 8 of 128, SwiGLU of 3,072; the head runs for one row.
	for _, rows := range []float64{2048, 8192} {
		products := rows * 28 * 1024 * (2*16*128 + 2*8*128 + 3*3072)
		attention := 28 * 16 * 2 * 128 * rows * (rows + 1) / 2
		time := products/shares["gemmLarge_BF16"] + attention/shares["attendTile2"]
		least := map[float64]float64{2048: 0.6, 8192: 0.5}[rows]
		ratio(fmt.Sprintf("Qwen3-0.6B, prompt of %v: share of an H200's FMAs", rows), (products+attention)/time, least, 1)
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
