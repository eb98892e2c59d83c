package opencl

import (
	"testing"

	"samebit/tensor/tensortest"
)

// Ranges in use never overlap, and when all are given back one free range is left.
func TestSlab(t *testing.T) {
	r := tensortest.NewRand(7, "slab")
	const size = 64 * align
	s := &slab{size: size, free: []span{{0, size}}}
	var live []span
	for step := range 20000 {
		if n := int64(r.Between(1, 9)) * align; r.Intn(2) == 0 {
			if off, ok := s.take(n); ok {
				for _, l := range live {
					if off < l.off+l.len && l.off < off+n {
						t.Fatalf("step %d: [%d, %d) is given out while [%d, %d) is in use", step, off, off+n, l.off, l.off+l.len)
					}
				}
				live = append(live, span{off, n})
			}
		} else if len(live) > 0 {
			i := r.Intn(len(live))
			s.give(live[i].off, live[i].len)
			live = append(live[:i], live[i+1:]...)
		}
		used := int64(0)
		for _, l := range live {
			used += l.len
		}
		for i, f := range s.free {
			used += f.len
			if i > 0 && s.free[i-1].off+s.free[i-1].len >= f.off {
				t.Fatalf("step %d: free ranges %v are not apart", step, s.free)
			}
		}
		if used != size {
			t.Fatalf("step %d: %d bytes are used or free, want %d", step, used, size)
		}
	}
	for _, l := range live {
		s.give(l.off, l.len)
	}
	if !s.empty() {
		t.Errorf("all is given back, and the free ranges are %v", s.free)
	}
}
