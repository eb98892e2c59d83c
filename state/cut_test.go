package state_test

import (
	"bytes"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
	"samebit/tensor"
)

// A cut snapshot saves what a snapshot taken there saves, and writing behind it
// leaves the whole one alone.
func TestCut(t *testing.T) {
	dev := ref.New()
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	kv, err := state.NewKV(p, state.ID{}, state.KVShape{Layers: 1, Heads: 1, Dim: 3})
	if err != nil {
		t.Fatal(err)
	}
	st := &state.Stack{Parts: []state.State{kv}}
	step := func(x float32) {
		t.Helper()
		var seg backend.Seg
		if err := st.Begin(&seg, 1); err != nil {
			t.Fatal(err)
		}
		seg.Rows = 1
		row, err := tensor.FromF32([]float32{x, x + 1, x + 2}, 1, 1, 3)
		if err != nil {
			t.Fatal(err)
		}
		stream.PutKV(stream.Plan([]backend.Seg{seg}), 0, row, row)
		if err := stream.Sync(); err != nil {
			t.Fatal(err)
		}
		st.Commit(1)
	}
	saved := func(s state.Snapshot) []byte {
		t.Helper()
		var b bytes.Buffer
		err := s.Save(func(name string, x tensor.Tensor) error {
			raw, _ := x.Raw()
			b.WriteString(name)
			b.Write(raw)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	want := map[int][]byte{}
	for n := 1; n <= 140; n++ {
		step(float32(n))
		s, err := st.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		want[n] = saved(s)
		s.Release()
	}
	whole, err := st.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 63, 64, 65, 127, 128, 129, 140} {
		c, ok := state.Cut(whole, n)
		if !ok || c.Len() != n || !bytes.Equal(saved(c), want[n]) {
			t.Errorf("cut at %d: %v, other bits than a snapshot taken there", n, ok)
			continue
		}
		if err := st.Restore(c); err != nil {
			t.Fatal(err)
		}
		c.Release()
		step(-1)
	}
	if !bytes.Equal(saved(whole), want[140]) {
		t.Error("the whole snapshot was written to")
	}
	for _, n := range []int{0, -1, 141} {
		if _, ok := state.Cut(whole, n); ok {
			t.Errorf("a cut at %d of 140", n)
		}
	}
	// Together with a recurrent state there is no cut, and nothing is held.
	d, err := state.NewDelta(p, state.ID{}, state.DeltaShape{Layers: 1, Heads: 1, DK: 1, DV: 1, Taps: 2, Channels: 1})
	if err != nil {
		t.Fatal(err)
	}
	both := &state.Stack{Parts: []state.State{&state.KV{}, d}}
	both.Parts[0], err = kv.Fork()
	if err != nil {
		t.Fatal(err)
	}
	s, err := both.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := state.Cut(s, 1); ok {
		t.Error("a recurrent state was cut")
	}
	s.Release()
	both.Release()
	whole.Release()
	st.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
