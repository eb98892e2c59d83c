// Package nn turns weights and blocks into a decoder and runs it over the rows
// of any number of sequences at once.
//
// A pass is a short straight list of ops on a stream; what it leaves behind is
// in the sequences' states. Because no op's bits depend on what else is in the
// pass, a prompt may be cut into chunks and sequences may share passes freely.
package nn

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/state"
	"samebit/tensor"
)

// Mixer mixes the rows of each sequence: attention or a recurrent layer. It
// writes dst from x, both [R, H].
type Mixer interface {
	Mix(c *Ctx, dst, x tensor.Tensor)
}

// FFN works on each row by itself. It writes dst from x, both [R, H].
type FFN interface {
	Apply(c *Ctx, dst, x tensor.Tensor)
}

// Block is one decoder layer: x + Mix(norm1 x), then x + FFN(norm2 x).
type Block struct {
	Norm1, Norm2 tensor.Tensor // [H]
	Mix          Mixer
	FFN          FFN
}

// Config is what a Decoder needs to know besides its weights.
type Config struct {
	Hidden  int     // width of a row
	Vocab   int     // rows of the embedding
	Context int     // largest number of rows in a sequence; 0 means no limit
	Eps     float32 // of the norms
}

// Decoder is a model: immutable weights and a list of blocks. It is safe for
// concurrent use as long as each goroutine has its own Ctx.
type Decoder struct {
	Config
	ID       state.ID
	Embed    backend.Weight // [Vocab, H]; nil when all rows must be continuous
	Head     backend.Weight // [Vocab, H]; the same as Embed when tied; nil for no logits
	Blocks   []Block
	Norm     tensor.Tensor // [H]; invalid without Head
	Tap      *Tap          // nil for none
	Shapes   Shapes        // of the states that the blocks and the tap use
	NewState func(*state.Pool) (state.State, error)
	Bounded  bool     // NewState keeps less than Shapes says, as a sieve does
	Closers  []func() // free what the decoder owns; run by Close
}

// Close frees the weights. No pass may be running or follow.
func (d *Decoder) Close() {
	for _, f := range d.Closers {
		f()
	}
	d.Closers = nil
}

// Want says which rows of a sequence leave a pass with logits.
type Want uint8

const (
	WantNone Want = iota
	WantLast
	WantAll
	WantRows // those in Seq.At
)

// Seq is one sequence's part in a pass.
type Seq struct {
	State state.State
	In    []state.Row // at least one row
	Want  Want
	At    []int // rows of In, rising, for WantRows

	// After the pass: for each wanted row its logits [Vocab] and its final normed
	// row [H]; of a decoder without a head no logits and the row that leaves the
	// last block. The slices are reused if they are long enough.
	Logits, Hidden []float32
	NeedHidden     bool // fill Hidden
	NoLogits       bool // leave Logits empty, and do no product for them
}

// Ctx carries one pass: the stream, its plan and scratch memory. It belongs to
// one goroutine.
type Ctx struct {
	Stream backend.Stream
	Plan   backend.Plan

	// Probe, if set, is called after each attention layer with its rotated
	// queries [R, Hq, D]; the keys are reached through the plan.
	Probe func(c *Ctx, layer int, q tensor.Tensor, scale float32)
	// Weights, if set, is called in each attention layer without a window with the
	// weights of every head, block by block of rows: w [n, Hq, S] of the pass's rows
	// from first on, S the slots of the longest sequence. They are valid during the
	// call and cost less than asking for them in a Probe.
	Weights func(c *Ctx, layer, first int, w tensor.Tensor)
	// Trace, if set, is called with the rows [R, H] after the embedding (index 0)
	// and after each block (index 1 and up).
	Trace func(c *Ctx, index int, x tensor.Tensor)

	// Keep makes every op write to memory of its own and holds it until Close, as a
	// tape needs it.
	Keep bool

	arena arena
	ones  []float32 // of a tap without a weight
	segs  []backend.Seg
	ids   []int32
	want  []int32

	// Operands of linears, kept here so that a pass allocates nothing.
	outs    []tensor.Tensor
	weights []backend.Weight
}

// NewCtx returns a Ctx on a stream of the device that its scratch comes from.
func NewCtx(s backend.Stream, dev backend.Device) *Ctx {
	return &Ctx{Stream: s, arena: arena{dev: dev}}
}

// Close frees the scratch memory.
func (c *Ctx) Close() { c.arena.close() }

// Tmp returns scratch rows, valid until Release of an earlier mark. Their content
// is unspecified.
func (c *Ctx) Tmp(rows, cols int) tensor.Tensor { return c.arena.get(tensor.F32, rows, cols) }

// Mark remembers the scratch in use; Release gives back what was taken since.
func (c *Ctx) Mark() Mark { return c.arena.mark() }

func (c *Ctx) Release(m Mark) {
	if !c.Keep {
		c.arena.release(m)
	}
}

// over is where an op may write that is done with t: t itself, or new memory.
func (c *Ctx) over(t tensor.Tensor) tensor.Tensor {
	if c.Keep {
		return c.Tmp(t.Dim(0), t.Dim(1))
	}
	return t
}

func (c *Ctx) indices(v []int32) tensor.Tensor {
	t := c.arena.get(tensor.I32, len(v))
	c.Stream.Write(t, tensor.AsBytes(v))
	return t
}

// Forward runs the rows of every sequence through the model in one pass, any mix
// of prompt and decode rows. It commits all sequences or none: after an error or
// a cancelled context every state is as it was.
func (d *Decoder) Forward(ctx context.Context, c *Ctx, seqs []Seq) error {
	rows, err := d.begin(c, seqs)
	if err != nil {
		return err
	}
	defer c.Release(c.Mark())
	if err := d.pass(ctx, c, seqs, rows); err != nil {
		c.Stream.Reset()
		if c.arena.err != nil { // what the ops say follows from it
			err, c.arena.err = fmt.Errorf("nn: scratch for %d rows: %w", rows, c.arena.err), nil
		}
		return err
	}
	for i := range seqs {
		seqs[i].State.Commit(len(seqs[i].In))
	}
	return nil
}

