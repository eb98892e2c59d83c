package nn

import (
	"context"
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/state"
)

// RunnerConfig bounds a Runner. The zero value runs prompts in chunks of 512 rows.
type RunnerConfig struct {
	ChunkRows int // rows per pass; 0 means 512, or half a pass of the Batcher
	// Batcher, if set, runs the rows together with those of other runners. Probes
	// and traces need a runner of its own passes, without one.
	Batcher *Batcher
	// Progress, if set, is called between the chunks of a prompt.
	Progress func(done, total int)
}

// Runner is one sequence: a state, the rows that made it, and the logits of the
// last one. It belongs to one goroutine.
type Runner struct {
	dec   *Decoder
	pool  *state.Pool
	c     *Ctx
	cfg   RunnerConfig
	rows  []state.Row
	seq   [1]Seq
	one   [1]state.Row
	job   *job
	fresh bool // logits belong to the last row

	closed bool
}

// NewRunner returns an empty sequence that runs on stream s with states of pool p.
func (d *Decoder) NewRunner(s backend.Stream, p *state.Pool, cfg RunnerConfig) (*Runner, error) {
	if cfg.ChunkRows < 0 {
		return nil, fmt.Errorf("nn: chunks of %d rows: want a positive number, or 0 for 512", cfg.ChunkRows)
	}
	// Pages of different devices are laid out differently.
	if on, ok := s.(interface{ Device() backend.Device }); ok && p != nil && on.Device().Name() != p.Device().Name() {
		return nil, fmt.Errorf("nn: runner with a stream of %s and a pool of %s: take both from one device", on.Device().Name(), p.Device().Name())
	}
	if b := cfg.Batcher; b != nil {
		if b.dec != d {
			return nil, fmt.Errorf("nn: runner with the batcher of another decoder: make one with this decoder's NewBatcher")
		}
		if cfg.ChunkRows == 0 {
			cfg.ChunkRows = max(1, b.rows/2)
		}
		cfg.ChunkRows = min(cfg.ChunkRows, b.rows)
	}
	if cfg.ChunkRows == 0 {
		cfg.ChunkRows = 512
	}
	if d.NewState == nil || p == nil || s == nil && cfg.Batcher == nil {
		return nil, fmt.Errorf("nn: a runner needs a loaded decoder, a pool, and a stream or a Batcher: one is missing")
	}
	st, err := d.NewState(p)
	if err != nil {
		return nil, err
	}
	r := &Runner{dec: d, pool: p, c: NewCtx(s, p.Device()), cfg: cfg}
	r.seq[0].State, r.seq[0].NeedHidden = st, true
	return r, nil
}

var errRunnerClosed = fmt.Errorf("nn: runner: %w", backend.ErrClosed)

// usable refuses a runner whose memory is gone.
func (r *Runner) usable() error {
	if r.closed || r.dec == nil {
		return errRunnerClosed
	}
	return nil
}

// Ctx is the context of the runner's passes, where a probe may be set.
func (r *Runner) Ctx() *Ctx { return r.c }

// State is what the sequence remembers; appending to it behind the runner's back
// makes its history wrong.
func (r *Runner) State() state.State { return r.seq[0].State }

// Append runs rows in chunks and leaves the logits of the last one. When it fails
// or is cancelled, the rows of finished chunks stay: History tells.
func (r *Runner) Append(ctx context.Context, rows []state.Row) error {
	if err := r.fits(len(rows)); err != nil {
		return err
	}
	return r.chunks(ctx, rows, WantLast)
}

// fits refuses more rows than the model's context has.
func (r *Runner) fits(rows int) error {
	if err := r.usable(); err != nil {
		return err
	}
	if d := r.dec; d.Context > 0 && r.Len()+rows > d.Context {
		return fmt.Errorf("nn: %d rows exceed the model's context of %d: shorten the prompt or ask for fewer tokens", r.Len()+rows, d.Context)
	}
	return nil
}

