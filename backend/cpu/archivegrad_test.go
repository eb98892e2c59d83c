package cpu_test

import (
	"fmt"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Kernels and threads must not change a bit of a gradient of archive attention.
func TestArchiveGrad(t *testing.T) {
	impls := cpu.Impls()
	for _, impl := range []string{"generic", "neon", "avx2", "avx512"} {
		t.Run(impl, func(t *testing.T) {
			backendtest.Require(t, impl, slices.Contains(impls, impl))
			for _, threads := range []int{1, 8} {
				if testing.Short() && threads != 8 {
					continue
				}
				t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
					backendtest.RunCases(t, open(t, cpu.Config{Threads: threads, Impl: impl}), some(impl, backendtest.ArchiveGradCases()))
				})
			}
		})
	}
}

func TestArchiveGradErrors(t *testing.T) {
	backendtest.ArchiveGradErrors(t, open(t, cpu.Config{Threads: 2}))
}

// One layer of the published shape with heads of 64, 1,024 rows: what a training
// step spends on the archive beside its products.
func BenchmarkArchiveScanGrad(b *testing.B) {
	const rows, heads, d, m, s, rank = 1024, 4, 64, 16, 4, 8
	dev := open(b, cpu.Config{Threads: 1})
	st, err := dev.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	r := tensortest.NewRand(1, "archive gradient")
	f := func(dim ...int) tensor.Tensor {
		n := 1
		for _, x := range dim {
			n *= x
		}
		t, err := tensor.FromF32(r.F32(tensortest.Ordinary, n), dim...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 0.125, Window: 128}, Codes: f(heads, m, d), Mix: f(heads, m, s), CorrV: f(heads, d, rank),
		CorrU: f(heads, rank, d), CorrScale: f(heads, rank, s), Decay: []float32{0.99, 0.995, 0.998, 0.999}, Gain: []float32{0.3, 0.5, 0.8, 0.9}}
	p := st.Plan([]backend.Seg{{Rows: rows}})
	g := &backend.ArchiveGrads{Q: f(rows, heads, d), K: f(rows, heads, d), V: f(rows, heads, d), Codes: f(heads, m, d), Mix: f(heads, m, s), CorrV: f(heads, d, rank),
		CorrU: f(heads, rank, d), CorrScale: f(heads, rank, s)}
	q, k, v, dy := f(rows, heads, d), f(rows, heads, d), f(rows, heads, d), f(rows, heads, d)
	b.ResetTimer()
	for b.Loop() {
		st.(backend.ArchiveGrad).ArchiveScanGrad(g, dy, q, k, v, p, w)
	}
	b.StopTimer()
	if err := st.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)*rows*heads/b.Elapsed().Seconds(), "rows/s")
}
