package quant

import (
	"math/rand"
	"runtime/debug"
	"syscall"
	"testing"
	"unsafe"

	"samebit/internal/blockq"
)

// Kernels read nothing before or behind a panel, nor Pack beside the rows of the file:
// they lie against a page without access at either end.
func TestReadsWithinPanel(t *testing.T) {
	page := syscall.Getpagesize()
	for _, s := range impls()[1:] {
		for _, ty := range blockq.Types() {
			k := 3 * ty.BlockValues()
			c := s.codec(ty)
			size := c.Bytes(k)
			src := randomRows(rand.New(rand.NewSource(1)), ty, 32, k)
			room := (max(size, len(src)) + page - 1) / page * page
			mem, err := syscall.Mmap(-1, 0, room+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			for _, guard := range [][]byte{mem[:page], mem[page+room:]} {
				if err := syscall.Mprotect(guard, syscall.PROT_NONE); err != nil {
					t.Fatal(err)
				}
			}
			x, y, w := make([]float32, max(k, 128*maxTile)), make([]float32, 32), make([]float32, 128*32)
			for _, at := range []int{page, page + room - size} {
				p := mem[at : at+size]
				func() {
					defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
					defer func() {
						if r := recover(); r != nil {
							t.Errorf("%v %v, panel at %d of [%d, %d): %v", s, ty, at, page, page+room, r)
						}
					}()
					c.Pack(p, src, ty.RowBytes(k), 32, k)
					c.Gemv(y, x[:k], p, k)
					for k0 := 0; k0 < k; k0 += 128 {
						n := min(128, k-k0)
						c.Expand(w, p, k, k0, n)
						for rows := 2; rows <= c.MaxTile; rows++ {
							c.Tile(rows, &w[0], 128, &w[0], 128, &x[0], p, k0, n)
						}
					}
				}()
			}
			packed := make([]byte, size+64)
			packed = packed[-uintptr(unsafe.Pointer(&packed[0]))&63:][:size] // where assembly packs
			for _, at := range []int{page, page + room - len(src)} {
				rows := mem[at : at+len(src)]
				copy(rows, src)
				func() {
					defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
					defer func() {
						if r := recover(); r != nil {
							t.Errorf("%v %v, rows at %d of [%d, %d): %v", s, ty, at, page, page+room, r)
						}
					}()
					c.Pack(packed, rows, ty.RowBytes(k), 32, k)
				}()
			}
			if err := syscall.Munmap(mem); err != nil {
				t.Fatal(err)
			}
		}
	}
}
