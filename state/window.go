package state

import (
	"fmt"
	"sync/atomic"

	"samebit/backend"
	"samebit/tensor"
)

// WindowShape is the shape of the windows of all layers that have one.
type WindowShape struct {
	Layers, Heads, Dim int

	Rows      int  // that the window keeps, the last one included
	Sinks     int  // first rows that are kept for good
	Addresses bool // a row has an address besides its key
}

func (s WindowShape) planes() int {
	if s.Addresses {
		return (3*s.Layers + 1) &^ 1
	}
	return 2 * s.Layers
}

func (s WindowShape) sinkPages() int { return pageCount(s.Sinks) }

// first is the first page behind the sinks' that a state of n rows keeps: the one of
// the row that leaves the window next.
func (s WindowShape) first(n int) int {
	return max(s.sinkPages(), max(0, n-s.Rows)/backend.Page)
}

// Window holds the keys and values of the last rows, and of the first ones if they
// are sinks, in pages of 64 slots as KV does. Pages that no later row sees are let
// go, so that it does not grow. Truncate lands where a whole window is left.
type Window struct {
	pool  *Pool
	id    ID
	shape WindowShape
	pages pages // of the sinks, then of the window
	skip  int   // pages left out between them
	n     int
	view  []tensor.Tensor
	seg   backend.ArchiveSeg
}

// NewWindow returns an empty window of the model id.
func NewWindow(pool *Pool, id ID, shape WindowShape) (*Window, error) {
	if shape.Layers < 1 || shape.Heads < 1 || shape.Dim < 1 || shape.Rows < 1 || shape.Rows > maxSlots || shape.Sinks < 0 || shape.Sinks > shape.Rows {
		return nil, fmt.Errorf("state: window of shape %+v", shape)
	}
	return &Window{pool: pool, id: id, shape: shape}, nil
}

// Shape is what the window was made with.
func (w *Window) Shape() WindowShape { return w.shape }

func (w *Window) page() (*block, error) {
	s := w.shape
	b, err := w.pool.get(s.planes(), s.Heads, backend.Page, s.Dim)
	if err != nil || !s.Addresses || s.Layers%2 == 0 {
		return b, err
	}
	// Nobody writes the last plane, but it is saved; where it lies is the device's affair.
	if err := w.pool.run(func(st backend.Stream) { st.Write(b.t, make([]byte, b.bytes())) }); err != nil {
		b.release()
		return nil, err
	}
	return b, nil
}

// Model is the model that the state belongs to.
func (w *Window) Model() ID { return w.id }

func (w *Window) Len() int     { return w.n }
func (w *Window) Bytes() int64 { return blockBytes(w.pages) }

func (w *Window) Begin(seg *backend.Seg, rows int) error {
	if rows < 1 || rows > maxSlots-w.n {
		return fmt.Errorf("state: Begin with %d rows after %d: want at least one, and 2^30 in all", rows, w.n)
	}
	if w.n%backend.Page != 0 {
		if err := w.pages.own(w.n/backend.Page - w.skip); err != nil {
			return err
		}
	}
	need := pageCount(w.n+rows) - w.skip
	if err := w.pages.grow(need, w.page); err != nil {
		w.trim()
		return err
	}
	w.view = w.view[:0]
	for _, pg := range w.pages[:need] {
		w.view = append(w.view, pg.t)
	}
	seg.Slot, seg.Pos = w.n, w.n
	if seg.Archive == nil {
		seg.Archive = &w.seg
	}
	a := seg.Archive
	a.Window, a.Slot, a.Raw = w.view, w.n-w.skip*backend.Page, 0
	if w.shape.Addresses {
		a.Raw = 2 * w.shape.Layers
	}
	return nil
}

func (w *Window) Commit(rows int) {
	w.n += rows
	sinks := w.shape.sinkPages()
	drop := w.shape.first(w.n) - sinks - w.skip
	if drop <= 0 || len(w.pages) <= sinks {
		return
	}
	for _, b := range w.pages[sinks : sinks+drop] {
		b.release()
	}
	k := copy(w.pages[sinks:], w.pages[sinks+drop:])
	clear(w.pages[sinks+k:])
	w.pages = w.pages[:sinks+k]
	w.skip += drop
}

