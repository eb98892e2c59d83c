package eval

import (
	"cmp"
	"maps"
	"slices"

	"samebit/internal/interval"
)

// Break is where a memory falls behind the full cache: along the length of the texts,
// or, in the task recall, along the number of pairs in texts of one length. A memory
// is behind where the 95 % bootstrap interval of what it lacks in right answers,
// context by context, lies above 0.
type Break struct {
	Method string `json:"method"`
	Rows   int    `json:"budget_rows,omitempty"`
	Task   Task   `json:"task"`
	Pairs  int    `json:"pairs,omitempty"`  // of recall, along lengths
	Length int    `json:"length,omitempty"` // along pairs; else 0
	At     int    `json:"at,omitempty"`     // the shortest length, or the fewest pairs, where it is behind; 0: nowhere
	To     int    `json:"to,omitempty"`     // the largest one that was judged; 0: none
}

// leastContexts are those that a cell needs to be judged: with fewer, a difference of
// one sign happens by chance too often.
const leastContexts = 5

// line is what a break lies on.
type line struct {
	memory
	task          Task
	length, pairs int
}

// line is that of a break, whatever the memory.
func (b Break) line() line { return line{task: b.Task, length: b.Length, pairs: b.Pairs} }

// byLine puts lines along lengths first.
func byLine(a, b line) int {
	return cmp.Or(cmp.Compare(a.length, b.length), cmp.Compare(order(a.task), order(b.task)), cmp.Compare(a.pairs, b.pairs))
}

// Breaks finds them. Cells are judged that have at least five contexts, and where the
// full cache knows answers: the interval of its own lies above 0. Lines of one cell
// are left out along pairs, and in recall along lengths if there are lines along pairs.
func Breaks(results []Result, seed uint64) []Break {
	results = slices.Clone(results) // intervals do not depend on when a run was stopped
	slices.SortStableFunc(results, func(a, b Result) int { return cmp.Compare(a.Index, b.Index) })
	full := wholes(results)
	var memories []memory
	for _, r := range results {
		if m := r.key().memory; !slices.Contains(memories, m) {
			memories = append(memories, m)
		}
	}
	slices.SortFunc(memories, byMemory)
	type differences struct{ lacks, whole []float64 }
	cells := map[memory]map[cell]*differences{}
	for _, r := range results {
		k := r.key()
		m := k.memory
		f, ok := full[k.context()]
		if !ok || r.Method == Full {
			continue
		}
		if cells[m] == nil {
			cells[m] = map[cell]*differences{}
		}
		if cells[m][k.cell] == nil {
			cells[m][k.cell] = &differences{}
		}
		d := cells[m][k.cell]
		d.lacks, d.whole = append(d.lacks, f-r.share()), append(d.whole, f)
	}
	var out []Break
	for _, m := range memories {
		found := map[line]*Break{}
		count := map[line]int{}
		for c, d := range cells[m] {
			judged := len(d.lacks) >= leastContexts && interval.Bootstrap(d.whole, seed).Low > 0
			behind := judged && interval.Bootstrap(d.lacks, seed).Low > 0
			at := func(l line, x int) {
				b := found[l]
				if b == nil {
					b = &Break{Method: m.method, Rows: m.rows, Task: c.task, Pairs: l.pairs, Length: l.length}
					found[l] = b
				}
				count[l]++
				if judged {
					b.To = max(b.To, x)
				}
				if behind && (b.At == 0 || x < b.At) {
					b.At = x
				}
			}
			at(line{m, c.task, 0, c.pairs}, c.length)
			if c.task == Recall {
				at(line{m, c.task, c.length, 0}, c.pairs)
			}
		}
		alongPairs := func(l line) bool { return l.length > 0 && count[l] > 1 }
		pairs := slices.ContainsFunc(slices.Collect(maps.Keys(found)), alongPairs)
		var list []Break
		for l, b := range found {
			if alongPairs(l) || l.length == 0 && (l.pairs == 0 || !pairs || count[l] > 1) {
				list = append(list, *b)
			}
		}
		slices.SortFunc(list, func(a, b Break) int {
			return byLine(a.line(), b.line())
		})
		out = append(out, list...)
	}
	return out
}
