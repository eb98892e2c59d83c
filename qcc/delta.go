package qcc

import (
	"math/big"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
)

// DeltaParams are a gated-delta memory's parameters of one layer.
type DeltaParams struct {
	Write            AddressMap    // of keys
	Beta, BetaBias   tensor.Tensor // [Heads, Hidden], [Heads]
	Decay, DecayBias tensor.Tensor // [Heads, Hidden], [Heads]

	one tensor.Tensor // [Heads]
}

// deltaRows are what rows bring to a gated-delta memory besides queries and values.
type deltaRows struct {
	key         tensor.Tensor // [R, key heads, Dim]
	keep, write tensor.Tensor // [R, Heads]: the factor of the old memory, and of the row
}

// DeltaConfig is [ModelConfig] with a gated-delta memory in the place of the archive.
// Every row is written into a matrix S [Dim, Dim] of each query head when it comes,
// and its query reads what is there then:
//
//	S ← g·S;  S ← S + k̂·(β·(v - Sᵀk̂))ᵀ;  response Sᵀq̂
//
// with q̂ and k̂ of length 1, of queries and keys after the trained maps, before their
// rotation if PositionInvariant is set; β = sigmoid(Wx + b) and g = sigmoid(-(W'x +
// b')) are those of the head. From row Window + Sinks on the gate joins it to what
// the window gives.
func DeltaConfig(d *nn.Decoder) (Config, error) {
	c, err := ModelConfig(d)
	if err != nil {
		return c, err
	}
	c.Memory, c.AddressRank = MemoryDelta, c.Rank
	c.Codes, c.Scales, c.Rank, c.LandmarkTemp, c.ReadStride = 0, 0, 0, 0, 0
	return c, nil
}

// checkDelta refuses options of archives.
func (c Config) checkDelta(bad func(string, ...any) error) error {
	switch {
	case c.Share && c.keyHeads() != c.Heads:
		return bad("a gated-delta memory has a matrix per query head: it is not shared")
	case c.NoArchive, c.Codes != 0, c.Scales != 0, c.Decay != nil, c.Rank != 0, c.ActiveQuery, c.Lexical, c.PerCode, c.ActiveCodes != 0, c.SparseRead != SparseAuto,
		c.LazyDecay, c.Threshold != nil, c.KernelCompat, c.Landmarks != LandmarksNone, c.LandmarkTemp != 0, c.ReadStride > 1, c.StaleReads, c.ReadCloseness != nil, c.Exact != nil:
		return bad("a gated-delta memory takes no option of archives (codes, scales, decay factors, correction, landmarks, reads, exact tier): begin with DeltaConfig")
	}
	return nil
}

func (c Config) deltaShape(layers int) state.DeltaShape {
	return state.DeltaShape{Layers: layers, Heads: c.Heads, DK: c.Dim, DV: c.Dim}
}

// forgetting is the logit of sigmoid(-x) = 2^(-1/h), rounded once.
func forgetting(h *big.Float) float32 {
	x := canon.BigPow(canon.Big(2), quo(canon.Big(1), h))
	return canon.Round32(canon.BigLog(x.Sub(x, canon.Big(1))))
}

// deltaRows computes what rows x bring.
func (m *Mixer) deltaRows(c *nn.Ctx, x tensor.Tensor, in rows) deltaRows {
	s, n, h := c.Stream, x.Dim(0), m.Config.Heads
	d := deltaRows{key: in.raw, keep: c.Tmp(n, h), write: c.Tmp(n, h)}
	if !m.Config.PositionInvariant {
		d.key = in.k
	}
	a, y, b := c.Tmp(n, h), c.Tmp(n, h), c.Tmp(n, h)
	s.Project(a, x, m.Delta.Decay)
	s.Project(y, x, m.Delta.Beta)
	s.AddBias(b, y, m.Delta.BetaBias)
	s.DeltaGates(d.keep, d.write, a, b, m.Delta.one, m.Delta.DecayBias)
	return d
}

// addressEps is under the root of the length of an address.
const addressEps = 1e-6

// deltaRule writes the rows and reads the memory with queries q: dst and q [R, Heads,
// Dim].
func (m *Mixer) deltaRule(c *nn.Ctx, a backend.Archive, dst, q tensor.Tensor, in rows) {
	s, f := c.Stream, &m.Config
	unit := func(x tensor.Tensor) tensor.Tensor {
		y := like(c, x)
		s.L2Norm(y, x, addressEps, 1)
		return y
	}
	k := unit(moved(c, a, in.delta.key, m.Delta.Write))
	s.GatedDelta(dst, unit(q), repeated(c, k, f.Heads), repeated(c, in.v, f.Heads), in.delta.keep, in.delta.write, c.Plan, m.Layer)
}

// repeated gives every query head its key head's rows.
func repeated(c *nn.Ctx, x tensor.Tensor, heads int) tensor.Tensor {
	n, kv, d := x.Dim(0), x.Dim(1), x.Dim(2)
	if kv == heads {
		return x
	}
	from, to := x.Reshape(n, kv*d), c.Tmp(n, heads*d)
	for h := range heads {
		g := h / (heads / kv)
		c.Stream.Copy(to.Cols(h*d, (h+1)*d), from.Cols(g*d, (g+1)*d))
	}
	return to.Heads(heads, d)
}
