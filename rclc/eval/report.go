package eval

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
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
	// Gain is by how much this method is right more often than Full, likewise.
	Gain Interval `json:"gain"`
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
		var correct, contains, share, whole, ahead, gain []float64
		l := groups[g]
		for _, r := range l {
			if r.Answered {
				correct, contains = append(correct, truth(r.Correct)), append(contains, truth(r.Contains))
				if f, ok := last[key{r.Case, CacheBack, r.Ratio}]; ok && f.Answered {
					ahead = append(ahead, truth(f.Contains)-truth(r.Contains))
				}
				if f, ok := last[key{r.Case, Full, 0}]; ok && f.Answered && r.Method != Full {
					gain = append(gain, truth(r.Contains)-truth(f.Contains))
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
		row.Recall, row.Whole = Bootstrap(share, seed), Bootstrap(whole, seed)
		row.Ahead, row.Gain = Bootstrap(ahead, seed), Bootstrap(gain, seed)
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

// WriteTable prints, for each kind of case, what share of the answers holds the
// right one, what share is equal to it and how much of the evidence was kept, a line
// per method and a column per ratio: percentages with their 95 % intervals. Methods
// without a ratio have one number. Last comes what a message costs.
func WriteTable(w io.Writer, rows []Row) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Kind == rows[0].Kind {
			n++
		}
		if err := writeKind(w, rows[:n]); err != nil {
			return err
		}
		if rows = rows[n:]; len(rows) > 0 {
			fmt.Fprintln(w)
		}
	}
	return nil
}

func writeKind(w io.Writer, rows []Row) error {
	var ratios []int
	var methods []string
	cases := 0
	for _, r := range rows {
		if r.Ratio > 0 && !slices.Contains(ratios, r.Ratio) {
			ratios = append(ratios, r.Ratio)
		}
		if !slices.Contains(methods, r.Method) {
			methods = append(methods, r.Method)
		}
		cases = max(cases, r.Correct.N, r.Recall.N)
	}
	slices.Sort(ratios)
	name := rows[0].Kind
	if name != "" {
		name += ", "
	}
	fmt.Fprintf(w, "%s%d cases\n", name, cases)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	block := func(title string, cell func(Row) string) {
		if !slices.ContainsFunc(rows, func(r Row) bool { return cell(r) != "" }) {
			return
		}
		line := "\n" + title
		for i, q := range ratios {
			line += "\t" + []string{"ratio ", ""}[min(i, 1)] + fmt.Sprint(q)
		}
		fmt.Fprintln(t, line)
		for _, m := range methods {
			cells := map[int]string{}
			for _, r := range rows {
				if r.Method == m && cell(r) != "" {
					cells[r.Ratio] = cell(r)
				}
			}
			switch line, flat := m, cells[0]; {
			case flat != "":
				fmt.Fprintln(t, line+"\t"+flat)
			case len(cells) > 0:
				for _, q := range ratios {
					line += "\t" + cells[q]
				}
				fmt.Fprintln(t, strings.TrimRight(line, "\t"))
			}
		}
	}
	block("right answers, %", func(r Row) string { return r.Contains.String() })
	block("equal answers, %", func(r Row) string { return r.Correct.String() })
	block("evidence kept, %", func(r Row) string { return r.Recall.String() })
	block("all of it kept, %", func(r Row) string { return r.Whole.String() })
	block("cacheback ahead, points", func(r Row) string {
		if r.Method == CacheBack {
			return ""
		}
		return r.Ahead.String()
	})
	block("ahead of full, points", func(r Row) string { return r.Gain.String() })
	block("positions; bytes", func(r Row) string {
		if r.Retained == 0 {
			return ""
		}
		return fmt.Sprintf("%.0f; %.0f", r.Retained, r.Bytes)
	})
	block("scoring, s", func(r Row) string {
		if r.Transfer == 0 || r.Ratio != ratios[0] { // scores do not depend on the ratio
			return ""
		}
		return fmt.Sprintf("%.3f", r.Transfer)
	})
	return t.Flush()
}
