package cuda

import (
	"errors"
	"slices"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
)

// What does not fit the scratch memory is taken piece by piece: outputs of a weight
// by 128, value heads by those that share a key head. A device whose CTAs can have
// more shared memory keeps the gradient of larger states there.
func TestGradPieces(t *testing.T) {
	for _, shared := range []int{64 << 10, 200 << 10} {
		d, err := New(Config{Driver: emu.New(emu.Config{Shared: shared})})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		d.scratch = 1
		cases := slices.DeleteFunc(backendtest.GradCases(), func(c backendtest.Case) bool { return c.Op != "GatedDeltaGrad" && c.Op != "LinearGrad" })
		backendtest.RunCases(t, d, cases)
	}
}

// refusing is a driver that gives no kernel more shared memory.
type refusing struct{ driver.Driver }

type refusingContext struct{ driver.Context }

func (r refusing) Open(i int) (driver.Context, error) {
	c, err := r.Driver.Open(i)
	return refusingContext{c}, err
}

func (refusingContext) SetMaxShared(driver.Function, int) error { return driver.ErrKernel }

func TestAllow(t *testing.T) {
	d, err := New(Config{Driver: refusing{emu.New(emu.Config{})}})
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
	if !s.allow("graddelta", "deltaGrad", d.info.Shared) || s.err != nil {
		t.Errorf("%d bytes need no leave, and the stream says %v", d.info.Shared, s.err)
	}
	if s.allow("graddelta", "deltaGrad", d.info.Shared+4) || !errors.Is(s.err, driver.ErrKernel) {
		t.Errorf("the driver refuses, and the stream says %v", s.err)
	}
}