// chunks runs rows in passes; last is what is wanted of the last one.
func (r *Runner) chunks(ctx context.Context, rows []state.Row, last Want) error {
	for done := 0; done < len(rows); {
		n := r.next(len(rows) - done)
		want := WantNone
		if done+n == len(rows) {
			want = last
		}
		if err := r.pass(ctx, rows[done:done+n], want); err != nil {
			return err
		}
		done += n
		if r.cfg.Progress != nil && len(rows) > r.cfg.ChunkRows {
			r.cfg.Progress(done, len(rows))
		}
	}
	return nil
}

// next is the number of the rows that are left that the next pass takes.
func (r *Runner) next(left int) int {
	return state.Room(r.State(), min(r.cfg.ChunkRows, left))
}

func (r *Runner) pass(ctx context.Context, rows []state.Row, want Want) error {
	if err := r.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s := &r.seq[0]
	s.In, s.Want = rows, want
	r.fresh = false
	n := len(r.rows)
	for _, row := range rows {
		row.Vec = slices.Clone(row.Vec) // the caller may reuse it, and the pass does if it is Hidden
		r.rows = append(r.rows, row)
	}
	if err := r.forward(ctx); err != nil {
		clear(r.rows[n:])
		r.rows = r.rows[:n]
		return err
	}
	r.fresh = want != WantNone
	return nil
}

// forward runs the sequence's rows, alone or in a shared pass.
func (r *Runner) forward(ctx context.Context) error {
	if r.cfg.Batcher == nil {
		return r.dec.Forward(ctx, r.c, r.seq[:])
	}
	if r.job == nil {
		r.job = &job{seq: &r.seq[0], finished: make(chan struct{}, 1)}
	}
	r.job.err = nil
	return r.cfg.Batcher.forward(ctx, r.job)
}

// Step is Append of one token. It allocates nothing but history and pages.
func (r *Runner) Step(ctx context.Context, token int32) error {
	r.one[0] = state.Row{Token: token}
	return r.pass(ctx, r.one[:], WantLast)
}

// AppendAll is Append that calls each with the logits of every row, in order. The
// slice is valid during the call only.
func (r *Runner) AppendAll(ctx context.Context, rows []state.Row, each func(row int, logits []float32)) error {
	if err := r.usable(); err != nil {
		return err
	}
	if r.dec.Head == nil {
		return fmt.Errorf("nn: logits of a lower half, which has no head: use AppendHidden")
	}
	for done := 0; done < len(rows); {
		n := r.next(len(rows) - done)
		if err := r.pass(ctx, rows[done:done+n], WantAll); err != nil {
			return err
		}
		s, v := &r.seq[0], r.dec.Vocab
		for i := range n {
			each(done+i, s.Logits[i*v:(i+1)*v])
		}
		done += n
		// leave what Append leaves
		copy(s.Logits, s.Logits[(n-1)*v:n*v])
		copy(s.Hidden, s.Hidden[(n-1)*r.dec.Hidden:n*r.dec.Hidden])
	}
	return nil
}

// AppendHidden is Append that calls each with the hidden row [H] of every row, in
// order, and leaves no logits: the final normed rows, or those that leave a lower
// half. The slice is valid during the call only.
func (r *Runner) AppendHidden(ctx context.Context, rows []state.Row, each func(row int, hidden []float32)) error {
	if err := r.usable(); err != nil {
		return err
	}
	s, h := &r.seq[0], r.dec.Hidden
	defer func(no bool) { s.NoLogits = no }(s.NoLogits)
	s.NoLogits = true
	for done := 0; done < len(rows); {
		n := r.next(len(rows) - done)
		if err := r.pass(ctx, rows[done:done+n], WantAll); err != nil {
			return err
		}
		for i := range n {
			each(done+i, s.Hidden[i*h:(i+1)*h])
		}
		done += n
		copy(s.Hidden, s.Hidden[(n-1)*h:n*h])
	}
	return nil
}

// Logits are those of the last row [Vocab], valid until the next call; nil when
// the last thing done left none (after Resume, AppendHidden, Decide, Rewind to 0 or
// an error), and from a lower half.
func (r *Runner) Logits() []float32 {
	if s := &r.seq[0]; !r.fresh || len(s.Logits) < r.dec.Vocab {
		return nil
	}
	return r.seq[0].Logits[:r.dec.Vocab]
}

