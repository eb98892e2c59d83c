package state

import (
	"fmt"
	"strconv"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// KVShape is the shape of the keys and values of all attention layers.
type KVShape struct {
	Layers, Heads, Dim int
}

// maxSlots is what a pass's plan accepts.
const maxSlots = 1 << 30

// KV holds keys and values in pages of 64 slots, shared between states and
// snapshots until somebody writes.
type KV struct {
	pool  *Pool
	id    ID
	shape KVShape
	pages pages
	n     int             // rows committed; slot and position of the next row
	view  []tensor.Tensor // pages as a Seg wants them
}

// NewKV returns an empty state of the model id.
func NewKV(pool *Pool, id ID, shape KVShape) (*KV, error) {
	if shape.Layers < 1 || shape.Heads < 1 || shape.Dim < 1 {
		return nil, fmt.Errorf("state: keys and values of shape %+v", shape)
	}
	return &KV{pool: pool, id: id, shape: shape}, nil
}

func (k *KV) page() (*block, error) {
	return k.pool.get(2*k.shape.Layers, k.shape.Heads, backend.Page, k.shape.Dim)
}

// Model is the model that the state belongs to.
func (k *KV) Model() ID { return k.id }

func (k *KV) Len() int { return k.n }

func (k *KV) Bytes() int64 { return blockBytes(k.pages) }

func blockBytes(l []*block) int64 {
	var n int64
	for _, b := range l {
		n += b.bytes()
	}
	return n
}

func (k *KV) Begin(seg *backend.Seg, rows int) error {
	if rows < 1 || rows > maxSlots-k.n {
		return fmt.Errorf("state: Begin with %d rows after %d: want at least one, and 2^30 in all", rows, k.n)
	}
	need := pageCount(k.n + rows)
	if k.n%backend.Page != 0 {
		if err := k.pages.own(k.n / backend.Page); err != nil {
			return err
		}
	}
	if err := k.pages.grow(need, k.page); err != nil {
		k.trim()
		return err
	}
	k.view = k.view[:0]
	for _, pg := range k.pages[:need] {
		k.view = append(k.view, pg.t)
	}
	seg.KV, seg.Slot, seg.Pos = k.view, k.n, k.n
	return nil
}

func (k *KV) Commit(rows int) { k.n += rows }

// trim releases pages beyond the committed rows.
func (k *KV) trim() { k.pages.cut(pageCount(k.n)) }

func (k *KV) Truncate(n int) (int, error) {
	if err := checkTruncate(n, k.n); err != nil {
		return k.n, err
	}
	k.n = n
	k.trim()
	return n, nil
}

func (k *KV) Release() {
	k.n = 0
	k.trim()
}

// Snapshot shares all pages; the next Begin copies the tail page if it is partly
// filled.
func (k *KV) Snapshot() (Snapshot, error) {
	k.trim()
	s := &kvSnapshot{id: k.id, shape: k.shape, n: k.n, pages: k.pages.retain()}
	s.refs.Store(1)
	return s, nil
}

func (k *KV) Restore(snap Snapshot) error {
	s, ok := snap.(*kvSnapshot)
	if !ok || s.id != k.id || s.shape != k.shape {
		return foreign(snap, "keys and values", k.id)
	}
	if err := s.pages.in(k.pool); err != nil {
		return err
	}
	kept := s.pages.retain() // before releasing: the pages may be the same
	k.Release()
	k.pages = append(k.pages, kept...)
	k.n = s.n
	return nil
}

func (k *KV) Fork() (State, error) {
	return &KV{pool: k.pool, id: k.id, shape: k.shape, n: k.n, pages: k.pages[:pageCount(k.n)].retain()}, nil
}

func kvName(page int) string { return "kv." + strconv.Itoa(page) }

func (k *KV) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	if rows < 0 {
		return fmt.Errorf("state: loading %d rows", rows)
	}
	var got pages
	for i := 0; i*backend.Page < rows; i++ {
		n := min(backend.Page, rows-i*backend.Page)
		t, err := get(kvName(i))
		if err == nil {
			err = wantShape(kvName(i), t, 2*k.shape.Layers, k.shape.Heads, n, k.shape.Dim)
		}
		var pg *block
		if err == nil {
			pg, err = k.page()
		}
		if err != nil {
			got.cut(0)
			return err
		}
		got = append(got, pg)
		if err := k.pool.upload(pg.t, t, true); err != nil {
			got.cut(0)
			return err
		}
	}
	k.Release()
	k.pages, k.n = append(k.pages, got...), rows
	return nil
}

// wantShape checks a tensor that came from a file.
func wantShape(name string, t tensor.Tensor, dim ...int) error {
	ok := t.Valid() && t.DType() == tensor.F32 && t.Dims() == len(dim) && t.Contiguous()
	for i := 0; ok && i < len(dim); i++ {
		ok = t.Dim(i) == dim[i]
	}
	if !ok {
		return fmt.Errorf("state: tensor %q is %v, this model wants F32%v: %w", name, t, dim, ErrForeign)
	}
	return nil
}

// upload copies a host tensor into device memory, as a page or as it is.
func (p *Pool) upload(dst, src tensor.Tensor, page bool) error {
	raw, ok := src.Raw()
	if !ok {
		return fmt.Errorf("state: %v is not in this process's memory", src)
	}
	dim := src.Shape()
	return p.staged(dim, func(stage tensor.Tensor, s backend.Stream) {
		s.Write(stage, raw)
		if page {
			s.PutPage(dst, stage)
		} else {
			s.Copy(dst, stage)
		}
	})
}

// download is the reverse: it hands emit a host copy of device memory.
func (p *Pool) download(name string, src tensor.Tensor, rows int, emit func(string, tensor.Tensor) error) error {
	dim := src.Shape()
	page := rows > 0
	if page {
		dim[2] = rows
	}
	n := 1
	for _, d := range dim {
		n *= d
	}
	host := make([]float32, n)
	raw := tensor.AsBytes(host)
	err := p.staged(dim, func(stage tensor.Tensor, s backend.Stream) {
		if page {
			s.GetPage(stage, src)
		} else {
			s.Copy(stage, src)
		}
		s.Read(raw, stage)
	})
	if err != nil {
		return err
	}
	t, err := tensor.FromF32(host, dim...)
	if err != nil {
		return err
	}
	return emit(name, t)
}

// staged runs f with a contiguous device tensor of the given shape. It may go
// beyond the limit for a moment: a full pool is when states have to be saved.
func (p *Pool) staged(dim []int, f func(tensor.Tensor, backend.Stream)) error {
	b, err := p.take(0, dim)
	if err != nil {
		return err
	}
	defer b.release()
	return p.run(func(s backend.Stream) { f(b.t, s) })
}

type kvSnapshot struct {
	id    ID
	shape KVShape
	n     int
	pages pages
	refs  atomic.Int32
}

func (s *kvSnapshot) Model() ID    { return s.id }
func (s *kvSnapshot) Len() int     { return s.n }
func (s *kvSnapshot) Bytes() int64 { return blockBytes(s.pages) }

func (s *kvSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	for i, b := range s.pages {
		if err := b.pool.download(kvName(i), b.t, min(backend.Page, s.n-i*backend.Page), emit); err != nil {
			return err
		}
	}
	return nil
}

func (s *kvSnapshot) Retain() Snapshot {
	s.refs.Add(1)
	return s
}

func (s *kvSnapshot) Release() {
	n := s.refs.Add(-1)
	if invariants && n < 0 {
		panic("state: snapshot released too often")
	}
	if n == 0 {
		for _, b := range s.pages {
			b.release()
		}
	}
}
