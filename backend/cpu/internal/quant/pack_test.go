package quant

import (
	"bytes"
	"math/rand"
	"testing"
	"unsafe"

	"samebit/internal/blockq"
)

// TestPack: the panels of all instruction sets are those of plain Go, for any bytes,
// wherever rows and panel begin, and nothing beside the panel is written.
func TestPack(t *testing.T) {
	r := rand.New(rand.NewSource(7))
	for _, ty := range blockq.Types() {
		l := layoutOf(ty)
		for _, blocks := range []int{1, 2, 3, 5, 8} {
			k := blocks * ty.BlockValues()
			for _, gap := range []int{0, 1, 38} {
				stride := ty.RowBytes(k) + gap
				for _, rows := range []int{1, 31, 32} {
					src := make([]byte, (rows-1)*stride+ty.RowBytes(k))
					r.Read(src)
					size := l.bytes(k)
					want := make([]byte, size)
					l.pack(want, src, stride, rows, k)
					for _, s := range impls() {
						c := s.codec(ty)
						for _, off := range []int{0, 64, 2} {
							room := make([]byte, size+256)
							r.Read(room)
							at := int(-uintptr(unsafe.Pointer(&room[0]))&63) + off
							before := bytes.Clone(room)
							c.Pack(room[at:at+size], src, stride, rows, k)
							if !bytes.Equal(room[at:at+size], want) {
								t.Fatalf("%v %v: panel of %d rows of %d blocks %d bytes apart, %d beside a cache line, is another", s, ty, rows, blocks, stride, off)
							}
							if !bytes.Equal(room[:at], before[:at]) || !bytes.Equal(room[at+size:], before[at+size:]) {
								t.Fatalf("%v %v: wrote beside a panel of %d blocks", s, ty, blocks)
							}
						}
					}
				}
			}
		}
	}
}