// Hidden is the final normed row [H] of the last position, like Logits.
func (r *Runner) Hidden() []float32 {
	if !r.fresh {
		return nil
	}
	return r.seq[0].Hidden[:r.dec.Hidden]
}

// Len is the number of rows in the sequence.
func (r *Runner) Len() int { return len(r.rows) }

// History are the rows that went in. The caller must not change them, nor use them
// after going back.
func (r *Runner) History() []state.Row { return r.rows }

// Snapshot shares the sequence's memory; the caller releases it.
func (r *Runner) Snapshot() (state.Snapshot, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	return r.State().Snapshot()
}

// Resume makes the runner the sequence that had these rows when snap was taken.
// It has no logits until the next Append.
func (r *Runner) Resume(rows []state.Row, snap state.Snapshot) error {
	if err := r.usable(); err != nil {
		return err
	}
	if snap == nil {
		return fmt.Errorf("nn: resuming nothing: want the snapshot of %d rows", len(rows))
	}
	if snap.Len() != len(rows) {
		return fmt.Errorf("nn: resuming a snapshot of %d rows with a history of %d", snap.Len(), len(rows))
	}
	if err := r.State().Restore(snap); err != nil {
		return err
	}
	r.rows, r.fresh = append(r.rows[:0:0], rows...), false
	return nil
}

// Truncate goes back to the first n rows. What the state cannot truncate to is
// replayed; when that fails or is cancelled, fewer than n rows are left, as
// History tells. It leaves no logits; Rewind does.
func (r *Runner) Truncate(ctx context.Context, n int) error {
	if err := r.usable(); err != nil {
		return err
	}
	if n < 0 || n > len(r.rows) {
		return fmt.Errorf("nn: truncating to row %d of %d", n, len(r.rows))
	}
	reached, err := r.State().Truncate(n)
	if err != nil {
		return err
	}
	replay := slices.Clone(r.rows[reached:n])
	clear(r.rows[reached:])
	r.rows, r.fresh = r.rows[:reached], false
	return r.chunks(ctx, replay, WantNone)
}

// Rewind goes back to the first n rows and leaves the logits of the last of them.
func (r *Runner) Rewind(ctx context.Context, n int) error {
	if err := r.usable(); err != nil {
		return err
	}
	if n < 0 || n > len(r.rows) {
		return fmt.Errorf("nn: rewinding to row %d of %d", n, len(r.rows))
	}
	if n == len(r.rows) && r.fresh && (r.dec.Head == nil || r.Logits() != nil) {
		return nil // the logits are here
	}
	if n == 0 {
		return r.Truncate(ctx, n)
	}
	last := r.rows[n-1]
	if err := r.Truncate(ctx, n-1); err != nil {
		return err
	}
	return r.Append(ctx, []state.Row{last})
}

// Fork returns a second sequence with the same past. It shares the stream, so
// both belong to the same goroutine.
func (r *Runner) Fork() (*Runner, error) {
	if err := r.usable(); err != nil {
		return nil, err
	}
	st, err := r.State().Fork()
	if err != nil {
		return nil, err
	}
	f := &Runner{dec: r.dec, pool: r.pool, c: NewCtx(r.c.Stream, r.pool.Device()), cfg: r.cfg, rows: slices.Clone(r.rows), fresh: r.fresh}
	f.seq[0] = Seq{State: st, NeedHidden: true, Logits: slices.Clone(r.Logits()), Hidden: slices.Clone(r.Hidden())}
	return f, nil
}

// Reset empties the sequence.
func (r *Runner) Reset() error {
	return r.Truncate(context.Background(), 0)
}

// Close releases the sequence's memory, not its stream. What needs the memory
// fails with backend.ErrClosed from then on; a second Close does nothing.
func (r *Runner) Close() {
	if r.usable() != nil {
		return
	}
	r.closed, r.fresh, r.rows = true, false, nil
	r.State().Release()
	r.c.Close()
}

// OnProgress replaces the function that is called between the chunks of a prompt;
// nil for none.
func (r *Runner) OnProgress(f func(done, total int)) { r.cfg.Progress = f }
