package rclc

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"samebit/internal/canon"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// LatentConfig steers LatentMass.
type LatentConfig struct {
	Steps   int     // rows to add; 0 adds none
	Max     int     // fail if Steps is more; 0 for no such limit
	Request []int32 // seen by the rollout, without a trace in the result; nil for none
	// Align, if set, is a matrix [Hidden, Hidden], one row per output, that maps a
	// final hidden row to the space of input rows before it is scaled (rclc/align
	// solves it). nil means none, as Qwen3 wants it.
	Align []float32
}

// LatentMass lets a model go on in its own hidden rows, without text: the final
// hidden row h of the last position, scaled to the mean norm of the model's input
// rows, is the next input row,
//
//	thought = (h / max(|h|, 1e-6)) · ν,   ν = mean over the vocabulary of |E_id|
//
// and so on, Steps times. |x| and ν are RSUMs (docs/numerics.md 3), so the thoughts
// have the same bits everywhere. With a request its tokens run first and the
// thoughts after them, all on a private copy; then the thoughts alone run after s.
//
// The result is s with the thoughts as continuous rows at its end, which count as
// its latent tail; s stays what it is. Without steps it is s, retained. The caller
// releases it.
func LatentMass(ctx context.Context, s *Sender, cfg LatentConfig) (*Sender, error) {
	limit := -1
	if cfg.Max != 0 {
		limit = cfg.Max
	}
	return rollout(ctx, s, cfg, limit)
}

// Latent is LatentMass as the reasoning of a transfer. It fails where fewer than
// Steps rows are allowed.
type Latent struct {
	Steps int
	Align []float32 // see LatentConfig
}

func (l Latent) Reason(ctx context.Context, s *Sender, limit int, request []int32) (*Sender, error) {
	return rollout(ctx, s, LatentConfig{Steps: l.Steps, Request: request, Align: l.Align}, limit)
}

// exact says that the result needs no check against the sender.
func (Latent) exact() {}

