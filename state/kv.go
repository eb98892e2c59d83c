package state

import (
	"fmt"
	"math"
	"strconv"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// KVShape is the shape of the keys and values of all attention layers.
type KVShape struct {
	Layers, Heads, Dim int

	// Type is how they are stored: F32, which is also the zero value, or BF16, which
	// rounds them once and takes half the memory (docs/numerics.md 9).
	Type tensor.DType
}

// Stored is Type with its zero value resolved.
func (s KVShape) Stored() tensor.DType {
	if s.Type == tensor.Invalid {
		return tensor.F32
	}
	return s.Type
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

// NewKV returns an empty state of the model id. It fails with backend.ErrUnsupported if
// the pool's device has no pages of the shape's type.
func NewKV(pool *Pool, id ID, shape KVShape) (*KV, error) {
	if shape.Layers < 1 || shape.Heads < 1 || shape.Dim < 1 {
		return nil, fmt.Errorf("state: keys and values of shape %+v", shape)
	}
	shape.Type = shape.Stored()
	if err := backend.CheckPageType(pool.dev, shape.Type); err != nil {
		return nil, fmt.Errorf("state: keys and values: %w", err)
	}
	return &KV{pool: pool, id: id, shape: shape}, nil
}

// Shape is what the state was made with.
func (k *KV) Shape() KVShape { return k.shape }

func (k *KV) page() (*block, error) {
	return k.pool.take(k.pool.limit, k.shape.Type, []int{2 * k.shape.Layers, k.shape.Heads, backend.Page, k.shape.Dim})
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
	if ok && s.shape.Type != k.shape.Type {
		return fmt.Errorf("state: restoring keys and values stored as %v into a state of %v: run the rows again: %w", s.shape.Type, k.shape.Type, ErrForeign)
	}
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
			err = wantType(kvName(i), t, k.shape.Type, 2*k.shape.Layers, k.shape.Heads, n, k.shape.Dim)
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

// wantShape checks a tensor of float32 that came from a file.
func wantShape(name string, t tensor.Tensor, dim ...int) error {
	return wantType(name, t, tensor.F32, dim...)
}

// wantType is wantShape for any type.
func wantType(name string, t tensor.Tensor, dt tensor.DType, dim ...int) error {
	ok := t.Valid() && t.DType() == dt && t.Dims() == len(dim) && t.Contiguous()
	for i := 0; ok && i < len(dim); i++ {
		ok = t.Dim(i) == dim[i]
	}
	if !ok {
		return fmt.Errorf("state: tensor %q is %v, this model wants %v%v: %w", name, t, dt, dim, ErrForeign)
	}
	return nil
}

// upload copies a host tensor into device memory, as a page or as it is.
func (p *Pool) upload(dst, src tensor.Tensor, page bool) error {
	raw, ok := src.Raw()
	if !ok {
		return fmt.Errorf("state: %v is not in this process's memory", src)
	}
	if half, ok := src.Halves(); ok { // a page takes rows of float32
		raw = widened(half)
	}
	return p.staged(dst.Shape(), src.Shape(), func(stage tensor.Tensor, s backend.Stream) {
		s.Write(stage, raw)
		if page {
			s.PutPage(dst, stage)
		} else {
			s.Copy(dst, stage)
		}
	})
}

// widened is bfloat16 as the bytes of float32.
func widened(half []uint16) []byte {
	wide := make([]uint32, len(half))
	for i, h := range half {
		wide[i] = uint32(h) << 16
	}
	return tensor.AsBytes(wide)
}

// narrowed is its reverse for values that are bfloat16.
func narrowed(v []float32) []uint16 {
	half := make([]uint16, len(v))
	for i, x := range v {
		half[i] = uint16(math.Float32bits(x) >> 16)
	}
	return half
}

// download is the reverse: it hands emit a host copy of device memory, of its type.
func (p *Pool) download(name string, src tensor.Tensor, rows int, emit func(string, tensor.Tensor) error) error {
	v, dim, err := p.fetch(src, rows)
	if err != nil {
		return err
	}
	raw := tensor.AsBytes(v)
	if src.DType() == tensor.BF16 {
		raw = tensor.AsBytes(narrowed(v))
	}
	t, err := tensor.New(tensor.Bytes(raw), 0, src.DType(), dim...)
	if err != nil {
		return err
	}
	return emit(name, t)
}

// fetch returns the values of device memory and their shape: of a page so many rows,
// of anything else, for which rows is 0, all.
func (p *Pool) fetch(src tensor.Tensor, rows int) (host []float32, dim []int, err error) {
	dim = src.Shape()
	if rows > 0 {
		dim[2] = rows
	}
	n := 1
	for _, d := range dim {
		n *= d
	}
	host = make([]float32, n)
	err = p.staged(src.Shape(), dim, func(stage tensor.Tensor, s backend.Stream) {
		if rows > 0 {
			s.GetPage(stage, src)
		} else {
			s.Copy(stage, src)
		}
		s.Read(tensor.AsBytes(host), stage)
	})
	return host, dim, err
}

// staged runs f with a contiguous device tensor of the shape dim, in memory for the
// shape whole, since pages filled to each number of rows would leave a buffer of a
// size of its own. It may go beyond the limit for a moment: a full pool is when
// states have to be saved.
func (p *Pool) staged(whole, dim []int, f func(tensor.Tensor, backend.Stream)) error {
	b, err := p.take(0, tensor.F32, whole)
	if err != nil {
		return err
	}
	defer b.release()
	stage, err := tensor.New(b.buf, 0, tensor.F32, dim...)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	return p.run(func(s backend.Stream) { f(stage, s) })
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
