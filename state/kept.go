package state

import (
	"fmt"

	"samebit/backend"
	"samebit/tensor"
)

// Kept holds keys and values of chosen rows, other ones in every head, and of all
// rows that came after the choice. Kept rows lie in slots 0, 1, … of their head in
// the order of their positions, with the rotation of their position; later rows take
// the next slots at their true position (docs/numerics.md 7). It is a state of its
// own: exact under all laws, not equal to the full one. Before [KV.Keep] it is an
// ordinary KV.
type Kept struct {
	*KV
	rows  int // at the choice
	slots int // that were kept then
}

// NewKept returns an empty state of the model id.
func NewKept(pool *Pool, id ID, shape KVShape) (*Kept, error) {
	k, err := NewKV(pool, id, shape)
	if err != nil {
		return nil, err
	}
	return &Kept{KV: k}, nil
}

// gap is by how much positions exceed slots.
func (k *Kept) gap() int { return k.rows - k.slots }

func (k *Kept) Len() int { return k.n + k.gap() }

// Slots is the number of keys that the next row sees in every head.
func (k *Kept) Slots() int { return k.n }

func (k *Kept) Begin(seg *backend.Seg, rows int) error {
	if err := k.KV.Begin(seg, rows); err != nil {
		return err
	}
	seg.Pos += k.gap()
	return nil
}

// Truncate lands where it is told as far back as the choice; before that at no rows,
// from where a replay keeps everything.
func (k *Kept) Truncate(n int) (int, error) {
	if err := checkTruncate(n, k.Len()); err != nil {
		return k.Len(), err
	}
	if k.gap() > 0 && n < k.rows {
		k.Release()
		return 0, nil
	}
	_, err := k.KV.Truncate(n - k.gap())
	return k.Len(), err
}

func (k *Kept) Release() {
	k.KV.Release()
	k.rows, k.slots = 0, 0
}

func (k *Kept) Fork() (State, error) {
	f, err := k.KV.Fork()
	if err != nil {
		return nil, err
	}
	return &Kept{KV: f.(*KV), rows: k.rows, slots: k.slots}, nil
}

type keptSnapshot struct {
	Snapshot
	rows, slots int
}

func (s *keptSnapshot) Len() int { return s.Snapshot.Len() + s.rows - s.slots }

func (s *keptSnapshot) Retain() Snapshot {
	s.Snapshot.Retain()
	return s
}

func (s *keptSnapshot) Pieces(f func(any, int64)) { s.Snapshot.(*kvSnapshot).Pieces(f) }

const keptName = "kept"

func (s *keptSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	if s.Len() > 0 {
		t, err := tensor.FromF32([]float32{float32(s.rows), float32(s.slots)}, 2)
		if err != nil {
			return err
		}
		if err := emit(keptName, t); err != nil {
			return err
		}
	}
	return s.Snapshot.Save(emit)
}

func (k *Kept) Snapshot() (Snapshot, error) {
	s, err := k.KV.Snapshot()
	if err != nil {
		return nil, err
	}
	return &keptSnapshot{Snapshot: s, rows: k.rows, slots: k.slots}, nil
}

func (k *Kept) Restore(snap Snapshot) error {
	s, ok := snap.(*keptSnapshot)
	if !ok {
		return foreign(snap, "kept rows", k.id)
	}
	if err := k.KV.Restore(s.Snapshot); err != nil {
		return err
	}
	k.rows, k.slots = s.rows, s.slots
	return nil
}

func (k *Kept) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	var was, slots int
	if rows > 0 {
		t, err := get(keptName)
		if err == nil {
			err = wantShape(keptName, t, 2)
		}
		if err != nil {
			return err
		}
		v, _ := t.F32()
		was, slots = int(v[0]), int(v[1])
		if !(v[0] >= 0 && v[0] <= 1<<24) || !(v[1] >= 0 && v[1] <= v[0]) || was > rows || v[0] != float32(was) || v[1] != float32(slots) {
			return fmt.Errorf("state: %v of %v rows were kept of a state of %d: %w", v[1], v[0], rows, ErrForeign)
		}
	}
	if err := k.KV.Load(rows-(was-slots), get); err != nil {
		return err
	}
	k.rows, k.slots = was, slots
	return nil
}

