package cpu

import (
	"math/bits"
	"slices"
	"sync"
)

// slabBytes is the size of the mappings that smaller weights and buffers share: whole
// huge pages, of which a matrix or a page of keys of a megabyte would get none.
const slabBytes = 32 << 20

// leastPiece is the size of buffers that share mappings; smaller ones are not read as
// streams.
const leastPiece = 64 << 10

// slabs hands out pieces of large mappings. What is given back is handed out again for
// the same rounded size; a mapping is given back when all its pieces are.
type slabs struct {
	classes bool // round sizes to eighths of powers of two, so that others of about the size can have what is given back

	mu    sync.Mutex
	cur   *slab
	spare map[int][]piece // by size
}

type slab struct {
	mem  *memory
	used int // bytes handed out
	live int // pieces not given back
}

// piece is a part of a slab, or a mapping of its own.
type piece struct {
	b    []byte
	all  []byte // b and what rounds it up, of a slab
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
	n := s.rounded(bytes)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.spare[n]; len(l) > 0 {
		p := l[len(l)-1]
		l[len(l)-1] = piece{}
		s.spare[n] = l[:len(l)-1]
		p.slab.live++
		p.b = p.all[:bytes:bytes]
		clear(p.b)
		return p, nil
	}
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
	p := piece{b: c.mem.b[c.used : c.used+bytes : c.used+bytes], all: c.mem.b[c.used : c.used+n : c.used+n], slab: c}
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
	if p.slab.live--; p.slab.live > 0 {
		if s.spare == nil {
			s.spare = map[int][]piece{}
		}
		s.spare[len(p.all)] = append(s.spare[len(p.all)], p)
		return
	}
	for n, l := range s.spare {
		if l = slices.DeleteFunc(l, func(q piece) bool { return q.slab == p.slab }); len(l) == 0 {
			delete(s.spare, n)
		} else {
			s.spare[n] = l
		}
	}
	p.slab.mem.free()
	if s.cur == p.slab {
		s.cur = nil
	}
}

// rounded is what a piece takes of its slab.
func (s *slabs) rounded(bytes int) int {
	step := 256
	if s.classes {
		step = max(step, 1<<bits.Len(uint(bytes-1))>>4)
	}
	return (bytes + step - 1) / step * step
}
