package calib

import (
	"context"
	"fmt"

	"samebit/backend"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// lesson is a sequence and what the teacher made of it.
type lesson struct {
	tokens []int32
	from   int       // first row that counts
	final  []float32 // final rows [from:][Hidden], after the norm

	at   []int32     // rows where outputs of layers are compared
	outs [][]float32 // of each trained layer [at][Hidden]
}

// watched is a mixer whose outputs are seen.
type watched struct {
	nn.Mixer
	see func(c *nn.Ctx, dst, x tensor.Tensor)
}

func (w watched) Mix(c *nn.Ctx, dst, x tensor.Tensor) {
	w.Mixer.Mix(c, dst, x)
	w.see(c, dst, x)
}

// watch returns d with blocks whose mixers are seen, by their index in blocks.
func watch(d *nn.Decoder, blocks []int, see func(i int, c *nn.Ctx, dst, x tensor.Tensor)) *nn.Decoder {
	w := *d
	w.Closers = nil
	w.Blocks = append([]nn.Block(nil), d.Blocks...)
	for i, b := range blocks {
		w.Blocks[b].Mix = watched{d.Blocks[b].Mix, func(c *nn.Ctx, dst, x tensor.Tensor) { see(i, c, dst, x) }}
	}
	return &w
}

// reader runs sequences through decoders and keeps nothing of them.
type reader struct {
	pool *state.Pool
	c    *nn.Ctx
}

func newReader(dev backend.Device, s backend.Stream) (*reader, error) {
	pool, err := state.NewPool(dev, 0)
	if err != nil {
		return nil, fmt.Errorf("calib: %w", err)
	}
	return &reader{pool, nn.NewCtx(s, dev)}, nil
}

func (r *reader) close() {
	r.c.Close()
	r.pool.Close()
}

// final runs a sequence from its beginning and returns its final rows from a row on.
func (r *reader) final(ctx context.Context, d *nn.Decoder, tokens []int32, from int) ([]float32, error) {
	st, err := d.NewState(r.pool)
	if err != nil {
		return nil, fmt.Errorf("calib: %w", err)
	}
	defer st.Release()
	seqs := []nn.Seq{{State: st, In: state.Tokens(tokens), Want: nn.WantRows, NeedHidden: true, NoLogits: true}}
	for i := from; i < len(tokens); i++ {
		seqs[0].At = append(seqs[0].At, i)
	}
	if err := d.Forward(ctx, r.c, seqs); err != nil {
		return nil, fmt.Errorf("calib: %w", err)
	}
	return seqs[0].Hidden, nil
}

// picked reads rows of x.
func picked(c *nn.Ctx, x tensor.Tensor, at []int32) ([]float32, error) {
	idx, err := indices(c, at)
	if err != nil {
		return nil, err
	}
	y := c.Tmp(len(at), x.Dim(1))
	c.Stream.Gather(y, x, idx)
	v := make([]float32, y.Len())
	c.Stream.Read(tensor.AsBytes(v), y)
	return v, nil
}

// linear is a product with an optional bias.
func linear(c *nn.Ctx, x tensor.Tensor, w backend.Weight, b tensor.Tensor) tensor.Tensor {
	y := c.Tmp(x.Dim(0), w.Out())
	c.Linears(x, nn.Product{Dst: y, W: w, B: b})
	return y
}

// normed are heads of rows after their norm, rotated or not, as [R, heads·Dim].
func normed(c *nn.Ctx, a *nn.Attention, x, norm tensor.Tensor, rope *backend.RoPE) tensor.Tensor {
	if !norm.Valid() && rope == nil {
		y := c.Tmp(x.Dim(0), x.Dim(1)*x.Dim(2))
		c.Stream.Copy(y.Heads(x.Dim(1), x.Dim(2)), x)
		return y
	}
	y := c.Tmp(x.Dim(0), x.Dim(1)*x.Dim(2))
	c.Stream.NormRoPE(y.Heads(x.Dim(1), x.Dim(2)), x, norm, a.Eps, rope, c.Plan)
	return y
}

// keys are an attention's keys of rows x, as [R, KV·Dim].
func keys(c *nn.Ctx, a *nn.Attention, x tensor.Tensor, rope *backend.RoPE) tensor.Tensor {
	return normed(c, a, linear(c, x, a.K, a.BK).Heads(a.KV, a.Dim), a.KNorm, rope)
}

// queries are those of rows x, as [R, Heads·Dim].
func queries(c *nn.Ctx, a *nn.Attention, x tensor.Tensor, rope *backend.RoPE) tensor.Tensor {
	width := a.Dim
	if a.Gated {
		width *= 2
	}
	return normed(c, a, linear(c, x, a.Q, a.BQ).Heads(a.Heads, width).Cols(0, a.Dim), a.QNorm, rope)
}
