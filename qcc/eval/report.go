package eval

import (
	"cmp"
	"slices"

	"samebit/internal/interval"
)

// Interval is a mean with its 95 % bootstrap interval over contexts.
type Interval = interval.Interval

// Row sums up what a method did with a budget in one cell.
type Row struct {
	Task     Task     `json:"task"`
	Length   int      `json:"length"`
	Pairs    int      `json:"pairs,omitempty"`
	Method   string   `json:"method"`
	Rows     int      `json:"budget_rows,omitempty"`
	Tokens   float64  `json:"tokens"`
	Bytes    float64  `json:"state_bytes"`
	Right    Interval `json:"right"`    // share of right answers
	Relative float64  `json:"relative"` // to that of the full cache; 0 if that is 0

	Loss, Cosine, Top1, KL *Interval `json:",omitempty"` // of text
}

// Total sums up what a method did with a budget in all cells of tasks.
type Total struct {
	Method   string   `json:"method"`
	Rows     int      `json:"budget_rows,omitempty"`
	Bytes    float64  `json:"state_bytes"`
	Right    Interval `json:"right"`
	Relative Interval `json:"relative"` // right answers per right answer of the full cache
}

func (r *Result) share() float64 { return float64(r.Right) / float64(max(1, r.Questions)) }

// Rows sums results up in the order of tasks, lengths, pairs, Methods and budgets.
// Intervals follow from the seed. Results of text without a fidelity, which [Read]
// refuses, are left out.
func Rows(results []Result, seed uint64) []Row {
	groups := map[key][]Result{}
	for _, r := range results {
		if r.Task == Text && r.Fidelity == nil {
			continue
		}
		k := r.key()
		k.index = 0
		groups[k] = append(groups[k], r)
	}
	var out []Row
	for k, l := range groups {
		slices.SortFunc(l, func(a, b Result) int { return cmp.Compare(a.Index, b.Index) })
		row := Row{Task: k.task, Length: k.length, Pairs: k.pairs, Method: k.method, Rows: k.rows}
		mean := func(f func(r *Result) float64) Interval {
			var v []float64
			for i := range l {
				v = append(v, f(&l[i]))
			}
			return interval.Bootstrap(v, seed)
		}
		row.Bytes = mean(func(r *Result) float64 { return float64(r.Bytes) }).Mean
		row.Tokens = mean(func(r *Result) float64 { return float64(r.Tokens) }).Mean
		if k.task == Text {
			of := func(f func(f *Fidelity) float64) *Interval {
				v := mean(func(r *Result) float64 { return f(r.Fidelity) })
				return &v
			}
			row.Loss, row.Cosine = of(func(f *Fidelity) float64 { return f.Loss }), of(func(f *Fidelity) float64 { return f.Cosine })
			row.Top1, row.KL = of(func(f *Fidelity) float64 { return f.Top1 }), of(func(f *Fidelity) float64 { return f.KL })
		} else {
			row.Right = mean((*Result).share)
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(byCell(cell{a.Task, a.Length, a.Pairs}, cell{b.Task, b.Length, b.Pairs}), byMemory(memory{a.Method, a.Rows}, memory{b.Method, b.Rows}))
	})
	full := map[cell]float64{}
	for _, r := range out {
		if r.Method == Full {
			full[cell{r.Task, r.Length, r.Pairs}] = r.Right.Mean
		}
	}
	for i := range out {
		if f := full[cell{out[i].Task, out[i].Length, out[i].Pairs}]; f > 0 {
			out[i].Relative = out[i].Right.Mean / f
		}
	}
	return out
}

func order(t Task) int {
	return slices.Index(append(append(slices.Clone(Forms), Worded...), Text), t)
}

// byCell orders cells as reports do.
func byCell(a, b cell) int {
	return cmp.Or(cmp.Compare(order(a.task), order(b.task)), cmp.Compare(a.length, b.length), cmp.Compare(a.pairs, b.pairs))
}

// context is the key of what all memories are asked at once.
func (k key) context() key {
	k.memory = memory{}
	return k
}

// wholes are the shares of right answers of the full cache, by context.
func wholes(results []Result) map[key]float64 {
	full := map[key]float64{}
	for _, r := range results {
		if r.Method == Full && r.Task != Text {
			full[r.key().context()] = r.share()
		}
	}
	return full
}

// byMemory orders memories as reports do: as Methods, then adapters by name, each
// with its bare window behind it.
func byMemory(a, b memory) int {
	at := func(m string) int {
		if i := slices.Index(Methods, m); i >= 0 {
			return i
		}
		return len(Methods)
	}
	return cmp.Or(cmp.Compare(at(a.method), at(b.method)), cmp.Compare(a.method, b.method), cmp.Compare(a.rows, b.rows))
}

// common are the results of the cells that all memories were asked, so that their
// totals are of the same questions; all if there are none.
func common(results []Result) []Result {
	asked, memories := map[cell]map[memory]bool{}, map[memory]bool{}
	for _, r := range results {
		k := r.key()
		if r.Task == Text {
			continue
		}
		if asked[k.cell] == nil {
			asked[k.cell] = map[memory]bool{}
		}
		asked[k.cell][k.memory], memories[k.memory] = true, true
	}
	var out []Result
	for _, r := range results {
		if len(asked[r.key().cell]) == len(memories) {
			out = append(out, r)
		}
	}
	if out == nil {
		return results
	}
	return out
}

// Totals sums results up over the tasks, lengths and numbers of pairs that all
// memories were asked, or over all if there are none, context by context.
func Totals(results []Result, seed uint64) []Total {
	results = common(results)
	full := wholes(results)
	groups := map[memory][]Result{}
	for _, r := range results {
		if r.Task == Text {
			continue
		}
		g := r.key().memory
		groups[g] = append(groups[g], r)
	}
	var out []Total
	for g, l := range groups {
		slices.SortFunc(l, func(a, b Result) int {
			return cmp.Or(byCell(a.key().cell, b.key().cell), cmp.Compare(a.Index, b.Index))
		})
		t := Total{Method: g.method, Rows: g.rows}
		var right, whole []float64
		for i := range l {
			if f, ok := full[l[i].key().context()]; ok {
				right, whole = append(right, l[i].share()), append(whole, f)
			}
			t.Bytes += float64(l[i].Bytes) / float64(len(l))
		}
		t.Right = interval.Bootstrap(right, seed)
		if f := interval.Bootstrap(whole, seed).Mean; f > 0 {
			// of the full cache's mean, not context by context: that may be 0
			t.Relative = Interval{N: t.Right.N, Mean: t.Right.Mean / f, Low: t.Right.Low / f, High: t.Right.High / f}
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Total) int {
		return byMemory(memory{a.Method, a.Rows}, memory{b.Method, b.Rows})
	})
	return out
}
