package cpu

import (
	"math/rand/v2"
	"testing"
)

// Pieces do not overlap, keep what is written to them, and a slab goes when its
// last piece does.
func TestSlabs(t *testing.T) {
	var s slabs
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
	if s.cur != nil {
		t.Errorf("a slab with %d pieces is left", s.cur.live)
	}
}
