package calib

import (
	"context"
	"fmt"
	"slices"

	"samebit/backend"
	"samebit/nn"
	"samebit/tensor"
)

// firstGates takes the mean log mass of each head's window from the bias of a gate that
// mass is part of, if nobody has trained it: gates begin where GateBias puts others.
func (r *run) firstGates(ctx context.Context) error {
	c := &r.from.Config
	if !c.GateMass {
		return nil
	}
	values, err := readAll(r.params, r.stream)
	if err != nil {
		return err
	}
	sums, n := make([][]float64, len(r.from.Layers)), 0
	for i := range sums {
		sums[i] = make([]float64, c.Heads)
	}
	var failed error
	window := backend.WindowParams{Window: c.Window, Sinks: c.Sinks}
	r.reader.c.Probe = func(x *nn.Ctx, layer int, q tensor.Tensor, scale float32) {
		a, ok := x.Stream.(backend.Archive)
		if !ok || failed != nil {
			return
		}
		rows, w := q.Dim(0), window
		w.Scale = scale
		y, mass := x.Tmp(rows, c.Heads*c.Dim).Heads(c.Heads, c.Dim), x.Tmp(rows, c.Heads)
		a.WindowAttention(y, mass, q, x.Plan, layer, w)
		v := make([]float32, mass.Len())
		x.Stream.Read(tensor.AsBytes(v), mass)
		failed = x.Stream.Sync()
		for i, m := range v[r.first*c.Heads:] {
			sums[layer][i%c.Heads] += float64(m)
		}
	}
	defer func() { r.reader.c.Probe = nil }()
	for _, l := range r.lessons {
		if _, err := r.reader.final(ctx, r.patched.Decoder, l.tokens, len(l.tokens)-1); err != nil {
			return err
		}
		if failed != nil {
			return fmt.Errorf("calib: %w", failed)
		}
		n += len(l.tokens) - r.first
	}
	for _, i := range r.chosen {
		at := fmt.Sprintf("layers.%d.gate.", r.from.Layers[i])
		if slices.ContainsFunc(values[at+"weight"], func(x float32) bool { return x != 0 }) {
			continue
		}
		for h := range c.Heads {
			values[at+"bias"][h] = float32(c.GateBias - sums[i][h]/float64(n))
		}
	}
	return r.set(values)
}
