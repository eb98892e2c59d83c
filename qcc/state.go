package qcc

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strconv"

	"samebit/backend"
	"samebit/checkpoint"
	"samebit/state"
	"samebit/tensor"
)

// State is what one text leaves in layers of one configuration: a window and an
// archive or a gated-delta memory. It is a state.State, with its laws; its size does not grow once the
// window is full. It belongs to one goroutine.
type State struct {
	*state.Stack
	cfg    Config
	layers int
	id     state.ID
}

// NewState returns an empty state of so many layers in a pool's memory. id is the
// model's identity: states of one id take each other's snapshots and files.
func NewState(pool *state.Pool, id state.ID, c Config, layers int) (*State, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if pool == nil || layers < 1 {
		return nil, fmt.Errorf("qcc: state of %d layers in pool %v: %w", layers, pool, ErrConfig)
	}
	parts, err := c.parts(pool, id, layers)
	if err != nil {
		return nil, err
	}
	return &State{Stack: &state.Stack{Parts: parts}, cfg: c, layers: layers, id: id}, nil
}

// parts makes the states that layers of a configuration need.
func (c Config) parts(pool *state.Pool, id state.ID, layers int) ([]state.State, error) {
	w, err := state.NewWindow(pool, id, c.windowShape(layers))
	if err != nil || c.NoArchive {
		return []state.State{w}, err
	}
	var m state.State
	if c.Memory == MemoryDelta {
		m, err = state.NewDelta(pool, id, c.deltaShape(layers))
	} else {
		m, err = state.NewArchive(pool, id, c.archiveShape(layers))
	}
	return []state.State{w, m}, err
}

func (c Config) windowShape(layers int) state.WindowShape {
	s := state.WindowShape{Layers: layers, Heads: c.keyHeads(), Dim: c.Dim, Rows: c.Window, Sinks: c.Sinks, Addresses: c.addresses()}
	if c.NoArchive { // no row leaves the window
		s.Sinks, s.Addresses = 0, false
	}
	return s
}

func (c Config) archiveShape(layers int) state.ArchiveShape {
	s := state.ArchiveShape{Layers: layers, Heads: c.archiveHeads(), Codes: c.Codes, Scales: c.Scales, Dim: c.Dim,
		Lazy: c.LazyDecay, Landmarks: c.Landmarks != LandmarksNone, From: c.From()}
	if c.Reuses() {
		s.Reads = c.Heads
	}
	if c.Exact != nil {
		e := c.Exact.resolved()
		s.Exact = e.Sets * e.Ways
	}
	return s
}

// Begin is that of state.State. Without an archive it fails with ErrContextLimit
// beyond the window.
func (s *State) Begin(seg *backend.Seg, rows int) error {
	if n := s.Len() + rows; s.cfg.NoArchive && n > s.cfg.Window {
		return fmt.Errorf("qcc: %d rows in a window of %d without an archive: %w", n, s.cfg.Window, ErrContextLimit)
	}
	return s.Stack.Begin(seg, rows)
}

// Seen is the number of tokens consumed.
func (s *State) Seen() int { return s.Len() }

// Reset forgets everything.
func (s *State) Reset() {
	for _, p := range s.Parts {
		p.Truncate(0) // from 0 to Len it cannot fail
	}
}

// Fork returns a state with the same past. Memory is shared until one of them
// writes.
func (s *State) Fork() (state.State, error) { return s.fork() }

func (s *State) fork() (*State, error) {
	f, err := s.Stack.Fork()
	if err != nil {
		return nil, err
	}
	return &State{Stack: f.(*state.Stack), cfg: s.cfg, layers: s.layers, id: s.id}, nil
}

const stateFormat = "qcc-state/1"

// Save writes the state as a safetensors file. Reading it back continues with the
// same bits, reads that may be used again included.
func (s *State) Save(w io.Writer) error {
	snap, err := s.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Release()
	var list []checkpoint.Entry
	err = snap.Save(func(name string, t tensor.Tensor) error {
		b, _ := t.Raw()
		list = append(list, checkpoint.Entry{Name: name, Type: checkpoint.F32, Shape: t.Shape(), Data: slices.Clone(b)})
		return nil
	})
	if err != nil {
		return err
	}
	d := s.cfg.Digest()
	return checkpoint.Write(w, list, map[string]string{
		"format": stateFormat, "config": hex.EncodeToString(d[:]), "model": hex.EncodeToString(s.id[:]),
		"layers": strconv.Itoa(s.layers), "seen": strconv.Itoa(s.Len()),
	})
}