// pass runs the ops of a pass and waits for them.
func (d *Decoder) pass(ctx context.Context, c *Ctx, seqs []Seq, rows int) error {
	c.Plan = c.Stream.Plan(c.segs)
	x := c.Tmp(rows, d.Hidden)
	d.embed(c, x, seqs)
	x, err := d.run(ctx, c, x, 0, len(d.Blocks))
	if err != nil {
		return err
	}
	if err := d.head(ctx, c, x, seqs); err != nil {
		return err
	}
	if err := c.Stream.Sync(); err != nil {
		return fmt.Errorf("nn: forward of %d rows: %w", rows, err)
	}
	return nil
}

// begin checks the rows and makes room for them in every state.
func (d *Decoder) begin(c *Ctx, seqs []Seq) (rows int, err error) {
	c.segs, c.ids = c.segs[:0], c.ids[:0]
	for i := range seqs {
		s := &seqs[i]
		if err := d.checkSeq(s, i); err != nil {
			return 0, err
		}
		for j := range i {
			if seqs[j].State == s.State {
				return 0, fmt.Errorf("nn: sequences %d and %d of the pass share one state: fork it", j, i)
			}
		}
		for _, r := range s.In {
			c.ids = append(c.ids, max(r.Token, 0))
		}
		c.segs = append(c.segs, backend.Seg{Row: rows, Rows: len(s.In)})
		if err := s.State.Begin(&c.segs[i], len(s.In)); err != nil {
			return 0, err
		}
		rows += len(s.In)
	}
	if rows == 0 {
		return 0, fmt.Errorf("nn: forward of no rows")
	}
	return rows, nil
}

// checkSeq refuses rows that no pass could run; i numbers the sequence in errors.
func (d *Decoder) checkSeq(s *Seq, i int) error {
	if s.State == nil || len(s.In) == 0 {
		return fmt.Errorf("nn: sequence %d of the pass has no state or no rows", i)
	}
	if n := s.State.Len() + len(s.In); d.Context > 0 && n > d.Context {
		return fmt.Errorf("nn: %d rows exceed the model's context of %d: shorten the prompt or ask for fewer tokens", n, d.Context)
	}
	if s.Want == WantRows {
		last := -1
		for _, r := range s.At {
			if r <= last || r >= len(s.In) {
				return fmt.Errorf("nn: rows %v of sequence %d are wanted: want them rising and within its %d rows", s.At, i, len(s.In))
			}
			last = r
		}
	}
	for j, r := range s.In {
		switch {
		case r.Vec != nil && len(r.Vec) != d.Hidden:
			return fmt.Errorf("nn: continuous row %d of sequence %d has %d values, the model's width is %d", j, i, len(r.Vec), d.Hidden)
		case r.Vec == nil && d.Embed == nil:
			return fmt.Errorf("nn: row %d of sequence %d is a token, the decoder has no embedding: give it hidden rows of %d values", j, i, d.Hidden)
		case r.Vec == nil && (r.Token < 0 || int(r.Token) >= d.Vocab):
			return fmt.Errorf("nn: token %d (row %d of sequence %d) is outside the vocabulary of %d", r.Token, j, i, d.Vocab)
		}
	}
	return nil
}

// CheckText refuses a text with a token that the model does not have, for callers that
// look tokens up in the logits before them, which may be before a pass refuses them.
func (d *Decoder) CheckText(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= d.Vocab {
			return fmt.Errorf("nn: token %d at index %d of the text: the model has %d: give a text in its vocabulary", id, i, d.Vocab)
		}
	}
	return nil
}

func (d *Decoder) embed(c *Ctx, x tensor.Tensor, seqs []Seq) {
	if d.Embed != nil {
		c.Stream.Embed(x, d.Embed, c.indices(c.ids))
	}
	row := 0
	for i := range seqs {
		for _, r := range seqs[i].In {
			if r.Vec != nil {
				c.Stream.Write(x.Rows(row, row+1), tensor.AsBytes(r.Vec))
			}
			row++
		}
	}
	if c.Trace != nil {
		c.Trace(c, 0, x)
	}
}

// run applies blocks [from, to) to x and returns the rows that come out.
func (d *Decoder) run(ctx context.Context, c *Ctx, x tensor.Tensor, from, to int) (tensor.Tensor, error) {
	rows := x.Dim(0)
	s := c.Stream
	mid := c.Tmp(rows, d.Hidden)
	for l := from; l < to; l++ {
		if err := ctx.Err(); err != nil {
			return x, err
		}
		b := &d.Blocks[l]
		m := c.Mark()
		h, y := c.Tmp(rows, d.Hidden), c.Tmp(rows, d.Hidden)
		s.RMSNorm(h, x, b.Norm1, d.Eps)
		b.Mix.Mix(c, y, h)
		mid = c.over(mid)
		s.Add(mid, x, y)
		h, y = c.over(h), c.over(y)
		s.RMSNorm(h, mid, b.Norm2, d.Eps)
		b.FFN.Apply(c, y, h)
		x = c.over(x)
		s.Add(x, mid, y)
		if d.Tap != nil && d.Tap.Block == l {
			d.tap(c, x)
		}
		c.Release(m)
		if c.Trace != nil {
			c.Trace(c, l+1, x)
		}
		if err := s.Err(); err != nil {
			return x, fmt.Errorf("nn: block %d: %w", l, err)
		}
	}
	return x, nil
}
