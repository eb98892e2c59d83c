package natsbus

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"

	"samebit/cache"
	"samebit/state"
)

// rows reads the key and the rows of an object without its state: the head of the
// safetensors file, and the two tensors of rows. The entry's ID, a digest of key
// and rows, proves them; errDamaged if it does not.
func (s *Store) rows(ctx context.Context, m *manifest, k cache.Key) (cache.Entry, error) {
	bad := func(why string) (cache.Entry, error) {
		return cache.Entry{}, fmt.Errorf("object %s: %s: %w", m.Name, why, errDamaged)
	}
	if err := s.plausible(ctx, m); err != nil {
		return cache.Entry{}, err
	}
	size := int64(m.Size)
	got := map[int64][]byte{} // parts, each asked for once
	read := func(dst []byte, off int64) error {
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
	}
	var length [8]byte
	if size < 8 {
		return bad("too short")
	}
	if err := read(length[:], 0); err != nil {
		return cache.Entry{}, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > uint64(min(size-8, 16<<20)) {
		return bad("head longer than the object")
	}
	head := make([]byte, n)
	if err := read(head, 8); err != nil {
		return cache.Entry{}, err
	}
	var tensors map[string]json.RawMessage
	if json.Unmarshal(head, &tensors) != nil {
		return bad("unreadable head")
	}
	// tensor reads 4-byte elements; nil when there is no such tensor.
	tensor := func(name string) (words []uint32, shape []int64, err error) {
		raw, ok := tensors[name]
		if !ok {
			return nil, nil, nil
		}
		var t struct {
			Shape   []int64  `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}
		base := 8 + int64(n)
		if json.Unmarshal(raw, &t) != nil || t.Offsets[0] < 0 || t.Offsets[1] < t.Offsets[0] || t.Offsets[1] > size-base || (t.Offsets[1]-t.Offsets[0])%4 != 0 {
			_, err := bad("unreadable tensor " + name)
			return nil, nil, err
		}
		b := make([]byte, t.Offsets[1]-t.Offsets[0])
		if err := read(b, base+t.Offsets[0]); err != nil {
			return nil, nil, err
		}
		words = make([]uint32, len(b)/4)
		for i := range words {
			words[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		return words, t.Shape, nil
	}
	tokens, _, err := tensor("rows.tokens")
	if err != nil {
		return cache.Entry{}, err
	}
	vecs, shape, err := tensor("rows.vecs")
	if err != nil {
		return cache.Entry{}, err
	}
	width := 0
	if len(shape) == 2 && shape[1] > 0 && shape[1] <= int64(len(vecs)) {
		width = int(shape[1])
	}
	rows := make([]state.Row, len(tokens))
	for i, t := range tokens {
		rows[i].Token = int32(t)
		if rows[i].Token == -1 {
			if width == 0 || len(vecs) < width {
				return bad("fewer continuous rows than announced")
			}
			rows[i].Vec = make([]float32, width)
			for j, v := range vecs[:width] {
				rows[i].Vec[j] = math.Float32frombits(v)
			}
			vecs = vecs[width:]
		}
	}
	e := cache.NewEntry(k, rows)
	if e.ID != m.id || len(rows) == 0 {
		return bad("its rows or key are not those of its name")
	}
	return e, nil
}
