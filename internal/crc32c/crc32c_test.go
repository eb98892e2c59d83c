package crc32c

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestChecksum: the sums are those of hash/crc32 for every length about the vectors'
// and wherever the bytes begin.
func TestChecksum(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	data := make([]byte, 1<<18)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	check := func(b []byte) {
		if got, want := Checksum(b), crc32.Checksum(b, table); got != want {
			t.Fatalf("%d bytes: %08x, want %08x", len(b), got, want)
		}
	}
	for n := range 2100 {
		at := r.IntN(99)
		check(data[at : at+n])
	}
	for range 50 {
		at, n := r.IntN(200), r.IntN(1<<17)
		check(data[at : at+n])
	}
	check(data)
	for i := range 2048 { // each bit has its own effect
		b := make([]byte, 2048)
		b[i] = 1 << (i % 8)
		check(b)
	}
}

func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", n>>10), func(b *testing.B) {
			data := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				Checksum(data)
			}
		})
		b.Run(fmt.Sprintf("%dKiB/crc32", n>>10), func(b *testing.B) {
			data := make([]byte, n)
			b.SetBytes(int64(n))
			for b.Loop() {
				crc32.Checksum(data, table)
			}
		})
	}
}
