package natsbus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"samebit/cache"
	"samebit/state"
)

// rows reads the key and the rows of an object without its state. The entry's ID, a
// digest of key and rows, proves them; errDamaged if it does not.
func (s *Store) rows(ctx context.Context, m *manifest, k cache.Key) (cache.Entry, error) {
	if err := s.plausible(ctx, m); err != nil {
		return cache.Entry{}, err
	}
	got := map[int64][]byte{} // parts, each asked for once
	rows, err := readRows(int64(m.Size), func(dst []byte, off int64) error {
		for len(dst) > 0 {
			i := off / m.chunk
			part, ok := got[i]
			if !ok {
				var err error
				if part, err = s.part(ctx, m, int(i)); err != nil {
					return err
				}
				got[i] = part
			}
			n := copy(dst, part[off-i*m.chunk:])
			dst, off = dst[n:], off+int64(n)
		}
		return nil
	})
	if err != nil {
		return cache.Entry{}, fmt.Errorf("object %s: %w", m.Name, err)
	}
	e := cache.NewEntry(k, rows)
	if e.ID != m.id {
		return e, fmt.Errorf("object %s: its rows or key are not those of its name: %w", m.Name, errDamaged)
	}
	return e, nil
}

// readRows reads what cache.WriteEntry wrote of an entry's rows: the head of a
// safetensors file of size bytes, and the tensors rows.tokens, with -1 for a
// continuous row, and rows.vecs. read fills dst with the bytes from off on, which
// are inside. errDamaged if the bytes make no sense, and the errors of read.
func readRows(size int64, read func(dst []byte, off int64) error) ([]state.Row, error) {
	bad := func(why string) error { return fmt.Errorf("%s: %w", why, errDamaged) }
	var length [8]byte
	if size < 8 {
		return nil, bad("too short")
	}
	if err := read(length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > uint64(min(size-8, 16<<20)) {
		return nil, bad("head longer than the object")
	}
	head := make([]byte, n)
	if err := read(head, 8); err != nil {
		return nil, err
	}
	var tensors map[string]json.RawMessage
	if json.Unmarshal(head, &tensors) != nil {
		return nil, bad("unreadable head")
	}
	// words reads 4-byte elements, none if there is no such tensor, and the length
	// of the last axis.
	words := func(name string) (w []uint32, width int64, err error) {
		raw, ok := tensors[name]
		if !ok {
			return nil, 0, nil
		}
		var t struct {
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		base := 8 + int64(n)
		err = json.Unmarshal(raw, &t)
		from, to := t.Offsets[0], t.Offsets[1]
		if err != nil || from < 0 || to < from || to > size-base || (to-from)%4 != 0 || len(t.Shape) == 0 {
			return nil, 0, bad("unreadable tensor " + name)
		}
		b := make([]byte, to-from)
		if err := read(b, base+from); err != nil {
			return nil, 0, err
		}
		w = make([]uint32, len(b)/4)
		for i := range w {
			w[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		return w, t.Shape[len(t.Shape)-1], nil
	}
	tokens, _, err := words("rows.tokens")
	vecs, width, err2 := words("rows.vecs")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	rows := make([]state.Row, len(tokens))
	for i, t := range tokens {
		rows[i].Token = int32(t)
		if rows[i].Token == -1 {
			if width <= 0 || int64(len(vecs)) < width {
				return nil, bad("fewer continuous rows than announced")
			}
			rows[i].Vec = make([]float32, width)
			for j, v := range vecs[:width] {
				rows[i].Vec[j] = math.Float32frombits(v)
			}
			vecs = vecs[width:]
		}
	}
	if len(rows) == 0 || len(vecs) > 0 {
		return nil, bad("no rows, or vectors of none")
	}
	return rows, nil
}
