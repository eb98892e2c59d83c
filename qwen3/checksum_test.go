package qwen3

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestChecksums: however the bytes are cut into parts, the sums are the CRC-32C of
// each 64 KiB, in order. States and caches that were stored know models by them.
func TestChecksums(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for _, n := range []int{0, 1, 4, sumBytes - 1, sumBytes, sumBytes + 1, 20*sumBytes + 12345} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		var want []byte
		for i := 0; i < n; i += 64 << 10 {
			want = binary.LittleEndian.AppendUint32(want, crc32.Checksum(data[i:min(i+64<<10, n)], crc32.MakeTable(crc32.Castagnoli)))
		}
		whole := newChecksums(data)
		whole.all()
		if !bytes.Equal(whole.appendTo(nil), want) {
			t.Errorf("%d bytes: sums differ", n)
		}
		for range 10 {
			cut := newChecksums(data)
			for i := 0; i < n; {
				j := min(n, i+1+r.IntN(3*sumBytes))
				cut.part(i, j)
				i = j
			}
			if !bytes.Equal(cut.appendTo(nil), want) {
				t.Fatalf("%d bytes in parts: sums differ", n)
			}
		}
	}
}
