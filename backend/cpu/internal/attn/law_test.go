package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var dims = []int{8, 12, 16, 20, 24, 48, 64, 80, 96, 128, 256, 1, 7, 130}

// plan is a random job over pages some of whose slots are unwritten (NaN) or
// hold values that are not finite.
type plan struct {
	seed  uint64
	d     int
	group int
	rows  int
	slots int
	kind  string
	job   *Job
	pages *cache
}

func (p plan) String() string {
	return fmt.Sprintf("seed=%d d=%d group=%d rows=%d slots=%d %s", p.seed, p.d, p.group, p.rows, p.slots, p.kind)
}

func newPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 17))
	p := plan{seed: seed, d: dims[rng.IntN(len(dims))], group: 1 + rng.IntN(8)}
	p.rows = p.group * (1 + rng.IntN(9))
	if rng.IntN(8) == 0 {
		p.rows = p.group * (100/p.group + rng.IntN(20)) // more than one chunk
	}
	p.slots = 1 + rng.IntN(300)
	amp := []float32{0.2, 2, 2, 30, 1e19}[rng.IntN(5)]
	p.pages = randomCache(rng, p.slots, p.d)
	q := make([]float32, p.rows*p.d+(p.rows/p.group)*5)
	fill(rng, q, amp)
	j := &Job{Q: q, QStride: p.group*p.d + 5, Group: p.group, Rows: p.rows, D: p.d, K: p.pages.k, V: p.pages.v, Scale: 1 / float32(math.Sqrt(float64(p.d)))}
	p.kind = []string{"causal", "window", "random", "same"}[rng.IntN(4)]
	queries := p.rows / p.group
	window := 1 + rng.IntN(100)
	for r := range p.rows {
		pos := p.slots - queries + r/p.group
		lo, hi := 0, pos+1
		switch p.kind {
		case "window":
			lo = max(0, hi-window)
		case "random":
			lo, hi = rng.IntN(p.slots+1), rng.IntN(p.slots+1)
		case "same":
			lo, hi = p.slots/3, p.slots
		}
		j.Lo, j.Hi = append(j.Lo, int32(lo)), append(j.Hi, int32(max(hi, 0)))
	}
	if rng.IntN(3) == 0 {
		j.Sinks = 1 + rng.IntN([]int{5, 64, p.slots}[rng.IntN(3)])
		p.kind += fmt.Sprintf(" sinks=%d", j.Sinks)
	}
	if rng.IntN(3) == 0 {
		p.kind += " poison"
		bad := []float32{nan, float32(math.Inf(1)), float32(math.Inf(-1))}
		for range 3 {
			at := rng.IntN(p.slots)
			switch c := rng.IntN(p.d); rng.IntN(2) {
			case 0:
				p.pages.value(at)[c] = bad[rng.IntN(3)]
			case 1:
				p.pages.k[at/64][c*64+at%64] = bad[rng.IntN(3)]
			}
		}
	}
	// Pages that nobody sees may be missing.
	for b := range p.pages.k {
		seen := false
		for r := range p.rows {
			for _, at := range p.visible(j, r) {
				seen = seen || at/64 == b
			}
		}
		if !seen {
			p.pages.k[b], p.pages.v[b] = nil, nil
		}
	}
	if seed%3 == 2 {
		p.kind += " bf16"
		p.pages.half(j)
	}
	p.job = j
	return p
}

// visible lists the slots that row r sees, from the words of [Job].
func (p plan) visible(j *Job, r int) (v []int) {
	for at := range p.slots {
		if at < int(j.Hi[r]) && (at >= int(j.Lo[r]) || at < j.Sinks) {
			v = append(v, at)
		}
	}
	return v
}

func (p plan) ref(r int) ([]float32, float32, float32, []triple, []float32) {
	q := p.job.Q[p.job.place(r, p.job.QStride):][:p.d]
	return refRow(q, p.pages.key, p.pages.value, p.visible(p.job, r), p.job.Scale)
}

// part is rows [a, b) of the job as one of its own, without grouping.
func (p plan) part(a, b int, out []float32) *Job {
	j := *p.job
	j.Group, j.Rows = 1, b-a
	j.Q, j.QStride = make([]float32, (b-a)*p.d), p.d
	for r := a; r < b; r++ {
		copy(j.Q[(r-a)*p.d:], p.job.Q[p.job.place(r, p.job.QStride):][:p.d])
	}
	j.Out, j.OutStride = out, p.d
	j.Lo, j.Hi = p.job.Lo[a:b], p.job.Hi[a:b]
	return &j
}

func plans(t *testing.T) int {
	if testing.Short() {
		return 60
	}
	return 300
}

