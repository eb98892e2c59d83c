package eval

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// table is a piece of a report: what it shows, columns, and a line for each memory.
type table struct {
	title string
	head  []string
	lines [][]string
}

// WriteTable prints a report for terminals: right answers by task, by length, and in
// recall by pairs, where each memory breaks, and how near it comes to the full cache
// on text. What was not asked is left out.
func WriteTable(w io.Writer, results []Result, seed uint64) error {
	for i, t := range tables(results, seed) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, t.title)
		for _, l := range append([][]string{t.head}, t.lines...) {
			fmt.Fprintln(out, strings.Join(l, "\t"))
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// WriteMarkdown prints the same as tables of Markdown.
func WriteMarkdown(w io.Writer, results []Result, seed uint64) error {
	var b strings.Builder
	for i, t := range tables(results, seed) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s:\n\n", t.title)
		for j, l := range append([][]string{t.head}, t.lines...) {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(l, " | "))
			if j == 0 {
				fmt.Fprintf(&b, "| --- | --- |%s\n", strings.Repeat(" ---: |", len(l)-2))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func tables(results []Result, seed uint64) []table {
	var asked, texts []Result
	for _, r := range results {
		if r.Task == Text {
			texts = append(texts, r)
		} else {
			asked = append(asked, r)
		}
	}
	var out []table
	if totals := Totals(asked, seed); len(totals) > 0 {
		out = append(out, byTask(common(asked), totals))
		out = append(out, along(asked, totals, "right answers by length, %", func(c cell) (int, cell) { return c.length, cell{c.task, 0, c.pairs} })...)
		out = append(out, along(asked, totals, "right answers in recall by pairs, %", func(c cell) (int, cell) { return c.pairs, cell{c.task, c.length, 0} })...)
		out = append(out, broken(asked, totals, seed)...)
	}
	if rows := Rows(texts, seed); len(rows) > 0 {
		out = append(out, textTable(rows))
	}
	return out
}

// label are the first columns of a memory.
func label(m memory) []string {
	if m.rows == 0 {
		return []string{m.method, "all"}
	}
	return []string{m.method, fmt.Sprint(m.rows)}
}

// mean is the mean share of right answers of some results, as whole percents; "" of
// none.
func mean(results []Result, of func(r *Result) bool) string {
	n, sum := 0, 0.0
	for i := range results {
		if of(&results[i]) {
			n++
			sum += results[i].share()
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", 100*sum/float64(n))
}

func byTask(results []Result, totals []Total) table {
	questions := 0
	for _, r := range results {
		if r.Method == Full {
			questions += r.Questions
		}
	}
	t := table{title: fmt.Sprintf("right answers to the %d questions about %d texts that all were asked, %%", questions, totals[0].Right.N), head: []string{"memory", "budget", "KiB"}}
	var names []Task
	for _, task := range append(slices.Clone(Forms), Worded...) {
		if slices.ContainsFunc(results, func(r Result) bool { return r.Task == task }) {
			names, t.head = append(names, task), append(t.head, string(task))
		}
	}
	t.head = append(t.head, "all", "of full")
	for _, m := range totals {
		k := memory{m.Method, m.Rows}
		l := append(label(k), fmt.Sprintf("%.0f", m.Bytes/1024))
		for _, task := range names {
			l = append(l, mean(results, func(r *Result) bool { return r.key().memory == k && r.Task == task }))
		}
		t.lines = append(t.lines, append(l, m.Right.String(), fmt.Sprintf("%.0f", 100*m.Relative.Mean)))
	}
	return t
}

// along is a table by a part of cells, which split tells from the rest. Its columns are
// the most that any rest was asked with, its answers those of the rests that were
// asked with all of them, so that columns differ in nothing else. Memories that were
// not are left out, and so is a table of one column.
func along(results []Result, totals []Total, title string, split func(c cell) (int, cell)) []table {
	of := map[cell][]int{}
	most := 0
	for _, r := range results {
		x, rest := split(r.key().cell)
		if x > 0 && r.Method == Full && !slices.Contains(of[rest], x) {
			of[rest] = append(of[rest], x)
			most = max(most, len(of[rest]))
		}
	}
	var columns []int
	for _, l := range of {
		slices.Sort(l)
		if len(l) == most && (columns == nil || slices.Compare(l, columns) < 0) { // of two sets the one of less
			columns = l
		}
	}
	if most < 2 {
		return nil
	}
	t := table{title: title, head: []string{"memory", "budget"}}
	for _, x := range columns {
		t.head = append(t.head, fmt.Sprint(x))
	}
	for _, m := range totals {
		k := memory{m.Method, m.Rows}
		l := label(k)
		for _, x := range columns {
			l = append(l, mean(results, func(r *Result) bool {
				y, rest := split(r.key().cell)
				return r.key().memory == k && y == x && slices.Equal(of[rest], columns)
			}))
		}
		if !slices.Contains(l, "") {
			t.lines = append(t.lines, l)
		}
	}
	if t.lines == nil {
		return nil
	}
	return []table{t}
}

// broken says where each memory is behind the full cache; none if nothing was judged.
func broken(results []Result, totals []Total, seed uint64) []table {
	breaks := Breaks(results, seed)
	if !slices.ContainsFunc(breaks, func(b Break) bool { return b.To > 0 }) {
		return nil
	}
	t := table{title: "where it breaks: the shortest length, or the fewest pairs, significantly below the full cache", head: []string{"memory", "budget"}}
	var columns []line
	for _, b := range breaks {
		c := b.line()
		if b.To == 0 || slices.Contains(columns, c) {
			continue
		}
		columns = append(columns, c)
	}
	slices.SortFunc(columns, byLine)
	for _, c := range columns {
		switch {
		case c.length > 0:
			t.head = append(t.head, fmt.Sprintf("pairs at %d", c.length))
		case c.pairs > 0:
			t.head = append(t.head, fmt.Sprintf("%s (%d)", c.task, c.pairs))
		default:
			t.head = append(t.head, string(c.task))
		}
	}
	for _, m := range totals {
		if m.Method == Full {
			continue
		}
		k := memory{m.Method, m.Rows}
		l := label(k)
		for _, c := range columns {
			text := "–" // the full cache knows nothing there
			for _, b := range breaks {
				if (memory{b.Method, b.Rows}) != k || b.line() != c || b.To == 0 {
					continue
				}
				if text = fmt.Sprint(b.At); b.At == 0 {
					text = fmt.Sprintf("> %d", b.To)
				}
			}
			l = append(l, text)
		}
		t.lines = append(t.lines, l)
	}
	return []table{t}
}

func textTable(rows []Row) table {
	t := table{title: fmt.Sprintf("held-out text, %d pieces of %d tokens", rows[0].Cosine.N, rows[0].Length), head: []string{"memory", "budget", "KiB", "perplexity", "cosine", "equal first choice, %", "KL, nats"}}
	for _, r := range rows {
		t.lines = append(t.lines, append(label(memory{r.Method, r.Rows}), fmt.Sprintf("%.0f", r.Bytes/1024), fmt.Sprintf("%.2f", math.Exp(r.Loss.Mean)),
			fmt.Sprintf("%.4f", r.Cosine.Mean), r.Top1.String(), fmt.Sprintf("%.4f", r.KL.Mean)))
	}
	return t
}