// Read replaces the state by one that Save wrote. It fails with ErrDigest for
// another configuration's or model's, with checkpoint.ErrCorrupt for a damaged one,
// and leaves the state as it was.
func (s *State) Read(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("qcc: reading a state: %w", err)
	}
	set, err := checkpoint.Parse("saved state", bytes.Clone(data))
	if err != nil {
		return err
	}
	defer set.Close()
	m, d := set.Metadata(), s.cfg.Digest()
	if m["format"] != stateFormat {
		return fmt.Errorf("qcc: the file is not a saved state (format %q, want %q): %w", m["format"], stateFormat, checkpoint.ErrCorrupt)
	}
	if c := hex.EncodeToString(d[:]); m["config"] != c || m["model"] != hex.EncodeToString(s.id[:]) || m["layers"] != strconv.Itoa(s.layers) {
		return fmt.Errorf("qcc: the state belongs to %q layers of configuration %.16s… of model %.16s…, this is %d of %.16s… of %v: %w",
			m["layers"], m["config"], m["model"], s.layers, c, s.id, ErrDigest)
	}
	seen, err := strconv.Atoi(m["seen"])
	if err != nil || seen < 0 || seen > 1<<24 || s.cfg.NoArchive && seen > s.cfg.Window {
		return fmt.Errorf("qcc: the state says it has seen %q tokens: %w", m["seen"], checkpoint.ErrCorrupt)
	}
	fresh, err := s.fork() // parts are loaded one after the other; the state changes when all are
	if err != nil {
		return err
	}
	defer fresh.Release()
	var held []checkpoint.Entry // views must outlive Load
	err = fresh.Load(seen, func(name string) (tensor.Tensor, error) {
		e, err := set.Tensor(name)
		if err != nil {
			return tensor.Tensor{}, fmt.Errorf("qcc: saved state: %w", err)
		}
		held = append(held, e)
		return e.View()
	})
	if err != nil {
		return err
	}
	if n := len(set.Names()); n != len(held) {
		return fmt.Errorf("qcc: the state holds %d tensors, this configuration has %d: %w", n, len(held), checkpoint.ErrCorrupt)
	}
	snap, err := fresh.Snapshot()
	if err != nil {
		return err
	}
	defer snap.Release()
	return s.Restore(snap)
}

// Account says what a state takes, in bytes and as published.
type Account struct {
	Window  int64 // pages, the parts of them that no row uses included
	Archive int64 // or what is in its place: both banks of a pass, and the zeros before the first one

	Parts     map[string]int64 // content in bytes by name: what each part would take by itself
	Published int64            // elements by the published formula
	FullKV    int64            // elements of an exact cache of the same length
}

// Account counts the state's memory.
func (s *State) Account() Account {
	a := Account{Parts: map[string]int64{}, Published: s.cfg.Elements(s.layers)}
	for _, p := range s.Parts {
		switch p.(type) {
		case *state.Window:
			a.Window = p.Bytes()
		case *state.Archive, *state.Delta:
			a.Archive = p.Bytes()
		}
	}
	c, n := s.cfg, s.Len()
	row := 4 * int64(s.layers) * int64(c.keyHeads()) * int64(c.Dim)
	held := int64(min(n, c.Window))
	a.FullKV = 2 * row / 4 * int64(n)
	a.Parts["local_keys"], a.Parts["local_values"] = row*held, row*held
	if c.addresses() {
		a.Parts["addresses"] = row * held
	}
	if c.Sinks > 0 {
		sinks := row * int64(min(n, c.Sinks))
		a.Parts["sink_keys"], a.Parts["sink_values"] = sinks, sinks
	}
	for name, n := range c.memory(s.layers) {
		a.Parts[name] = 4 * n
	}
	return a
}

// memory counts the numbers of each part of a bank, by name.
func (c Config) memory(layers int) map[string]int64 {
	switch {
	case c.NoArchive:
		return nil
	case c.Memory == MemoryDelta:
		return map[string]int64{"memory": int64(layers) * int64(c.Heads) * int64(c.Dim) * int64(c.Dim)}
	}
	return c.archiveShape(layers).Elements()
}

// Bytes is what a state of so many rows takes, by configuration alone: the window's
// pages and both banks of the archive, which a pool counts as well. It grows until the
// window is full and from then on only goes up and down by a page.
func (c Config) Bytes(layers, rows int) (window, archive int64) {
	if rows == 0 {
		return 0, 0
	}
	const page = backend.Page
	w := c.windowShape(layers)
	pages := func(n int) int { return (n + page - 1) / page }
	sinks := pages(w.Sinks)
	first := max(sinks, max(0, rows-w.Rows)/page) // that a row of the window lies in, behind the sinks'
	planes := 2 * layers
	if w.Addresses {
		planes = (3*layers + 1) &^ 1
	}
	window = 4 * int64(planes) * int64(w.Heads) * page * int64(w.Dim) * int64(pages(rows)-(first-sinks))
	for _, n := range c.memory(layers) {
		archive += 2 * 4 * n
	}
	return window, archive
}

// Elements is the published formula of a state's size: sums, landmarks, times and
// rings, each number counted once whatever its type; of a gated-delta memory its
// matrices. Unrotated keys, sinks and the
// exact tier are not in it.
func (c Config) Elements(layers int) int64 {
	a, h, m, s, d, w := int64(c.archiveHeads()), int64(c.keyHeads()), int64(c.Codes), int64(c.Scales), int64(c.Dim), int64(c.Window)
	archive := a * m * s * (d + 1)
	if c.Landmarks != LandmarksNone {
		archive += a * m * (2*d + 1)
	}
	if c.LazyDecay {
		archive += a * m * s
	}
	switch {
	case c.NoArchive:
		archive = 0
	case c.Memory == MemoryDelta:
		archive = int64(c.Heads) * d * d
	}
	rings := 2 * h * w * d
	if c.Lexical {
		rings *= 2
	}
	return int64(layers) * (archive + rings)
}
