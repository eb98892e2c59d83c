package eval

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"

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
	// Breaks names, task by task, the first length at which less than half of the full
	// cache's right answers are left; tasks without such a length are left out.
	Breaks map[Task]int `json:"breaks,omitempty"`
}

func (r *Result) share() float64 { return float64(r.Right) / float64(max(1, r.Questions)) }

// Rows sums results up in the order of tasks, lengths, pairs, Methods and budgets.
// Intervals follow from the seed.
func Rows(results []Result, seed uint64) []Row {
	groups := map[key][]Result{}
	for _, r := range results {
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
		return cmp.Or(cmp.Compare(order(a.Task), order(b.Task)), cmp.Compare(a.Length, b.Length), cmp.Compare(a.Pairs, b.Pairs),
			cmp.Compare(slices.Index(Methods, a.Method), slices.Index(Methods, b.Method)), cmp.Compare(a.Rows, b.Rows))
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
	return slices.Index(append(append(slices.Clone(Forms), English...), Text), t)
}

// Totals sums results up over all tasks, context by context.
func Totals(results []Result, seed uint64) []Total {
	full := map[key]float64{}
	type group struct {
		method string
		rows   int
	}
	groups := map[group][]Result{}
	for _, r := range results {
		if r.Task == Text {
			continue
		}
		if r.Method == Full {
			k := r.key()
			k.method = ""
			full[k] = r.share()
		}
		g := group{r.Method, r.Rows}
		groups[g] = append(groups[g], r)
	}
	var out []Total
	for g, l := range groups {
		slices.SortFunc(l, func(a, b Result) int {
			return cmp.Or(cmp.Compare(order(a.Task), order(b.Task)), cmp.Compare(a.Length, b.Length), cmp.Compare(a.Pairs, b.Pairs), cmp.Compare(a.Index, b.Index))
		})
		t := Total{Method: g.method, Rows: g.rows}
		var right, whole []float64
		for i := range l {
			k := l[i].key()
			k.method, k.rows = "", 0
			if f, ok := full[k]; ok {
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
		return cmp.Or(cmp.Compare(slices.Index(Methods, a.Method), slices.Index(Methods, b.Method)), cmp.Compare(a.Rows, b.Rows))
	})
	rows := Rows(results, seed)
	for i := range out {
		t := &out[i]
		for _, r := range rows { // lengths rise within a task
			if r.Method != t.Method || r.Rows != t.Rows || r.Task == Text || r.Relative >= 0.5 {
				continue
			}
			if _, ok := t.Breaks[r.Task]; !ok && hasFull(rows, r) {
				if t.Breaks == nil {
					t.Breaks = map[Task]int{}
				}
				t.Breaks[r.Task] = r.Length
			}
		}
	}
	return out
}

// hasFull reports whether the full cache knows anything in the cell of a row.
func hasFull(rows []Row, r Row) bool {
	return slices.ContainsFunc(rows, func(f Row) bool {
		return f.Method == Full && f.Task == r.Task && f.Length == r.Length && f.Pairs == r.Pairs && f.Right.Mean > 0
	})
}

// WriteTable prints right answers by task and length, a line for each method and
// budget, then what they make together, and how near text comes to the full cache.
func WriteTable(w io.Writer, results []Result, seed uint64) error {
	rows, totals := Rows(results, seed), Totals(results, seed)
	var cells []cell
	for _, r := range rows {
		if c := (cell{r.Task, r.Length, r.Pairs}); r.Task != Text && !slices.Contains(cells, c) {
			cells = append(cells, c)
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(cells) > 0 {
		fmt.Fprint(t, "right answers, %\tbudget")
		for _, c := range cells {
			fmt.Fprintf(t, "\t%s %d", c.task, c.length)
			if c.pairs > 0 {
				fmt.Fprintf(t, " (%d)", c.pairs)
			}
		}
		fmt.Fprintln(t, "\tall\tof full\tKiB")
	}
	for _, m := range totals {
		fmt.Fprint(t, m.Method)
		budget := "all"
		if m.Rows > 0 {
			budget = fmt.Sprint(m.Rows)
		}
		fmt.Fprint(t, "\t"+budget)
		for _, c := range cells {
			i := slices.IndexFunc(rows, func(r Row) bool {
				return r.Method == m.Method && r.Rows == m.Rows && (cell{r.Task, r.Length, r.Pairs}) == c
			})
			if i < 0 {
				fmt.Fprint(t, "\t")
				continue
			}
			fmt.Fprintf(t, "\t%.0f", 100*rows[i].Right.Mean)
		}
		fmt.Fprintf(t, "\t%s\t%.0f\t%.0f\n", m.Right, 100*m.Relative.Mean, m.Bytes/1024)
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Task == Text }) {
		fmt.Fprintln(t, "\ntext\tbudget\tperplexity\tcosine\tequal first choice, %\tKL, nats\tKiB")
		for _, r := range rows {
			if r.Task == Text {
				fmt.Fprintf(t, "%s\t%d\t%.2f\t%.4f\t%s\t%.4f\t%.0f\n", r.Method, r.Rows, math.Exp(r.Loss.Mean), r.Cosine.Mean, r.Top1, r.KL.Mean, r.Bytes/1024)
			}
		}
	}
	return t.Flush()
}
