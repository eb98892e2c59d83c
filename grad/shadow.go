package grad

import (
	"fmt"
	"slices"
	"unsafe"

	"samebit/tensor"
)

// shadow holds the gradients of a buffer. What ops write, and what they read without
// having written it, are spans; a span is cleared when its gradient is first asked
// for, shortly before something is added to it, while it fits a cache.
type shadow struct {
	buf   tensor.Buffer
	spans []span // of the pass under way, in order, apart
}

// span is bytes [off, end) of a buffer.
type span struct {
	off, end int
	gaps     bool // written by tensors with gaps between their rows
	cleared  bool
}

// place is where a tensor begins.
type place struct {
	buf any
	off int
}

func placeOf(t tensor.Tensor) place {
	b, off := t.Buffer()
	return place{identity(b), off}
}

// identity is a key for a buffer: its first byte if it lies in this process, where a
// Buffer may be a slice; else the buffer itself, a handle of its device.
func identity(b tensor.Buffer) any {
	if b == nil {
		return nil
	}
	if h := b.Host(); len(h) > 0 {
		return unsafe.SliceData(h)
	}
	return b
}

// extent is the number of bytes from the first element of x to its last, gaps
// included.
func extent(x tensor.Tensor) int {
	if x.Len() == 0 {
		return 0
	}
	n := 1
	for i := range x.Dims() {
		n += (x.Dim(i) - 1) * x.Stride(i)
	}
	return 4 * n
}

// shadow is that of x's buffer and where x begins in it; nil after a failure.
func (t *Tape) shadow(x tensor.Tensor) (*shadow, int) {
	b, off := x.Buffer()
	if b == nil || x.DType() != tensor.F32 {
		t.fail(fmt.Errorf("grad: %v has no gradient: want f32 values in memory", x))
		return nil, 0
	}
	s := t.shadows[identity(b)]
	if s == nil {
		buf, err := t.dev.Alloc(b.Len())
		if err != nil {
			t.fail(fmt.Errorf("grad: gradients of %d bytes: %w", b.Len(), err))
			return nil, 0
		}
		s = &shadow{buf: buf}
		t.shadows[identity(b)] = s
	}
	return s, off
}

// from is the index of the first span that ends after off.
func (s *shadow) from(off int) int {
	i, _ := slices.BinarySearchFunc(s.spans, off, func(p span, off int) int {
		if p.end <= off {
			return -1
		}
		return 1
	})
	return i
}

// write notes that an op writes bytes [off, end), or with gaps some of them; it
// reports false if they were written before. Tensors with gaps may share spans: what
// one leaves out another may write.
func (s *shadow) write(off, end int, gaps bool) bool {
	i := s.from(off)
	for ; i < len(s.spans) && s.spans[i].off < end; i++ {
		if !gaps || !s.spans[i].gaps {
			return false
		}
		if s.spans[i].off > off {
			s.spans = slices.Insert(s.spans, i, span{off: off, end: s.spans[i].off, gaps: true})
		}
		off = s.spans[i].end
	}
	if off < end {
		s.spans = slices.Insert(s.spans, i, span{off: off, end: end, gaps: gaps})
	}
	return true
}

// first reports whether bytes [off, end) are a span whose gradient was not asked for
// yet; from now on it was.
func (s *shadow) first(off, end int) bool {
	i := s.from(off)
	if i == len(s.spans) || s.spans[i] != (span{off: off, end: end}) {
		return false
	}
	s.spans[i].cleared = true
	return true
}

// clear sees to it that gradients of bytes [off, end) began at +0.
func (s *shadow) clear(t *Tape, off, end int) error {
	for i := s.from(off); off < end; i++ {
		switch {
		case i == len(s.spans) || s.spans[i].off >= end: // nobody's until here
			s.spans = slices.Insert(s.spans, i, span{off: off, end: end})
		case s.spans[i].off > off:
			s.spans = slices.Insert(s.spans, i, span{off: off, end: s.spans[i].off})
		}
		p := &s.spans[i]
		if !p.cleared {
			all, err := tensor.New(s.buf, p.off, tensor.F32, (p.end-p.off)/4)
			if err != nil {
				return err
			}
			t.g.Zero(all)
			p.cleared = true
		}
		off = p.end
	}
	return nil
}