// Keep returns a state with chosen rows of k: slots[layer][head] are rising slots,
// as many in every head of every layer. k stays as it is.
func (k *KV) Keep(slots [][][]int) (*Kept, error) {
	n, err := k.checkKeep(slots)
	if err != nil {
		return nil, err
	}
	held, err := k.host()
	if err != nil {
		return nil, err
	}
	return k.keep(held, slots, n, k.n)
}

// host are copies of the pages' rows as float32, [2·layers, heads, rows, D] each.
func (k *KV) host() ([]tensor.Tensor, error) {
	var held []tensor.Tensor
	for p, b := range k.pages[:pageCount(k.n)] {
		v, dim, err := k.pool.fetch(b.t, min(backend.Page, k.n-p*backend.Page))
		if err != nil {
			return nil, err
		}
		t, err := tensor.FromF32(v, dim...)
		if err != nil {
			return nil, err
		}
		held = append(held, t)
	}
	return held, nil
}

// keep makes a state of n of the held rows per head, chosen from a sequence of so
// many rows.
func (k *KV) keep(held []tensor.Tensor, slots [][][]int, n, rows int) (*Kept, error) {
	kept, err := NewKept(k.pool, k.id, k.shape)
	if err != nil {
		return nil, err
	}
	s := k.shape
	host := make([]float32, 2*s.Layers*s.Heads*backend.Page*s.Dim)
	t, err := tensor.FromF32(host, 2*s.Layers, s.Heads, backend.Page, s.Dim)
	if err != nil {
		return nil, err
	}
	for p := range pageCount(n) {
		clear(host)
		for l := range s.Layers {
			for h := range s.Heads {
				for i, j := range slots[l][h][p*backend.Page : min((p+1)*backend.Page, n)] {
					from := held[j/backend.Page]
					copy(t.Index(2*l).Vec(h, i), from.Index(2*l).Vec(h, j%backend.Page))
					copy(t.Index(2*l+1).Vec(h, i), from.Index(2*l+1).Vec(h, j%backend.Page))
				}
			}
		}
		pg, err := k.page()
		if err == nil {
			kept.pages = append(kept.pages, pg)
			err = k.pool.upload(pg.t, t, true)
		}
		if err != nil {
			kept.pages.cut(0)
			return nil, err
		}
	}
	kept.n, kept.slots, kept.rows = n, n, rows
	return kept, nil
}

// Keep is KV.Keep of what is there: slots count those that k has now.
func (k *Kept) Keep(slots [][][]int) (*Kept, error) {
	s, err := k.KV.Keep(slots)
	if err == nil {
		s.rows = k.Len()
	}
	return s, err
}

func (k *KV) checkKeep(slots [][][]int) (n int, err error) {
	if len(slots) != k.shape.Layers {
		return 0, fmt.Errorf("state: rows kept of %d layers, there are %d", len(slots), k.shape.Layers)
	}
	n = -1
	for l := range slots {
		if len(slots[l]) != k.shape.Heads {
			return 0, fmt.Errorf("state: rows kept of %d heads of layer %d, there are %d", len(slots[l]), l, k.shape.Heads)
		}
		for h, list := range slots[l] {
			if n < 0 {
				n = len(list)
			}
			if len(list) != n || n == 0 {
				return 0, fmt.Errorf("state: %d rows kept of head %d of layer %d, of others %d: want as many of each, and at least one", len(list), h, l, n)
			}
			for i, j := range list {
				if j < 0 || j >= k.n || i > 0 && j <= list[i-1] {
					return 0, fmt.Errorf("state: row %d is kept of head %d of layer %d: want them rising and within %d", j, h, l, k.n)
				}
			}
		}
	}
	return n, nil
}
