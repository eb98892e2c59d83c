package qcc

import (
	"bytes"
	"errors"
	"testing"

	"samebit/backend/ref"
	"samebit/checkpoint"
	"samebit/state"
	"samebit/tensor"
)

// fileLayer is a layer whose states have all kinds of parts.
func fileLayer(t testing.TB) *Layer {
	t.Helper()
	c := smallConfig()
	c.Sinks, c.Landmarks, c.RoPE, c.PositionInvariant = 1, LandmarksPersistent, &RoPE{Theta: 1e4}, true
	c.Exact = &Exact{Sets: 2, Ways: 2, MassMerge: true, FIFO: true, Threshold: -9}
	p, err := NewParams(c, 3)
	if err != nil {
		t.Fatal(err)
	}
	pr := &Projections{}
	for _, f := range pr.named(c)[:4] {
		*f.Values = make([]float32, f.Size())
		Uniform(*f.Values, 4, f.Name, 0.3)
	}
	l, err := New(ref.New(), c, pr, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// filled is a state after some rows.
func filled(t testing.TB, l *Layer, rows int) *State {
	t.Helper()
	st, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, rows*l.Config.Hidden)
	Uniform(x, 5, "rows", 1)
	if err := l.Chunk(t.Context(), make([]float32, len(x)), st, Block{Hidden: x}); err != nil {
		t.Fatal(err)
	}
	return st
}

func TestDamagedFiles(t *testing.T) {
	l := fileLayer(t)
	a, b := filled(t, l, 9), filled(t, l, 5)
	defer a.Release()
	defer b.Release()
	var file bytes.Buffer
	if err := a.Save(&file); err != nil {
		t.Fatal(err)
	}
	before, err := b.fork()
	if err != nil {
		t.Fatal(err)
	}
	defer before.Release()
	for n := 0; n < file.Len(); n += 1 + n/7 {
		if err := b.Read(bytes.NewReader(file.Bytes()[:n])); !errors.Is(err, checkpoint.ErrCorrupt) {
			t.Errorf("the first %d of %d bytes: %v, want ErrCorrupt", n, file.Len(), err)
		}
	}
	sameState(t, "after damaged files", b, before)

	other, err := NewState(l.pool, l.id, l.Config, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Release()
	if err := other.Read(bytes.NewReader(file.Bytes())); !errors.Is(err, ErrDigest) {
		t.Errorf("two layers read the state of one: %v", err)
	}
	wide := l.Config
	wide.Window++
	foreign, err := NewState(l.pool, l.id, wide, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Release()
	if err := foreign.Read(bytes.NewReader(file.Bytes())); !errors.Is(err, ErrDigest) {
		t.Errorf("another window: %v", err)
	}
	if err := b.Read(bytes.NewReader(file.Bytes())); err != nil {
		t.Fatal(err)
	}
	sameState(t, "read back", b, a)
	set, err := checkpoint.Parse("state", file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var list []checkpoint.Entry
	for _, name := range set.Names() {
		e, err := set.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		e.Data = bytes.Clone(e.Data)
		if name == "archive.bank_next" {
			copy(e.Data, tensor.AsBytes([]float32{4}))
		}
		list = append(list, e)
	}
	var damaged bytes.Buffer
	if err := checkpoint.Write(&damaged, list, set.Metadata()); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(&damaged); !errors.Is(err, state.ErrForeign) {
		t.Errorf("a place beyond the table: %v, want ErrForeign", err)
	}
	empty, err := l.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Release()
	file.Reset()
	if err := empty.Save(&file); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(&file); err != nil || b.Len() != 0 {
		t.Errorf("an empty state read back has %d rows: %v", b.Len(), err)
	}
}

func FuzzRead(f *testing.F) {
	l := fileLayer(f)
	a := filled(f, l, 9)
	var file bytes.Buffer
	if err := a.Save(&file); err != nil {
		f.Fatal(err)
	}
	a.Release()
	f.Add(file.Bytes())
	f.Add(bytes.Replace(file.Bytes(), []byte(`"seen":"9"`), []byte(`"seen":"8"`), 1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		st := filled(t, l, 3)
		defer st.Release()
		err := st.Read(bytes.NewReader(data))
		if err != nil && st.Len() != 3 {
			t.Fatalf("a refused file left %d rows", st.Len())
		}
		if err == nil { // whatever it holds, it can go on
			x := make([]float32, l.Config.Hidden)
			if err := l.Step(x, st, Block{Hidden: x}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
