package backendtest

import (
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// moments is a shape of Moments.
type moments struct {
	rows, heads, groups, slots int
	why                        string
}

var momentShapes = []moments{
	{1, 1, 1, 1, "one weight"},
	{2, 1, 1, 2, "fewer positions than the max is wide"},
	{3, 4, 2, 5, "the max is clipped on both sides"},
	{2, 6, 2, 7, "a mean of three"},
	{5, 14, 2, 33, "a mean of seven"},
	{4, 8, 8, 70, "a group of one"},
	{3, 5, 1, 1027, "positions beyond a piece, a mean of five"},
	{2, 2, 1, 2051, "odd pieces"},
	{0, 2, 1, 9, "no rows"},
}

func momentCases() []Case {
	var l []Case
	for i, m := range momentShapes {
		for _, k := range []tensortest.Kind{tensortest.Ordinary, tensortest.Kinds()[i%len(tensortest.Kinds())]} {
			l = append(l, Case{"Moments", name("%d %dx%d:%d/%d/%s", len(l), m.rows, m.heads, m.groups, m.slots, k), m.why, func(e *Env, r *tensortest.Rand) {
				state := func(of string) tensor.Tensor {
					return e.State(of, r.F32(tensortest.Ordinary, m.groups*m.slots), m.groups, m.slots)
				}
				w := e.In(r.F32(k, m.rows*m.heads*m.slots), m.rows, m.heads, m.slots)
				e.S.Moments(state("sum"), state("square"), w)
				e.S.Moments(state("sum alone"), tensor.Tensor{}, w)

				// Rows in two blocks, through a view that leaves positions out.
				wide := e.In(r.F32(k, m.rows*m.heads*(m.slots+5)), m.rows, m.heads, m.slots+5).Cols(0, m.slots)
				sum, square := state("sum of blocks"), state("square of blocks")
				at := (m.rows + 1) / 2
				e.S.Moments(sum, square, wide.Rows(0, at))
				e.S.Moments(sum, square, wide.Rows(at, m.rows))
			}})
		}
	}
	return l
}
