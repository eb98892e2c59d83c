package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/backend/cpu/internal/pool"
)

type gemvTask struct {
	cod  *panel.Codec
	y, x []float32
	w    []byte
	k    int
	size int // panels of a chunk
}

func (g *gemvTask) Do(_, chunk int) {
	b := g.cod.Bytes(g.k)
	lo := chunk * g.size
	hi := min(lo+g.size, len(g.y)/width)
	g.cod.Gemv(g.y[lo*width:hi*width], g.x, g.w[lo*b:hi*b], g.k)
}

type readTask struct {
	w    []byte
	size int
	sum  [8]uint64
}

func (r *readTask) Do(worker, chunk int) {
	r.sum[worker] += readLoop(r.w[chunk*r.size : min((chunk+1)*r.size, len(r.w))])
}

// BenchmarkGemvTwoThreads reads weights beyond the last cache with two threads,
// against a read loop on the same pool. Wall time: it needs two quiet cores.
func BenchmarkGemvTwoThreads(b *testing.B) {
	const k, n, size = 1024, 3072, 8
	p := pool.New(2)
	defer p.Close()
	r := rand.New(rand.NewPCG(12, 12))
	for _, s := range isa.Available()[1:] {
		for _, dt := range dtypes {
			b.Run(fmt.Sprintf("%v/%v", s, dt), func(b *testing.B) {
				cod := Codec(s, dt)
				one := panel.Count(n) * cod.Bytes(k)
				ring := max(1, (192<<20)/one)
				_, w := packed(s, dt, n*ring, k)
				g := &gemvTask{cod: &cod, y: make([]float32, n), x: fill(r, k), k: k, size: size}
				rd := &readTask{size: size * cod.Bytes(k)}
				gemv, read := time.Hour, time.Hour
				i := 0
				for b.Loop() {
					for range 4 * ring {
						i = (i + 1) % ring
						h := (i + ring/2) % ring
						g.w, rd.w = w[i*one:(i+1)*one], w[h*one:(h+1)*one]
						t := time.Now()
						p.Run(g, n/width/size)
						gemv = min(gemv, time.Since(t))
						t = time.Now()
						p.Run(rd, n/width/size)
						read = min(read, time.Since(t))
					}
				}
				b.ReportMetric(float64(one)/float64(gemv), "GB/s")
				b.ReportMetric(float64(read)/float64(gemv), "xread")
			})
		}
	}
}