// TestRows: every row equals the contract's row for itself, whatever its
// neighbours see, and so do its scores, weights and log mass.
func TestRows(t *testing.T) {
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for seed := range uint64(plans(t)) {
			p := newPlan(seed)
			if kern.softmaxIsGeneric() && p.rows*p.d*p.slots > 500_000 {
				continue
			}
			j := p.job
			out, check := guarded(t, len(j.Q))
			lse, checkLSE := guarded(t, p.rows)
			j.Out, j.OutStride, j.LSE = out, j.QStride, lse
			sc := scratch(p.rows, p.d)
			width := p.slots + 3
			scores, checkS := guarded(t, p.rows*width)
			weights, checkW := guarded(t, p.rows*width)
			both, checkB := guarded(t, p.rows*width)
			j.W, j.WStride, j.WSlots = both, width*max(j.Group, 1), width
			kern.Attend(j, sc)
			check()
			checkLSE()
			checkB()
			kern.Scores(scores, width, j, sc)
			j.W = weights
			kern.Weights(j, sc)
			j.W = nil
			checkS()
			checkW()
			if e := diff(both, weights); e != "" {
				t.Fatalf("%v: weights beside attention%s", p, e)
			}
			step := 1 + p.rows*p.d*p.slots/100_000
			for r := 0; r < p.rows; r += step {
				want, m, l, _, s := p.ref(r)
				if e := diff(out[j.place(r, j.OutStride):][:p.d], want); e != "" {
					t.Fatalf("%v row %d sees [%d,%d): out%s", p, r, j.Lo[r], j.Hi[r], e)
				}
				wantS, wantW := make([]float32, width), make([]float32, width)
				for i := range wantS {
					wantS[i] = nan
				}
				for i, at := range p.visible(j, r) {
					wantS[at] = s[i]
					wantW[at] = exp(s[i]-m) * (1 / l)
				}
				if e := diff(scores[r*width:(r+1)*width], wantS); e != "" {
					t.Fatalf("%v row %d: scores%s", p, r, e)
				}
				if e := diff(weights[r*width:(r+1)*width], wantW); e != "" {
					t.Fatalf("%v row %d: weights%s", p, r, e)
				}
				if e := diff(lse[r:r+1], []float32{logMass(m, l)}); e != "" {
					t.Fatalf("%v row %d: lse%s", p, r, e)
				}
			}
		}
	})
}

// TestCuts: a job cut into pieces gives the bits of the whole job.
func TestCuts(t *testing.T) {
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for seed := range uint64(plans(t)) {
			p := newPlan(seed + 1000)
			if kern.softmaxIsGeneric() && p.rows*p.d*p.slots > 300_000 {
				continue
			}
			whole, pieces := make([]float32, p.rows*p.d), make([]float32, p.rows*p.d)
			sc := scratch(p.rows, p.d)
			kern.Attend(p.part(0, p.rows, whole), sc)
			rng := rand.New(rand.NewPCG(seed, 5))
			for a := 0; a < p.rows; {
				b := min(p.rows, a+1+rng.IntN(9))
				kern.Attend(p.part(a, b, pieces[a*p.d:b*p.d]), sc)
				a = b
			}
			if e := diff(pieces, whole); e != "" {
				t.Fatalf("%v: cut%s", p, e)
			}
		}
	})
}

// TestPartials: triples equal the contract's, and merging them in ascending
// order gives the bits of the whole.
func TestPartials(t *testing.T) {
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for seed := range uint64(plans(t)) {
			p := newPlan(seed + 2000)
			if kern.softmaxIsGeneric() && p.rows*p.d*p.slots > 300_000 {
				continue
			}
			n, d := p.rows, p.d
			whole, merged := make([]float32, n*d), make([]float32, n*d)
			sc := scratch(n, d)
			kern.Attend(p.part(0, n, whole), sc)
			m, l, o := make([]float32, n), make([]float32, n), make([]float32, n*d)
			Reset(m, l, o)
			blocks := len(p.pages.k)
			mb, checkM := guarded(t, n)
			lb, checkL := guarded(t, n)
			ob, checkO := guarded(t, n*d)
			got := make([][]triple, n)
			for b := range blocks {
				kern.Partials(p.job, b, mb, lb, ob, sc)
				checkM()
				checkL()
				checkO()
				for r := range n {
					got[r] = append(got[r], triple{b, mb[r], lb[r], append([]float32(nil), ob[r*d:(r+1)*d]...)})
				}
				kern.Merge(m, l, o, mb, lb, ob, d, sc)
			}
			kern.Finish(merged, d, l, o, d)
			if e := diff(merged, whole); e != "" {
				t.Fatalf("%v: merged%s", p, e)
			}
			for r := 0; r < n; r += 1 + n*d*p.slots/100_000 {
				_, _, _, parts, _ := p.ref(r)
				want := make([]triple, blocks)
				for b := range want {
					want[b] = triple{b, float32(math.Inf(-1)), 0, make([]float32, d)}
				}
				for _, tr := range parts {
					if tr.l != tr.l {
						tr.m = nan
					}
					want[tr.block] = tr
				}
				for b := range want {
					g, w := got[r][b], want[b]
					if e := diff([]float32{g.m, g.l}, []float32{w.m, w.l}); e != "" {
						t.Fatalf("%v row %d block %d: (m, l)%s", p, r, b, e)
					}
					if e := diff(g.o, w.o); e != "" && w.l == w.l {
						t.Fatalf("%v row %d block %d: o%s", p, r, b, e)
					}
				}
			}
		}
	})
}