// rollout is LatentMass with a limit, negative for none.
func rollout(ctx context.Context, s *Sender, cfg LatentConfig, limit int) (*Sender, error) {
	steps := cfg.Steps
	if steps < 0 {
		return nil, fail(ErrReason, "latent_steps", "%d latent steps: want 0 or more", steps)
	}
	if cfg.Max < 0 {
		return nil, fail(ErrReason, "latent_limit", "a limit of %d latent rows: want at least 1, or 0 for none", cfg.Max)
	}
	if limit >= 0 && steps > limit {
		return nil, fail(ErrReason, "latent_limit", "%d latent steps, and only %d rows are allowed: ask for fewer steps, or allow more rows", steps, limit)
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	m := s.Model
	if err := m.checkIDs(cfg.Request); err != nil {
		return nil, err
	}
	if c, n := m.Info.Context, s.Len()+len(cfg.Request); c > 0 && n > c-steps {
		return nil, fail(ErrContext, "context_limit", "%d rows, %d of the request and %d latent steps exceed the model's context of %d: ask for fewer steps or send less", s.Len(), len(cfg.Request), steps, c)
	}
	if steps == 0 {
		return s.Retain(), nil
	}
	think, done, err := m.thinker(ctx, cfg.Align)
	if err != nil {
		return nil, err
	}
	defer done()
	out := &Sender{Model: m, Inherited: s.Inherited, Latent: s.Latent + steps, NoIDs: s.NoIDs}
	if len(cfg.Request) == 0 {
		err = m.scratch(func(r *nn.Runner) error {
			h, err := s.seed(ctx, r)
			if err != nil {
				return err
			}
			for range steps {
				t, err := think(h)
				if err == nil {
					h, err = appended(ctx, r, []state.Row{{Token: -1, Vec: t}})
				}
				if err != nil {
					return err
				}
			}
			out.LastHidden = h
			return out.run(ctx, r, nil)
		})
	} else {
		err = out.thoughts(ctx, s, cfg.Request, think)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// thoughts makes out from s with thoughts that have seen a request.
func (out *Sender) thoughts(ctx context.Context, s *Sender, request []int32, think func([]float32) ([]float32, error)) error {
	in := make([]state.Row, len(request))
	for i, id := range request {
		in[i].Token = id
	}
	rows := make([]state.Row, out.Latent-s.Latent)
	err := s.Model.scratch(func(r *nn.Runner) error {
		if err := r.Resume(s.Rows, s.Snap); err != nil {
			return err
		}
		for i := range rows {
			h, err := appended(ctx, r, in)
			if err != nil {
				return err
			}
			t, err := think(h)
			if err != nil {
				return err
			}
			rows[i] = state.Row{Token: -1, Vec: t}
			in = rows[i : i+1]
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.Model.scratch(func(r *nn.Runner) error {
		if err := r.Resume(s.Rows, s.Snap); err != nil {
			return err
		}
		return out.run(ctx, r, rows)
	})
}

// seed makes r the sender's sequence and returns its last hidden row.
func (s *Sender) seed(ctx context.Context, r *nn.Runner) ([]float32, error) {
	if err := r.Resume(s.Rows, s.Snap); err != nil {
		return nil, err
	}
	if s.LastHidden != nil {
		return s.LastHidden, nil
	}
	// A recurrent state cannot go back by one row; then all rows run again.
	last := s.Len() - 1
	if err := r.Truncate(ctx, last); err != nil {
		return nil, err
	}
	return appended(ctx, r, s.Rows[last:])
}

// appended runs rows and returns the final hidden row of the last.
func appended(ctx context.Context, r *nn.Runner, rows []state.Row) (h []float32, err error) {
	last := len(rows) - 1
	err = r.AppendHidden(ctx, rows, func(i int, x []float32) {
		if i == last {
			h = slices.Clone(x)
		}
	})
	return h, err
}

// thinker returns the step from a final hidden row to the next input row, and what
// frees its memory.
func (m *Model) thinker(ctx context.Context, align []float32) (think func([]float32) ([]float32, error), done func(), err error) {
	nu, err := m.meanNorm(ctx)
	if err != nil {
		return nil, nil, err
	}
	if align == nil {
		return func(h []float32) ([]float32, error) { return thought(h, nu), nil }, func() {}, nil
	}
	n := m.Info.Hidden
	if len(align) != n*n {
		return nil, nil, fail(ErrReason, "align", "an alignment of %d values: want %d × %d, one row per output", len(align), n, n)
	}
	for i, v := range align {
		if v-v != 0 {
			return nil, nil, fail(ErrReason, "align", "row %d, column %d of the alignment is %v: want finite values", i/n, i%n, v)
		}
	}
	dev := m.pool.Device()
	stream, err := dev.NewStream()
	if err != nil {
		return nil, nil, err
	}
	c := nn.NewCtx(stream, dev)
	w, x, y := c.Tmp(n, n), c.Tmp(1, n), c.Tmp(1, n)
	stream.Write(w, tensor.AsBytes(align))
	out := make([]float32, n)
	think = func(h []float32) ([]float32, error) {
		stream.Write(x, tensor.AsBytes(h))
		stream.Project(y, x, w)
		stream.Read(tensor.AsBytes(out), y)
		if err := stream.Sync(); err != nil {
			return nil, fmt.Errorf("rclc: aligning a latent row: %w", err)
		}
		return thought(out, nu), nil
	}
	return think, func() { c.Close(); stream.Close() }, nil
}

// thought scales a row to the norm nu.
func thought(h []float32, nu float32) []float32 {
	out, n := make([]float32, len(h)), max(norm(h), 1e-6)
	for i, v := range h {
		out[i] = float32(v/n) * nu
	}
	return out
}

// meanNorm is a model's mean norm of its input rows, computed once.
type meanNorm struct {
	mu sync.Mutex
	v  float32 // 0 before it is known
}

// normRows is how many rows of the embedding are read at a time.
const normRows = 4096

// meanNorm is the mean over the vocabulary of the Euclidean norm of the input rows.
func (m *Model) meanNorm(ctx context.Context) (float32, error) {
	m.norm.mu.Lock()
	defer m.norm.mu.Unlock()
	if m.norm.v != 0 {
		return m.norm.v, nil
	}
	v, h := m.Info.Vocab, m.Info.Hidden
	norms, ids := make([]float32, v), make([]int32, 0, normRows)
	for at := 0; at < v; at += len(ids) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		ids = ids[:0]
		for i := at; i < min(at+normRows, v); i++ {
			ids = append(ids, int32(i))
		}
		x, err := m.EmbedRows(ids)
		if err != nil {
			return 0, err
		}
		var wait sync.WaitGroup
		for w, n := 0, runtime.GOMAXPROCS(0); w < n; w++ { // rows do not depend on each other
			wait.Go(func() {
				for i := w; i < len(ids); i += n {
					norms[at+i] = norm(x[i*h : (i+1)*h])
				}
			})
		}
		wait.Wait()
	}
	m.norm.v = mean(norms)
	return m.norm.v, nil
}

// mean is RSUM(x) / n.
func mean(x []float32) float32 {
	return canon.Sum(x) / float32(len(x))
}

// norm is |x| = √RSUM(x²).
func norm(x []float32) float32 {
	return canon.Sqrt(canon.SumSquares(x))
}
