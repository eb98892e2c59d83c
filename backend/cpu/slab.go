package cpu

import "sync"

// slabBytes is the size of the mappings that smaller weights share: whole huge
// pages, of which a matrix of a megabyte would get none.
const slabBytes = 32 << 20

// slabs hands out pieces of large mappings. A mapping is given back when all its
// pieces are.
type slabs struct {
	mu  sync.Mutex
	cur *slab
}

type slab struct {
	mem  *memory
	used int // bytes handed out
	live int // pieces not given back
}

// piece is a part of a slab, or a mapping of its own.
type piece struct {
	b    []byte
	slab *slab
	own  *memory
}

// get returns zeroed memory on a cache line boundary.
func (s *slabs) get(bytes int) (piece, error) {
	if bytes > slabBytes/4 {
		m, err := alloc(bytes)
		if err != nil {
			return piece{}, err
		}
		return piece{b: m.b, own: m}, nil
	}
	n := (bytes + 255) &^ 255
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cur == nil || slabBytes-s.cur.used < n {
		m, err := alloc(slabBytes)
		if err != nil {
			return piece{}, err
		}
		if old := s.cur; old != nil && old.live == 0 {
			old.mem.free()
		}
		s.cur = &slab{mem: m}
	}
	c := s.cur
	p := piece{b: c.mem.b[c.used : c.used+bytes : c.used+bytes], slab: c}
	c.used += n
	c.live++
	return p, nil
}

// put gives a piece back; nobody may be using it.
func (s *slabs) put(p piece) {
	if p.own != nil {
		p.own.free()
		return
	}
	if p.slab == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.slab.live--; p.slab.live == 0 {
		p.slab.mem.free()
		if s.cur == p.slab {
			s.cur = nil
		}
	}
}
