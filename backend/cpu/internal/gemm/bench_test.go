package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
)

// best returns the shortest of the runs of f within about d, at least one.
func best(d time.Duration, f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := time.Hour
	for start := time.Now(); ; {
		t := now()
		f()
		b = min(b, now()-t)
		if time.Since(start) >= d {
			return b
		}
	}
}

// cycle measures the clock by a chain of multiply and add, 4 cycles a step on
// the cores of the last ten years.
func cycle() time.Duration {
	x := uint64(1)
	const steps = 1 << 20
	d := best(50*time.Millisecond, func() {
		for range steps {
			x = x*6364136223846793005 + 1442695040888963407
		}
	})
	if x == 42 {
		panic(x)
	}
	return d * 1000 / (4 * steps / 1000) // in units of 1e-6 ns
}

func fill(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32() - 0.5
	}
	return x
}

// packed returns n x k weights in panels.
func packed(s isa.Set, dt DType, n, k int) (panel.Codec, []byte) {
	cod := Codec(s, dt)
	b := aligned(panel.Count(n) * cod.Bytes(k))
	r := rand.New(rand.NewPCG(7, 7))
	for i := 0; i < len(b); i += 4 {
		*(*float32)(unsafe.Pointer(&b[i])) = r.Float32() - 0.5
	}
	if dt != F32 {
		for i := 0; i < len(b); i += 2 {
			*(*uint16)(unsafe.Pointer(&b[i])) = uint16(0x3800 | r.Uint32()&0x83ff) // normal numbers in both formats
		}
	}
	return cod, b
}

// BenchmarkGemm prints the best GFLOP/s of one thread and the share of 32 flops
// per cycle (two 256-bit or one 512-bit FMA).
func BenchmarkGemm(b *testing.B) {
	r := rand.New(rand.NewPCG(8, 8))
	ns := float64(cycle()) / 1e6
	b.Logf("%.2f GHz", 1/ns)
	for _, s := range isa.Available()[1:] {
		for _, dt := range dtypes {
			for _, c := range [][3]int{{512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {2, 3072, 1024}, {4, 3072, 1024}, {8, 3072, 1024}, {16, 3072, 1024}, {32, 3072, 1024}, {128, 3072, 1024}, {512, 3072, 1024}} {
				m, n, k := c[0], c[1], c[2]
				b.Run(fmt.Sprintf("%v/%v/%dx%dx%d", s, dt, m, n, k), func(b *testing.B) {
					ks := For(s)
					cod, w := packed(s, dt, n, k)
					a, out := fill(r, m*k), make([]float32, m*n)
					pa, scratch := make([]float32, ks.PackASize(m, k)), make([]float32, ks.ScratchSize(m))
					for b.Loop() {
						d := best(400*time.Millisecond, func() {
							ks.PackA(pa, a, k, m, k)
							ks.Panels(out, n, n, pa, m, k, &cod, w, 0, n/width, scratch)
						})
						flops := 2 * float64(m) * float64(n) * float64(k)
						b.ReportMetric(flops/float64(d), "GFLOP/s")
						b.ReportMetric(flops/float64(d)*ns/32*100, "%peak")
						d = best(50*time.Millisecond, func() { ks.PackA(pa, a, k, m, k) })
						b.ReportMetric(float64(d)/float64(m*k), "packA-ns/elem")
					}
				})
			}
		}
	}
}

// readLoop is the plain read of memory that the memory-bound kernels compare with.
func readLoop(b []byte) (s uint64) {
	w := unsafe.Slice((*[8]uint64)(unsafe.Pointer(&b[0])), len(b)/64)
	var a, c, d, e uint64
	for i := range w {
		p := &w[i]
		a += p[0] + p[4]
		c += p[1] + p[5]
		d += p[2] + p[6]
		e += p[3] + p[7]
	}
	return a + c + d + e
}

// BenchmarkGemv reads weights beyond the last cache, one thread.
func BenchmarkGemv(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, c := range [][2]int{{1024, 3072}, {4096, 11008}} {
		k, n := c[0], c[1]
		for _, s := range isa.Available()[1:] {
			for _, dt := range dtypes {
				b.Run(fmt.Sprintf("%v/%v/%dx%d", s, dt, n, k), func(b *testing.B) {
					cod := Codec(s, dt)
					one := panel.Count(n) * cod.Bytes(k)
					ring := max(1, (192<<20)/one)
					_, w := packed(s, dt, n*ring, k)
					x, y := fill(r, k), make([]float32, n)
					i := 0
					for b.Loop() {
						read := best(400*time.Millisecond, func() {
							readLoop(w[i*one : (i+1)*one])
							i = (i + 1) % ring
						})
						d := best(400*time.Millisecond, func() {
							cod.Gemv(y, x, w[i*one:(i+1)*one], k)
							i = (i + 1) % ring
						})
						b.ReportMetric(float64(one)/float64(d), "GB/s")
						b.ReportMetric(float64(n*k)/float64(d), "Gweights/s")
						b.ReportMetric(float64(read)/float64(d), "xread")
					}
				})
			}
		}
	}
}

// BenchmarkPack packs panels from a file image beyond the last cache.
func BenchmarkPack(b *testing.B) {
	const k, n = 1024, 32 * 512
	for _, s := range isa.Available()[1:] {
		for _, dt := range dtypes {
			b.Run(fmt.Sprintf("%v/%v", s, dt), func(b *testing.B) {
				cod, w := packed(s, dt, n, k)
				src := make([]byte, len(w))
				copy(src, w)
				size := cod.Bytes(k)
				for b.Loop() {
					d := best(300*time.Millisecond, func() {
						for p := range n / width {
							cod.Pack(w[p*size:(p+1)*size], src[p*size:], size/width, width, k)
						}
					})
					b.ReportMetric(float64(len(w))/float64(d), "GB/s")
				}
			})
		}
	}
}

func floatsAt(b []byte, i int) unsafe.Pointer { return unsafe.Pointer(&b[i]) }