// TestNoAllocations: a decode step takes no memory.
func TestNoAllocations(t *testing.T) {
	eachSet(t, func(t *testing.T, kern *Kernels) {
		j := benchJob(1, 4, 130, 64)
		sc := scratch(j.Rows, j.D)
		for range 2 {
			if n := testing.AllocsPerRun(5, func() { kern.Attend(j, sc) }); n != 0 {
				t.Errorf("Attend allocates %g times", n)
			}
			(&cache{d: j.D, k: j.K, v: j.V}).half(j)
		}
	})
}

// TestSoftmaxEdges: sums and maxima of special scores, set against set.
func TestSoftmaxEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), -inf, inf, nan, -104, -103.97, -1e30, 1e30, 88.8, 1e-40, -87.4}
	ref := generic()
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for seed := range uint64(500) {
			rng := rand.New(rand.NewPCG(seed, 9))
			rows := 1 + rng.IntN(lanes)
			lo := rng.IntN(Page)
			hi := lo + 1 + rng.IntN(Page-lo)
			if rng.IntN(3) == 0 {
				lo, hi = 0, Page
			}
			s, check := guarded(t, rows*Page)
			fill(rng, s, 110)
			for range rng.IntN(4) {
				s[rng.IntN(len(s))] = special[rng.IntN(len(special))]
			}
			st := make([]float32, stSize)
			fill(rng, st, 50)
			for i := range lanes {
				st[stL+i] = rng.Float32() * 100
			}
			s2, st2 := append([]float32(nil), s...), append([]float32(nil), st...)
			kern.softmax(s, st, rows, lo, hi, 0.7)
			check()
			ref.softmax(s2, st2, rows, lo, hi, 0.7)
			for r := range rows {
				if st2[stL+r] != st2[stL+r] { // the row is NaN; which parts are is free
					if st[stL+r] == st[stL+r] {
						t.Fatalf("seed %d row %d: l = %g, want NaN", seed, r, st[stL+r])
					}
					continue
				}
				if e := diff(s[r*Page:(r+1)*Page], s2[r*Page:(r+1)*Page]); e != "" {
					t.Fatalf("seed %d row %d [%d,%d): p%s", seed, r, lo, hi, e)
				}
				for v := range 4 {
					if a, b := st[v*lanes+r]+0, st2[v*lanes+r]+0; math.Float32bits(a) != math.Float32bits(b) {
						t.Fatalf("seed %d row %d: state vector %d: %g, want %g", seed, r, v, a, b)
					}
				}
			}
			for r := rows; r < lanes; r++ {
				for v := range 4 {
					if st[v*lanes+r] != st2[v*lanes+r] {
						t.Fatalf("seed %d: row %d beyond %d was changed", seed, r, rows)
					}
				}
			}
		}
	})
}

// TestNoNegativeZero: a chain that ends at -0 by underflow becomes +0 before it
// is merged, which shows only where the older part has underflowed to -0 too.
func TestNoNegativeZero(t *testing.T) {
	const d = 8
	q := []float32{1, 0, 0, 0, 0, 0, 0, 0}
	c := newCache(66, d)
	put := func(j int, score, value float32) {
		k, v := make([]float32, d), make([]float32, d)
		k[0] = score
		for i := range v {
			v[i] = value
		}
		c.set(j, k, v)
	}
	for j := range 66 {
		put(j, -1000, 0)
	}
	put(0, 0, -1e-30)    // o = -1e-30, times exp(-60) gives -0
	put(64, 60, 0)       // m_b, weight 1
	put(65, -40, -1e-30) // exp(-100) · -1e-30 gives -0
	want := make([]float32, d)
	eachSet(t, func(t *testing.T, kern *Kernels) {
		for rows := 1; rows <= 12; rows++ {
			j := &Job{Q: q, QStride: 0, Out: make([]float32, rows*d), OutStride: d, Rows: rows, D: d, K: c.k, V: c.v, Scale: 1}
			for range rows {
				j.Lo, j.Hi = append(j.Lo, 0), append(j.Hi, 66)
			}
			kern.Attend(j, scratch(rows, d))
			for r := range rows {
				if e := diff(j.Out[r*d:(r+1)*d], want); e != "" {
					t.Fatalf("row %d of %d: out%s", r, rows, e)
				}
			}
		}
	})
}
