package qccbench

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
)

// Text turns text into tokens of a model and back.
type Text struct {
	Encode func(text string) []int32 // as a prompt: names of control tokens are such
	Plain  func(text string) []int32 // as what it says
	Decode func(ids []int32) string
	Stop   func(id int32) bool // the token ends an answer
	Size   int                 // tokens that there are; a model may have more logits
}

// native refuses a model whose context is smaller than asked for.
func native(d *nn.Decoder, least int) error {
	if least > 0 && d.Context < least {
		return fmt.Errorf("qccbench: the model has a context of %d tokens, %d are required: take a model of longer context, or require less", d.Context, least)
	}
	return nil
}

// writer goes on from texts with the likeliest tokens.
type writer struct {
	pool   *state.Pool
	stream backend.Stream
	text   Text
	tokens int // at most
	chunk  int
}

func newWriter(dev backend.Device, t Text, tokens, chunk int) (*writer, error) {
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return nil, err
	}
	s, err := dev.NewStream()
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &writer{pool, s, t, tokens, chunk}, nil
}

func (w *writer) close() error {
	w.stream.Close()
	return w.pool.Close()
}

// start is a sequence that has read a text.
func (w *writer) start(ctx context.Context, d *nn.Decoder, ids []int32) (*nn.Runner, error) {
	r, err := d.NewRunner(w.stream, w.pool, nn.RunnerConfig{ChunkRows: w.chunk})
	if err != nil {
		return nil, err
	}
	if err := w.read(ctx, r, ids); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (w *writer) read(ctx context.Context, r *nn.Runner, ids []int32) error {
	return r.Append(ctx, state.Tokens(ids))
}

// room refuses texts that leave no room for an answer.
func (w *writer) room(d *nn.Decoder, n int) error {
	if d.Context > 0 && n+w.tokens > d.Context {
		return fmt.Errorf("a text of %d tokens leaves no room for %d more in a context of %d", n, w.tokens, d.Context)
	}
	return nil
}

// more is what follows a sequence, without the token that ends it. At the limit no
// such token has come.
func (w *writer) more(ctx context.Context, r *nn.Runner) (text string, limit bool, err error) {
	var out []int32
	for {
		l := r.Logits()
		id := top(l[:min(len(l), w.text.Size)])
		if w.text.Stop(id) {
			return w.text.Decode(out), false, nil
		}
		if out = append(out, id); len(out) == w.tokens {
			return w.text.Decode(out), true, nil
		}
		if err := r.Step(ctx, id); err != nil {
			return "", false, err
		}
	}
}

// both has the own model and the full one answer a text. got is told the arm, 0 and 1,
// what it said, whether it was still at it at the limit, and why it failed, if it did. It
// fails only when it is cancelled, which is no failure of a model.
func (w *writer) both(ctx context.Context, own, full *nn.Decoder, ids []int32, got func(arm int, said string, limit bool, failed error)) error {
	for i, d := range []*nn.Decoder{own, full} {
		said, limit, failed := w.answer(ctx, d, ids)
		if err := ctx.Err(); err != nil {
			return err
		}
		got(i, said, limit, failed)
	}
	return nil
}

// answer is what follows a text.
func (w *writer) answer(ctx context.Context, d *nn.Decoder, ids []int32) (text string, limit bool, err error) {
	if len(ids) == 0 {
		return "", false, fmt.Errorf("the text has no tokens")
	}
	if err := w.room(d, len(ids)); err != nil {
		return "", false, err
	}
	r, err := w.start(ctx, d, ids)
	if err != nil {
		return "", false, err
	}
	defer r.Close()
	return w.more(ctx, r)
}
