package cuda

import (
	"errors"
	"testing"

	"samebit/backend/cuda/emu"
)

// An op that reads what an earlier one left in scratch memory, or in a table, is
// found, although the memory is the same.
func TestScratchIsNew(t *testing.T) {
	d, err := New(Config{Driver: emu.New(emu.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	q, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	s := q.(*stream)
	const n = 64
	use := func(write bool) error {
		p, ok := s.tmp(scratchOut, 4*n)
		if !ok {
			t.Fatal(s.err)
		}
		if write {
			s.do(step{kind: fillZero, to: p, n: 4 * n}, nil)
		}
		m := matrix{p, n, 1}
		m.params(m.params(m.params(s.kernel()))).Int32(n)
		s.each("rows", "addRows", n, 1)
		return s.Sync()
	}
	for range 2 {
		if err := use(true); err != nil {
			t.Fatal(err)
		}
	}
	var fault *emu.Fault
	if err := use(false); !errors.As(err, &fault) || fault.Kind != emu.Uninitialised || fault.Kernel != "addRows" {
		t.Errorf("a read of old scratch memory gives %v", err)
	}
}
