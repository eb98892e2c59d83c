package pool

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// busy is a body of work that touches no memory.
type busy struct {
	steps int
	sink  [8][16]uint64
}

func (b *busy) Do(worker, chunk int) {
	x := uint64(chunk)
	for range b.steps {
		x = x*6364136223846793005 + 1442695040888963407
	}
	b.sink[worker][0] = x
}

// calibrate finds the number of steps that take d on a quiet core.
func calibrate(d time.Duration) int {
	b := busy{steps: 1 << 16}
	best := time.Hour
	for range 50 {
		t := time.Now()
		b.Do(0, 0)
		best = min(best, time.Since(t))
	}
	return int(float64(b.steps) * float64(d) / float64(best))
}

// BenchmarkForkJoin runs 20 µs on each of two threads, as 2 and as 8 chunks.
// p10-ns is the figure to look at on a shared machine; the ideal is 20,000.
func BenchmarkForkJoin(b *testing.B) {
	for _, chunks := range []int{2, 8} {
		b.Run(fmt.Sprintf("20us/2threads/%dchunks", chunks), func(b *testing.B) {
			p := New(2)
			defer p.Close()
			t := &busy{steps: calibrate(40*time.Microsecond) / chunks}
			times := make([]time.Duration, 0, b.N)
			for b.Loop() {
				start := time.Now()
				p.Run(t, chunks)
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/10]), "p10-ns")
			b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
		})
	}
	b.Run("empty", func(b *testing.B) {
		p := New(2)
		defer p.Close()
		t := &busy{}
		for b.Loop() {
			p.Run(t, 8)
		}
	})
}
