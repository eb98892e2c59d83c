package natsbus

import (
	"fmt"
	"testing"

	"samebit/cache/cachetest"
)

// 16 MiB to a server inside this process and back.
func BenchmarkEntry(b *testing.B) {
	s, err := Open(ctx, Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	bed := cachetest.NewBed(b)
	x := newSample(b, bed, 1, 1024, 4096)
	q := bed.Sequence(key.Model, 0)
	b.Run("Put", func(b *testing.B) {
		b.SetBytes(16 << 20)
		for b.Loop() {
			put(b, s, x)
			b.StopTimer()
			if err := s.Delete(ctx, x.e.ID); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	put(b, s, x)
	b.Run("Get", func(b *testing.B) {
		b.SetBytes(16 << 20)
		for b.Loop() {
			if err := s.Get(ctx, x.e, q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Stamp", func(b *testing.B) {
		for b.Loop() {
			s.Stamp(ctx)
		}
	})
	for n := 1; n < 100; n++ {
		put(b, s, newSample(b, bed, n+1, 8, 0))
	}
	b.Run(fmt.Sprintf("List/%d", 100), func(b *testing.B) {
		for b.Loop() {
			if n := len(listed(b, s)); n != 100 {
				b.Fatal(n)
			}
		}
	})
}
