package bench

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// blockRows are run for real to fill a sequence; what is deeper are copies of them.
const blockRows = 512

// filling is what a sequence remembers of some rows, in host memory, to be laid out
// as deep as one likes.
type filling struct {
	rows  int // a multiple of backend.Page, unless nothing deeper is asked
	parts map[string]tensor.Tensor
}

// newFilling keeps a copy of what s remembers.
func newFilling(s state.State) (*filling, error) {
	snap, err := s.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snap.Release()
	f := &filling{rows: s.Len(), parts: map[string]tensor.Tensor{}}
	err = snap.Save(func(name string, t tensor.Tensor) error {
		raw, ok := t.Raw()
		if !ok {
			return fmt.Errorf("bench: tensor %q of a state is not in this process's memory", name)
		}
		var err error
		f.parts[name], err = tensor.New(tensor.Bytes(bytes.Clone(raw)), 0, t.DType(), t.Shape()...)
		return err
	})
	return f, err
}

// pagePrefix begins the names of the pages of keys and values in a saved state.
const pagePrefix = "kv."

// load gives s rows rows: every page of keys and values has memory of its own and
// the content of one of the filling's pages in turn; what does not grow with the rows
// is the filling's. rows is the filling's or a multiple of a page.
func (f *filling) load(s state.State, rows int) error {
	pages := max(1, f.rows/backend.Page)
	return s.Load(rows, func(name string) (tensor.Tensor, error) {
		if n, ok := strings.CutPrefix(name, pagePrefix); ok && rows != f.rows {
			page, err := strconv.Atoi(n)
			if err != nil {
				return tensor.Tensor{}, fmt.Errorf("bench: page %q of a state: %w", name, err)
			}
			name = pagePrefix + strconv.Itoa(page%pages)
		}
		t, ok := f.parts[name]
		if !ok {
			return t, fmt.Errorf("bench: a state asks for tensor %q, which was not saved", name)
		}
		return t, nil
	})
}

// deepen returns what makes the runner depth rows deep before each repetition, and
// what frees its memory. Up to blockRows rows are run each time. More are laid out
// once and restored: whole pages as copies of the first ones, and the rows beyond
// the last page are run. A step then reads as much memory as after a prompt of so
// many tokens, each page at an address of its own, without minutes for the prompt.
func (m *measure) deepen(run *nn.Runner, depth int) (setup func(*nn.Runner) error, done func(), err error) {
	rows := m.rows(max(depth, 1), 2)
	if depth <= blockRows {
		return func(run *nn.Runner) error { return run.Append(m.ctx, rows) }, func() {}, nil
	}
	if m.block == nil {
		if err := run.Append(m.ctx, rows[:blockRows]); err != nil {
			return nil, nil, err
		}
		if m.block, err = newFilling(run.State()); err != nil {
			return nil, nil, err
		}
	}
	whole := depth / backend.Page * backend.Page
	st, err := m.dec.NewState(m.pool)
	if err != nil {
		return nil, nil, err
	}
	defer st.Release()
	if err := run.Reset(); err != nil { // its pages are wanted
		return nil, nil, err
	}
	if err := m.block.load(st, whole); err != nil {
		return nil, nil, err
	}
	snap, err := st.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	setup = func(run *nn.Runner) error {
		if err := run.Resume(rows[:whole], snap); err != nil || whole == depth {
			return err
		}
		return run.Append(m.ctx, rows[whole:])
	}
	return setup, snap.Release, nil
}
