package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"

	"samebit/backend"
	"samebit/backend/lockstep"
	"samebit/backend/ref"
	"samebit/nn"
	"samebit/state"
)

// opCount is what was compared of one kind of op.
type opCount struct {
	Op        string `json:"op"`
	Ops       int64  `json:"ops"`
	Values    int64  `json:"values"`
	Differing int64  `json:"differing"`
}

// compareOps runs rows of a prompt and one step on the reference and on a device
// at once, and compares what every op wrote. It closes the device. The error names the
// first difference; the counts are of what ran until then.
func compareOps(ctx context.Context, path string, bounded *boundedFlags, kv *kvFlag, dev backend.Device, rows int, progress func(done, total int64)) (counts []opCount, err error) {
	defer dev.Close()
	plain := ref.New()
	defer plain.Close()
	both := lockstep.New(plain, dev)
	defer both.Close()
	dec, err := bounded.load(ctx, both, kv, path, progress)
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	defer func() {
		for _, c := range both.Counts() {
			if c.Values > 0 { // plans and writes have nothing to compare
				counts = append(counts, opCount(c))
			}
		}
	}()
	pool, err := state.NewPool(both, 0)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	s, err := both.NewStream()
	if err != nil {
		return nil, err
	}
	defer s.Close()
	// Two passes, so that the second one finds a state.
	r, err := dec.NewRunner(s, pool, nn.RunnerConfig{ChunkRows: max(rows-rows/3, 1)})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	rnd := rand.New(rand.NewPCG(20260101, 0))
	text := make([]state.Row, rows)
	for i := range text {
		text[i].Token = int32(rnd.IntN(dec.Vocab))
	}
	if err := r.AppendAll(ctx, text, func(int, []float32) {}); err != nil {
		return nil, err
	}
	return nil, r.Step(ctx, text[0].Token)
}

func printOps(w io.Writer, counts []opCount) {
	var all opCount
	fmt.Fprintf(w, "%-40s %14s %14s %9s\n", "op, reference and device", "values", "differing", "ops")
	line := func(c opCount) { fmt.Fprintf(w, "%-40s %14d %14d %9d\n", c.Op, c.Values, c.Differing, c.Ops) }
	for _, c := range counts {
		line(c)
		all.Ops, all.Values, all.Differing = all.Ops+c.Ops, all.Values+c.Values, all.Differing+c.Differing
	}
	all.Op = "all ops"
	line(all)
	fmt.Fprintln(w)
}
