package eval

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Row sums up what a method did at a ratio.
type Row struct {
	Kind     string   `json:"kind,omitempty"` // of cases
	Method   string   `json:"selector"`
	Ratio    int      `json:"ratio,omitempty"`
	Correct  Interval `json:"correct"`  // share of answers that are equal
	Contains Interval `json:"contains"` // share that hold the answer
	Recall   Interval `json:"recall"`   // mean share of the evidence's positions that were kept
	Whole    Interval `json:"whole"`    // share of cases whose evidence was kept to the last position
	Retained float64  `json:"retained_positions"`
	Bytes    float64  `json:"payload_bytes"`
	Transfer float64  `json:"transfer_seconds"`
	// Ahead is by how much CacheBack is right more often than this method, in the
	// sense of Contains, on the same cases at the same ratio.
	Ahead Interval `json:"ahead"`
}

// Report sums results up, kind by kind, in the order of Methods and rising ratios.
// Only the last result of a case counts for each method and ratio. Intervals come
// from Bootstrap with the seed.
func Report(results []Result, seed uint64) []Row {
	last := map[key]Result{}
	for _, r := range results {
		last[key{r.Case, r.Method, r.Ratio}] = r
	}
	type group struct {
		kind, method string
		ratio        int
	}
	groups := map[group][]Result{}
	for _, r := range last {
		g := group{r.Kind, r.Method, r.Ratio}
		groups[g] = append(groups[g], r)
	}
	var names []group
	for g, l := range groups {
		names = append(names, g)
		slices.SortFunc(l, func(a, b Result) int { return cmp.Compare(a.Case, b.Case) })
	}
	slices.SortFunc(names, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(slices.Index(Methods, a.method), slices.Index(Methods, b.method)), cmp.Compare(a.ratio, b.ratio))
	})
	var out []Row
	for _, g := range names {
		row := Row{Kind: g.kind, Method: g.method, Ratio: g.ratio}
		var correct, contains, share, whole, ahead []float64
		l := groups[g]
		for _, r := range l {
			if r.Answered {
				correct, contains = append(correct, truth(r.Correct)), append(contains, truth(r.Contains))
				if f, ok := last[key{r.Case, CacheBack, r.Ratio}]; ok && f.Answered {
					ahead = append(ahead, truth(f.Contains)-truth(r.Contains))
				}
			}
			if r.Gold > 0 {
				share, whole = append(share, float64(r.GoldKept)/float64(r.Gold)), append(whole, truth(r.GoldKept == r.Gold))
			}
			row.Retained += float64(r.Retained) / float64(len(l))
			row.Bytes += float64(r.Bytes) / float64(len(l))
			row.Transfer += r.Transfer / float64(len(l))
		}
		row.Correct, row.Contains = Bootstrap(correct, seed), Bootstrap(contains, seed)
		row.Recall, row.Whole, row.Ahead = Bootstrap(share, seed), Bootstrap(whole, seed), Bootstrap(ahead, seed)
		out = append(out, row)
	}
	return out
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// WriteTable prints rows as a table: percentages with their 95 % intervals.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	kind := ""
	for i, r := range rows {
		if i == 0 || r.Kind != kind {
			if kind = r.Kind; i > 0 {
				fmt.Fprintln(t)
			}
			if kind != "" {
				fmt.Fprintf(t, "%s\n", kind)
			}
			fmt.Fprintf(t, "selector\tratio\tcases\tanswer right %%\tequal %%\tevidence kept %%\tall of it %%\tpositions\tbytes\tscoring s\n")
		}
		ratio := "-"
		if r.Ratio > 0 {
			ratio = fmt.Sprint(r.Ratio)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%.0f\t%.0f\t%.3f\n", r.Method, ratio, max(r.Correct.N, r.Recall.N), r.Contains, r.Correct, r.Recall, r.Whole, r.Retained, r.Bytes, r.Transfer)
	}
	return t.Flush()
}

// String is the interval in percent, "-" for none.
func (i Interval) String() string {
	if i.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f [%.1f, %.1f]", 100*i.Mean, 100*i.Low, 100*i.High)
}
