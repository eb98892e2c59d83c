package state

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// ArchiveShape is the shape of the archives of all layers that have one.
type ArchiveShape struct {
	Layers, Heads, Codes, Scales, Dim int

	Lazy      bool // a time per slot
	Landmarks bool // a key, a value and a score per code
	Exact     int  // slots of the exact tier per head, 0 for none
	Reads     int  // query heads whose last read is kept, 0 for none
	From      int  // rows of a sequence before its first event
}

// parts lists what there is of a backend.ArchiveBank; at is its place there.
func (s ArchiveShape) parts() (parts []part, at []int) {
	l, a, m, d := s.Layers, s.Heads, s.Codes, s.Dim
	add := func(want bool, i int, name string, dim ...int) {
		if want {
			parts, at = append(parts, part{"archive." + name, dim}), append(at, i)
		}
	}
	add(true, 0, "numerator", l, a, m*s.Scales, d)
	add(true, 1, "denominator", l, a, m*s.Scales)
	add(s.Lazy, 2, "last_step", l, a, m)
	add(s.Landmarks, 3, "landmark_key", l, a, m, d)
	add(s.Landmarks, 4, "landmark_value", l, a, m, d)
	add(s.Landmarks, 5, "landmark_score", l, a, m)
	exact := s.Exact > 0
	add(exact, 6, "bank_key", l, a, s.Exact, d)
	add(exact, 7, "bank_value", l, a, s.Exact, d)
	add(exact, 8, "bank_score", l, a, s.Exact)
	add(exact, 9, "bank_age", l, a, s.Exact)
	add(exact, 10, "bank_next", l, a)
	add(s.Reads > 0, 11, "read_query", l, s.Reads, d)
	add(s.Reads > 0, 12, "read_value", l, s.Reads, d)
	add(s.Reads > 0, 13, "read_mark", l, 2)
	return parts, at
}

// Archive holds the archives of all layers: sums and slots of a fixed size
// (docs/numerics.md 16). A pass reads one bank and writes another; Truncate lands at
// the end, anywhere as long as nothing has been archived, or at no rows.
type Archive struct {
	banked
	shape ArchiveShape
	at    []int
	seg   backend.ArchiveSeg
}

// NewArchive returns an empty archive of the model id.
func NewArchive(pool *Pool, id ID, shape ArchiveShape) (*Archive, error) {
	if shape.Layers < 1 || shape.Heads < 1 || shape.Codes < 1 || shape.Scales < 1 || shape.Dim < 1 || shape.Exact < 0 || shape.Reads < 0 || shape.From < 0 {
		return nil, fmt.Errorf("state: archive of shape %+v", shape)
	}
	parts, at := shape.parts()
	return &Archive{banked: banked{pool: pool, id: id, layout: &layout{"archive", shape, parts}}, shape: shape, at: at}, nil
}

// Shape is what the archive was made with.
func (a *Archive) Shape() ArchiveShape { return a.shape }

func (a *Archive) Begin(seg *backend.Seg, rows int) error {
	in, out, err := a.begin(seg, rows)
	if err != nil {
		return err
	}
	if seg.Archive == nil {
		seg.Archive = &a.seg
	}
	seg.Archive.In, seg.Archive.Out = backend.ArchiveBank{}, backend.ArchiveBank{}
	to, from := seg.Archive.Out.Tensors(), seg.Archive.In.Tensors()
	for i, at := range a.at {
		*from[at], *to[at] = in[i].t, out[i].t
	}
	return nil
}

func (a *Archive) Truncate(n int) (int, error) {
	if n > 0 && n < a.n && a.n <= a.shape.From { // all banks so far are equal
		a.n = n
	}
	return a.banked.Truncate(n)
}

func (a *Archive) Fork() (State, error) {
	return &Archive{banked: a.fork(), shape: a.shape, at: a.at}, nil
}

// Elements are the numbers that each part of a bank holds, by name.
func (s ArchiveShape) Elements() map[string]int64 {
	m := map[string]int64{}
	parts, _ := s.parts()
	for _, p := range parts {
		n := int64(1)
		for _, d := range p.dim {
			n *= int64(d)
		}
		m[p.name[len("archive."):]] = n
	}
	return m
}

// Load refuses counts that no pass could have written: they are used as places.
func (a *Archive) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	events := max(0, rows-a.shape.From)
	limit := map[string]int{
		"archive.last_step": events, "archive.bank_age": events,
		"archive.bank_next": a.shape.Exact - 1, "archive.read_mark": max(rows, 1),
	}
	return a.banked.Load(rows, func(name string) (tensor.Tensor, error) {
		t, err := get(name)
		most, ok := limit[name]
		if err != nil || !ok {
			return t, err
		}
		v, _ := t.F32()
		for i, x := range v {
			if !(x >= 0 && x <= float32(most)) || x != float32(int(x)) {
				return t, fmt.Errorf("state: %s has %v at %d after %d rows: want a count to %d: %w", name, x, i, rows, most, ErrForeign)
			}
		}
		return t, nil
	})
}
