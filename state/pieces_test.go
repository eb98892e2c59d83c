package state_test

import (
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
)

// Pieces of many snapshots, each counted once, are what the pool counts.
func TestPiecesCountSharedMemoryOnce(t *testing.T) {
	dev := ref.New()
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	kv, err := state.NewKV(p, state.ID{}, state.KVShape{Layers: 1, Heads: 1, Dim: 2})
	if err != nil {
		t.Fatal(err)
	}
	d, err := state.NewDelta(p, state.ID{}, state.DeltaShape{Layers: 1, Heads: 1, DK: 2, DV: 2, Taps: 2, Channels: 3})
	if err != nil {
		t.Fatal(err)
	}
	st := &state.Stack{Parts: []state.State{kv, d}}
	pieces := map[any]int64{}
	var held []state.Snapshot
	for _, rows := range []int{10, 54, 1, 63, 30} { // at 10, 64, 65, 128, 158
		var seg backend.Seg
		if err := st.Begin(&seg, rows); err != nil {
			t.Fatal(err)
		}
		st.Commit(rows)
		s, err := st.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, s)
		var own int64
		state.Pieces(s, func(piece any, bytes int64) {
			if old, ok := pieces[piece]; ok && old != bytes {
				t.Errorf("a piece of %d and of %d bytes", old, bytes)
			}
			pieces[piece] = bytes
			own += bytes
		})
		if own != s.Bytes() {
			t.Errorf("%d rows: pieces of %d bytes, the snapshot refers to %d", s.Len(), own, s.Bytes())
		}
	}
	st.Release()
	var sum int64
	for _, n := range pieces {
		sum += n
	}
	if sum != p.Bytes() {
		t.Errorf("%d bytes in pieces, %d in the pool", sum, p.Bytes())
	}
	const pages = 1 + 1 + 1 + 1 + 1 // of 10, of 64, of 65 (then cloned), of 128, of 158
	if len(pieces) != pages+2*5 {
		t.Errorf("%d pieces, want %d pages and 5 banks of two", len(pieces), pages)
	}
	for _, s := range held {
		s.Release()
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
