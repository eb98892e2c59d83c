package cpu

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"samebit/tensor"
)

// Pieces do not overlap, keep what is written to them, and a slab goes when its
// last piece does.
func TestSlabs(t *testing.T) {
	t.Run("exact", func(t *testing.T) { testSlabs(t, &slabs{}) })
	t.Run("classes", func(t *testing.T) { testSlabs(t, &slabs{classes: true}) })
}

func testSlabs(t *testing.T, s *slabs) {
	r := rand.New(rand.NewPCG(7, 8))
	type held struct {
		piece
		mark byte
	}
	var have []held
	check := func(h held) {
		for i, v := range h.b {
			if v != h.mark {
				t.Fatalf("seed 7,8: byte %d of %d is %d, want %d", i, len(h.b), v, h.mark)
			}
		}
	}
	for step := range 400 {
		if len(have) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(have))
			check(have[i])
			s.put(have[i].piece)
			have[i] = have[len(have)-1]
			have = have[:len(have)-1]
			continue
		}
		n := 1 + r.IntN(1<<r.IntN(21))
		if step%50 == 0 {
			n = slabBytes/4 + r.IntN(1000)
		}
		p, err := s.get(n)
		if err != nil {
			t.Fatal(err)
		}
		h := held{p, byte(step)}
		check(held{p, 0}) // fresh memory is zero
		for i := range p.b {
			p.b[i] = h.mark
		}
		have = append(have, h)
	}
	for _, h := range have {
		check(h)
		s.put(h.piece)
	}
	if s.cur != nil || len(s.spare) > 0 {
		t.Errorf("a slab is left: %+v, and spare pieces of %d sizes", s.cur, len(s.spare))
	}
}

// Pieces of one size take turns in the memory of those given back.
func TestSlabsReuse(t *testing.T) {
	var s slabs
	get := func(n int) piece {
		p, err := s.get(n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const n = 1<<20 - 100
	keep := get(n)
	a := get(n)
	a.b[0], a.b[n-1] = 1, 1
	at := &a.b[0]
	s.put(a)
	if b := get(n + 1); &b.b[0] != at || len(b.b) != n+1 || cap(b.b) != n+1 || b.b[0] != 0 || b.b[n-1] != 0 {
		t.Errorf("the next piece of that size is another one, or not clear: %d bytes", len(b.b))
	} else {
		s.put(b)
	}
	if c := get(n / 2); &c.b[0] == at {
		t.Error("a piece of another size has the same memory")
	} else {
		s.put(c)
	}
	used := s.cur.used
	for range 100 {
		s.put(get(n))
	}
	if s.cur.used != used {
		t.Errorf("%d bytes of the slab are used after a hundred pieces in turn, %d before", s.cur.used, used)
	}
	s.put(keep)
	if s.cur != nil || len(s.spare) > 0 {
		t.Errorf("after the last piece: %+v, %d sizes", s.cur, len(s.spare))
	}
}

// Sizes of a class take at most an eighth more than they need, and no size takes less.
func TestSlabClasses(t *testing.T) {
	s := slabs{classes: true}
	for n := 1; n <= slabBytes/4; n += 1 + n/97 {
		if got := s.rounded(n); got < n || got%256 != 0 || got > n+max(255, n/8) || s.rounded(got) != got {
			t.Errorf("%d bytes take %d", n, got)
		}
	}
}

// Buffers of a device that are streams come from slabs, clear, and can be freed twice
// and after Close.
func TestAllocShares(t *testing.T) {
	d, err := New(Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var l []tensor.Buffer
	for _, n := range []int{1, leastPiece - 1, leastPiece, leastPiece + 1, 1 << 20, slabBytes / 4, slabBytes/4 + 1} {
		b, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		h := b.Host()
		if len(h) != n || uintptr(unsafe.Pointer(&h[0]))%256 != 0 || h[0] != 0 || h[n-1] != 0 {
			t.Errorf("%d bytes: %d at %p", n, len(h), &h[0])
		}
		h[0], h[n-1] = 1, 1
		l = append(l, b)
	}
	if got := d.buffers.cur; got == nil || got.live != 4 {
		t.Errorf("slab of buffers %+v, want 4 pieces", got)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, b := range l {
			d.Free(b)
		}
	}
	if d.buffers.cur != nil || len(d.buffers.spare) > 0 {
		t.Errorf("left: %+v", d.buffers.cur)
	}
}
