package state_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
	"samebit/tensor"
)

// stingy refuses memory when told to, as a full machine does, and counts it.
type stingy struct {
	backend.Device
	left int // bytes
	live int // buffers
}

func (d *stingy) Alloc(n int) (tensor.Buffer, error) {
	if n > d.left {
		return nil, backend.ErrNoMemory
	}
	b, err := d.Device.Alloc(n)
	if err == nil {
		d.left -= n
		d.live++
	}
	return b, err
}

func (d *stingy) Free(b tensor.Buffer) {
	d.left += b.Len()
	d.live--
	d.Device.Free(b)
}

func TestPoolOnFullDevice(t *testing.T) {
	dev := &stingy{Device: ref.New(), left: 1 << 20}
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := state.NewKV(p, state.ID{}, kvShape)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Begin(new(backend.Seg), 1<<12); !errors.Is(err, backend.ErrNoMemory) {
		t.Fatalf("4096 rows on a full device: %v, want ErrNoMemory", err)
	}
	if kv.Len() != 0 || p.Bytes() != 0 {
		t.Errorf("the refused rows left %d rows and %d bytes", kv.Len(), p.Bytes())
	}
	// Pages of one shape that wait for reuse make way for another shape.
	other, err := state.NewKV(p, state.ID{}, state.KVShape{Layers: 8, Heads: 8, Dim: 16})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Begin(new(backend.Seg), 64); err != nil {
		t.Errorf("idle pages were not given back to a full device: %v", err)
	}
	other.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if dev.live != 0 || dev.left != 1<<20 {
		t.Errorf("%d buffers live after Close", dev.live)
	}
}

func TestPoolClosedInUse(t *testing.T) {
	dev := &stingy{Device: ref.New(), left: 1 << 20}
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := state.NewKV(p, state.ID{}, kvShape)
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Begin(new(backend.Seg), 5); err != nil {
		t.Fatal(err)
	}
	kv.Commit(5)
	if err := kv.Begin(new(backend.Seg), math.MaxInt); err == nil || kv.Len() != 5 {
		t.Errorf("Begin with more rows than there are numbers: %v", err)
	}
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "bytes in use") {
		t.Errorf("Close of a pool in use: %v", err)
	}
	kv.Release()
	if err := p.Close(); err != nil {
		t.Errorf("Close after the last release: %v", err)
	}
	if dev.live != 0 {
		t.Errorf("%d buffers live after Close", dev.live)
	}
}

func TestShapes(t *testing.T) {
	p, err := state.NewPool(ref.New(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, s := range []state.KVShape{{}, {Layers: 1, Heads: 1}, {Layers: -1, Heads: 1, Dim: 1}} {
		if _, err := state.NewKV(p, state.ID{}, s); err == nil {
			t.Errorf("keys and values of %+v: no error", s)
		}
	}
	for _, s := range []state.DeltaShape{{}, {Layers: 1, Heads: 1, DK: 1, DV: 1, Taps: 1, Channels: 1}, {Layers: 1, Heads: 1, DK: -1, DV: 1, Taps: 4, Channels: 1}} {
		if _, err := state.NewDelta(p, state.ID{}, s); err == nil {
			t.Errorf("recurrent state of %+v: no error", s)
		}
	}
}

func TestPart(t *testing.T) {
	kv, d := &state.KV{}, &state.Delta{}
	st := &state.Stack{Parts: []state.State{&state.Stack{Parts: []state.State{kv}}, d}}
	if got, ok := state.Part[*state.KV](st); !ok || got != kv {
		t.Error("Part does not find keys and values inside a stack of stacks")
	}
	if got, ok := state.Part[*state.Delta](st); !ok || got != d {
		t.Error("Part does not find the recurrent part")
	}
	if _, ok := state.Part[*state.KV](d); ok {
		t.Error("Part finds keys and values in a recurrent state")
	}
}

// TestIdleMemory keeps what waits for reuse within the limit too.
func TestIdleMemory(t *testing.T) {
	dev := &stingy{Device: ref.New(), left: 1 << 20}
	const limit = 300 << 10
	p, err := state.NewPool(dev, limit)
	if err != nil {
		t.Fatal(err)
	}
	for dim := 1; dim < 15; dim++ { // other sizes all the time
		kv, err := state.NewKV(p, state.ID{}, state.KVShape{Layers: 2, Heads: 2, Dim: 5 * dim})
		if err != nil {
			t.Fatal(err)
		}
		if err := kv.Begin(new(backend.Seg), 65); err != nil {
			t.Fatal(err)
		}
		if used := 1<<20 - dev.left; used > limit {
			t.Errorf("a pool limited to %d bytes holds %d", limit, used)
		}
		kv.Release()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// TestMoveToLess refuses to leave a part of a sequence behind.
func TestMoveToLess(t *testing.T) {
	p, err := state.NewPool(ref.New(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	id := state.ID{4}
	from, err := stack(newKV, newDelta)(p, id)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Release()
	if err := from.Begin(new(backend.Seg), 9); err != nil {
		t.Fatal(err)
	}
	from.Commit(9)
	s, err := from.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	for _, f := range []maker{stack(newKV), newKV, newDelta} {
		to, err := f(p, id)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Release()
		if err := state.Move(to, s); !errors.Is(err, state.ErrForeign) || to.Len() != 0 {
			t.Errorf("moving keys, values and a recurrent part to %T: %v, %d rows", to, err, to.Len())
		}
	}
}

func TestNothingGiven(t *testing.T) {
	if _, err := state.NewPool(nil, 0); err == nil {
		t.Error("a pool on no device: no error")
	}
	if err := state.Move(nil, nil); err == nil {
		t.Error("moving nothing to nowhere: no error")
	}
	state.Pieces(nil, func(any, int64) { t.Error("nothing has pieces") })
}

// Saving and loading pages filled to every number of rows leaves buffers of one size.
func TestStagedPagesAreOfOneSize(t *testing.T) {
	dev := &stingy{Device: ref.New(), left: 1 << 30}
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := state.NewKV(p, state.ID{}, kvShape)
	if err != nil {
		t.Fatal(err)
	}
	for range backend.Page {
		if err := kv.Begin(new(backend.Seg), 1); err != nil {
			t.Fatal(err)
		}
		kv.Commit(1)
		snap, err := kv.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if err := state.Move(kv, snap); err != nil {
			t.Fatal(err)
		}
		snap.Release()
	}
	kv.Release()
	if dev.live > 4 {
		t.Errorf("%d buffers wait for reuse", dev.live)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
