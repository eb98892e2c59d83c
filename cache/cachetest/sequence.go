package cachetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"testing"
	"unsafe"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/state"
	"samebit/tensor"
)

// Sequence is an appender with a small hybrid state and no model: keys, values and
// recurrent state are simple functions of the rows.
type Sequence struct {
	ID     state.ID
	st     state.State
	stream backend.Stream
	rows   []state.Row
}

const (
	layers, heads, dim = 1, 2, 3
	convBytes          = 4 * 5
)

// Bed makes sequences that share a pool.
type Bed struct {
	t    testing.TB
	pool *state.Pool
	dev  backend.Device
}

// NewBed makes a pool on the reference device that must be empty when the test
// ends.
func NewBed(t testing.TB) *Bed {
	t.Helper()
	dev := ref.New()
	p, err := state.NewPool(dev, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Bed{t, p, dev}
}

// Pool is where the sequences' states lie.
func (b *Bed) Pool() *state.Pool { return b.pool }

// Sequence returns an empty sequence of model id, released when the test ends.
// Sequences of different wide cannot take each other's states.
func (b *Bed) Sequence(id state.ID, wide int) *Sequence {
	b.t.Helper()
	s, err := b.sequence(id, wide)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(s.Release)
	return s
}

func (b *Bed) sequence(id state.ID, wide int) (*Sequence, error) {
	kv, err := state.NewKV(b.pool, id, state.KVShape{Layers: layers, Heads: heads, Dim: dim})
	if err != nil {
		return nil, err
	}
	d, err := state.NewDelta(b.pool, id, state.DeltaShape{Layers: 1, Heads: 1, DK: 2, DV: 3 + wide, Taps: 2, Channels: 5})
	if err != nil {
		return nil, err
	}
	stream, err := b.dev.NewStream()
	if err != nil {
		return nil, err
	}
	return &Sequence{ID: id, st: &state.Stack{Parts: []state.State{kv, d}}, stream: stream}, nil
}

// Release gives the state's memory back.
func (s *Sequence) Release() { s.st.Release() }

// Len is the number of rows.
func (s *Sequence) Len() int { return len(s.rows) }

// Reset empties the sequence.
func (s *Sequence) Reset() error {
	s.rows = nil
	_, err := s.st.Truncate(0)
	return err
}

// Resume makes it the sequence of snap.
func (s *Sequence) Resume(rows []state.Row, snap state.Snapshot) error {
	if err := s.st.Restore(snap); err != nil {
		return err
	}
	s.rows = append([]state.Row(nil), rows...)
	return nil
}

// Adopt makes it the sequence of saved tensors.
func (s *Sequence) Adopt(rows []state.Row, get func(string) (tensor.Tensor, error)) error {
	if err := s.st.Load(len(rows), get); err != nil {
		return err
	}
	s.rows = append([]state.Row(nil), rows...)
	return nil
}

// value is what a row writes: its number, its token or vector, and all before it.
func (s *Sequence) value(i int, r state.Row) float32 {
	h := uint32(i)*2654435761 + uint32(r.Token)*40503
	for _, v := range r.Vec {
		h = h*31 + math.Float32bits(v)
	}
	return float32(h%100003) - 50000
}

// Append runs rows one by one.
func (s *Sequence) Append(ctx context.Context, rows []state.Row) error {
	for _, r := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.step(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sequence) step(r state.Row) error {
	var seg backend.Seg
	if err := s.st.Begin(&seg, 1); err != nil {
		return err
	}
	seg.Rows = 1
	x := s.value(len(s.rows), r)
	kv := make([]float32, heads*dim)
	for i := range kv {
		kv[i] = x + float32(i)
	}
	t, err := tensor.FromF32(kv, 1, heads, dim)
	if err != nil {
		return err
	}
	p := s.stream.Plan([]backend.Seg{seg})
	for l := range layers {
		s.stream.PutKV(p, l, t, t)
	}
	// recurrent: new = rotated old + x
	n := 4 * seg.DeltaIn.Len()
	old := make([]byte, n)
	s.stream.Read(old, seg.DeltaIn)
	if err := s.stream.Sync(); err != nil {
		return err
	}
	for i := 0; i < n; i += 4 {
		v := math.Float32frombits(binary.NativeEndian.Uint32(old[i:])) + x
		binary.NativeEndian.PutUint32(old[i:], math.Float32bits(v))
	}
	s.stream.Write(seg.DeltaOut, old)
	s.stream.Write(seg.ConvOut, unsafe.Slice((*byte)(unsafe.Pointer(&[5]float32{x, 2, 3, 4, 5})), convBytes))
	if err := s.stream.Sync(); err != nil {
		return err
	}
	s.st.Commit(1)
	s.rows = append(s.rows, r)
	return nil
}

// Snapshot shares the state.
func (s *Sequence) Snapshot() (state.Snapshot, error) { return s.st.Snapshot() }

// Bytes is all that the state remembers.
func (s *Sequence) Bytes() ([]byte, error) {
	snap, err := s.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	var b bytes.Buffer
	err = snap.Save(func(name string, t tensor.Tensor) error {
		raw, _ := t.Raw()
		b.WriteString(name)
		b.Write(raw)
		return nil
	})
	return b.Bytes(), err
}
