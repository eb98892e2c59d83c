package quant

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"samebit/internal/blockq"
)

// ring is the size of the weights a DRAM benchmark walks: far beyond L3.
const ring = 256 << 20

// BenchmarkGemv reports 10⁹ weights/s on average (Gw/s), and of the fastest call
// in weights (bestGw/s) and panel bytes (bestGB/s), which a busy machine disturbs
// less. The weights come from DRAM or stay in L2; K = 2048 inputs, 64 panels
// (2048 outputs) or 2 panels a call.
func BenchmarkGemv(b *testing.B) {
	const k, panels = 2048, 64
	for _, ty := range blockq.Types() {
		for _, s := range impls()[1:] {
			c := s.codec(ty)
			size := c.Bytes(k)
			for _, where := range []string{"dram", "l2"} {
				matrices := ring / (size * panels)
				n := panels
				if where == "l2" {
					matrices, n = 1, 2
				}
				b.Run(fmt.Sprintf("%v/%v/%s", ty, s, where), func(b *testing.B) {
					packed := make([]byte, matrices*n*size)
					fill(packed)
					x, y := make([]float32, k), make([]float32, n*32)
					for i := range x {
						x[i] = rand.Float32()
					}
					i := 0
					best := time.Hour
					for b.Loop() {
						start := time.Now()
						c.Gemv(y, x, packed[i*n*size:][:n*size], k)
						best = min(best, time.Since(start))
						i = (i + 1) % matrices
					}
					sec := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(n*32*k)/sec/1e9, "Gw/s")
					b.ReportMetric(float64(n*32*k)/float64(best.Nanoseconds()), "bestGw/s")
					b.ReportMetric(float64(n*size)/float64(best.Nanoseconds()), "bestGB/s")
				})
			}
		}
	}
}

// BenchmarkExpand reports 10⁹ weights/s of the fastest run on a 128-input slice in L1.
func BenchmarkExpand(b *testing.B) {
	const k = 256
	for _, ty := range blockq.Types() {
		for _, s := range impls() {
			b.Run(fmt.Sprintf("%v/%v", ty, s), func(b *testing.B) {
				c := s.codec(ty)
				packed, dst := make([]byte, c.Bytes(k)), make([]float32, 128*32)
				fill(packed)
				best := time.Hour
				for b.Loop() {
					start := time.Now()
					for range 16 {
						c.Expand(dst, packed, k, 128, 128)
					}
					best = min(best, time.Since(start))
				}
				b.ReportMetric(16*128*32/float64(best.Nanoseconds()), "bestGw/s")
			})
		}
	}
}

// BenchmarkPack reports the file bytes of the fastest panel, in GB/s; file and
// panels lie in DRAM.
func BenchmarkPack(b *testing.B) {
	const k, size = 4096, 64 << 20
	for _, ty := range blockq.Types() {
		for _, s := range impls() {
			b.Run(fmt.Sprintf("%v/%v", ty, s), func(b *testing.B) {
				c := s.codec(ty)
				in, out := 32*ty.RowBytes(k), c.Bytes(k)
				n := size / in
				src, dst := make([]byte, n*in), make([]byte, n*out)
				fill(src)
				fill(dst)
				best, i := time.Hour, 0
				for b.Loop() {
					start := time.Now()
					c.Pack(dst[i*out:][:out], src[i*in:], ty.RowBytes(k), 32, k)
					best = min(best, time.Since(start))
					i = (i + 1) % n
				}
				b.ReportMetric(float64(in)/float64(best.Nanoseconds()), "bestGB/s")
			})
		}
	}
}

// fill writes bytes that are finite halves wherever they are read as such.
func fill(p []byte) {
	for i := range p {
		p[i] = byte(i*7) & 0x3b
	}
}