// trim releases pages beyond the committed rows.
func (w *Window) trim() { w.pages.cut(pageCount(w.n) - w.skip) }

func (w *Window) Truncate(n int) (int, error) {
	if err := checkTruncate(n, w.n); err != nil {
		return w.n, err
	}
	sinks := w.shape.sinkPages()
	if w.skip > 0 && n < w.n && w.shape.first(n) < sinks+w.skip { // rows of the window are gone
		n = min(n, sinks*backend.Page)
		w.pages.cut(sinks)
		w.skip = 0
	}
	w.n = n
	w.trim()
	return n, nil
}

func (w *Window) Release() {
	w.n, w.skip = 0, 0
	w.trim()
}

func (w *Window) Snapshot() (Snapshot, error) {
	w.trim()
	s := &windowSnapshot{id: w.id, shape: w.shape, n: w.n, skip: w.skip, pages: w.pages.retain()}
	s.refs.Store(1)
	return s, nil
}

func (w *Window) Restore(snap Snapshot) error {
	s, ok := snap.(*windowSnapshot)
	if !ok || s.id != w.id || s.shape != w.shape {
		return foreign(snap, "a window", w.id)
	}
	if err := s.pages.in(w.pool); err != nil {
		return err
	}
	kept := s.pages.retain() // before releasing: the pages may be the same
	w.Release()
	w.pages = append(w.pages, kept...)
	w.n, w.skip = s.n, s.skip
	return nil
}

func (w *Window) Fork() (State, error) {
	return &Window{pool: w.pool, id: w.id, shape: w.shape, n: w.n, skip: w.skip, pages: w.pages[:pageCount(w.n)-w.skip].retain()}, nil
}

// name is that of a saved page. It says of which window, since the pages alone do
// not.
func (s WindowShape) name(page int) string {
	return fmt.Sprintf("window.%d.%d.%d", s.Rows, s.Sinks, page)
}

// held calls f with the pages that a state of n rows keeps and the rows in them.
func (s WindowShape) held(n int, f func(i, page, rows int) error) error {
	i := 0
	for p := range pageCount(n) {
		if p >= s.sinkPages() && p < s.first(n) {
			continue
		}
		if err := f(i, p, min(backend.Page, n-p*backend.Page)); err != nil {
			return err
		}
		i++
	}
	return nil
}

func (w *Window) Load(rows int, get func(string) (tensor.Tensor, error)) error {
	if rows < 0 || rows > maxSlots {
		return fmt.Errorf("state: loading %d rows", rows)
	}
	s := w.shape
	var got pages
	err := s.held(rows, func(_, page, n int) error {
		t, err := get(s.name(page))
		if err == nil {
			err = wantShape(s.name(page), t, s.planes(), s.Heads, n, s.Dim)
		}
		if err != nil {
			return err
		}
		pg, err := w.page()
		if err != nil {
			return err
		}
		got = append(got, pg)
		return w.pool.upload(pg.t, t, true)
	})
	if err != nil {
		got.cut(0)
		return err
	}
	w.Release()
	w.pages, w.n = append(w.pages, got...), rows
	w.skip = pageCount(rows) - len(got)
	return nil
}

type windowSnapshot struct {
	id      ID
	shape   WindowShape
	n, skip int
	pages   pages
	refs    atomic.Int32
}

func (s *windowSnapshot) Model() ID    { return s.id }
func (s *windowSnapshot) Len() int     { return s.n }
func (s *windowSnapshot) Bytes() int64 { return blockBytes(s.pages) }

func (s *windowSnapshot) Save(emit func(string, tensor.Tensor) error) error {
	return s.shape.held(s.n, func(i, page, rows int) error {
		b := s.pages[i]
		return b.pool.download(s.shape.name(page), b.t, rows, emit)
	})
}

func (s *windowSnapshot) Pieces(f func(any, int64)) {
	for _, b := range s.pages {
		f(b, b.bytes())
	}
}

func (s *windowSnapshot) Retain() Snapshot {
	s.refs.Add(1)
	return s
}

func (s *windowSnapshot) Release() {
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
