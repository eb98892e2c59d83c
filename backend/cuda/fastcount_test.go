package cuda_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda/emu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// The counts that docs/cuda.md 8 rests on.
func TestFastCounts(t *testing.T) {
	ratio := func(name string, got, low, high float64) {
		t.Helper()
		t.Logf("%-50s %8.3f", name, got)
		if got < low || got > high {
			t.Errorf("%s is %.3f, want %.3f to %.3f", name, got, low, high)
		}
	}
	run := func(kernel string, f func(r *rig, rnd *tensortest.Rand)) emu.Counts {
		t.Helper()
		dev, watch := watchedAt(t, emu.SumsRising, true)
		r := newRig(t, dev)
		f(r, tensortest.NewRand(backendtest.Seed, kernel))
		r.must(r.s.Sync())
		c := watch.Counts()[kernel]
		if c.Launches != 1 {
			t.Fatalf("%s was launched %d times", kernel, c.Launches)
		}
		return c
	}
	// products prints what one product of matrices takes beside itself.
	products := func(kernel string, c emu.Counts, needed, instructions, passes float64) {
		t.Helper()
		var issued int64
		for _, v := range c.Issued {
			issued += v
		}
		mma := float64(c.Issued[emu.Matrix])
		ratio(kernel+": products / needed", mma/needed, 1, 1.001)
		ratio(kernel+": warp instructions / product", float64(issued)/mma, 1, instructions)
		ratio(kernel+": shared passes / product", float64(c.SharedPasses)/mma, 0, passes)
		ratio(kernel+": passes at the same bank / all", float64(c.SharedConflicts)/float64(c.SharedPasses), 0, 0.01)
	}
	for dt, most := range map[tensor.DType]float64{tensor.BF16: 6.5, tensor.Q4_K: 20} {
		const rows, n, k = 256, 256, 512
		kernel := "fastLarge_" + dt.String()
		products(kernel, run(kernel, func(r *rig, rnd *tensortest.Rand) {
			r.s.Linear(r.f32(nil, rows, n), r.random(rnd, 1, rows, k), r.weight(rnd, dt, n, k))
		}), rows*n*k/2048, most, 2.1)
	}
	const past, rows, hq, hkv, d = 448, 64, 4, 1, 128
	products("fastTile128", run("fastTile128", func(r *rig, rnd *tensortest.Rand) {
		var pages []tensor.Tensor
		for range (past + rows) / backend.Page {
			pages = append(pages, r.random(rnd, 1, 2, hkv, backend.Page, d))
		}
		p := r.s.Plan([]backend.Seg{{Rows: rows, Slot: past, Pos: past, KV: pages}})
		r.s.Attention(r.f32(nil, rows, hq, d), r.random(rnd, 1, rows, hq, d), p, 0, 0.1, 0)
	}), rows*hq*(past+rows)*d*2/2048, 18, 2.4)
}
