package qcc

import (
	"context"
	"fmt"
	"testing"

	"samebit/backend/cpu"
)

// BenchmarkLayer is a layer of the published shape: 256 wide, 8 heads, window 128, 16
// codes, 4 scales.
func BenchmarkLayer(b *testing.B) {
	dev, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	for _, rows := range []int{1, 256} {
		for _, rank := range []int{0, 8} {
			b.Run(fmt.Sprintf("rows=%d/rank=%d", rows, rank), func(b *testing.B) {
				c := DefaultConfig(256, 8)
				c.Rank = rank
				p, err := NewParams(c, 3)
				if err != nil {
					b.Fatal(err)
				}
				pr := &Projections{}
				for _, f := range pr.named(c)[:4] {
					*f.Values = make([]float32, f.Size())
					Uniform(*f.Values, 4, f.Name, 0.06)
				}
				l, err := New(dev, c, pr, p)
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				st, err := l.NewState()
				if err != nil {
					b.Fatal(err)
				}
				defer st.Release()
				x, y := make([]float32, 256*256), make([]float32, 256*256)
				Uniform(x, 5, "rows", 1)
				if err := l.Chunk(context.Background(), y, st, Block{Hidden: x}); err != nil {
					b.Fatal(err)
				}
				n := rows * 256
				b.ReportAllocs()
				for b.Loop() {
					if err := l.Chunk(context.Background(), y[:n], st, Block{Hidden: x[:n]}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
			})
		}
	}
}
