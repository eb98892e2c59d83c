package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"samebit/state"
)

// The tree against a list: random rows, continuous ones among them, put and taken
// away.
func TestTreeIsAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	random := func() []state.Row {
		l := make([]state.Row, 1+rng.IntN(12))
		for i := range l {
			l[i].Token = int32(rng.IntN(2))
			if rng.IntN(4) == 0 {
				l[i] = state.Row{Token: 5, Vec: []float32{float32(rng.IntN(2))}}
			}
		}
		return l
	}
	for range 60 {
		root := &node{}
		var list []*entry
		rows := map[*entry][]state.Row{}
		for range 80 {
			if l := random(); rng.IntN(3) > 0 || len(list) == 0 {
				n := root.place(l)
				if n.entry == nil {
					n.entry = &entry{at: n}
					list = append(list, n.entry)
					rows[n.entry] = l
				} else if commonRows(rows[n.entry], l) != len(l) || len(rows[n.entry]) != len(l) {
					t.Fatal("an entry at the place of other rows")
				}
			} else {
				i := rng.IntN(len(list))
				e := list[i]
				list = slices.Delete(list, i, i+1)
				e.at.entry = nil
				if e.at.prune() != root {
					t.Fatal("prune ends elsewhere")
				}
			}
			q := random()
			var best *entry
			deepest := 0
			for _, e := range list {
				c := commonRows(rows[e], q)
				deepest = max(deepest, c)
				if c == len(rows[e]) && (best == nil || c > best.pos()) {
					best = e
				}
			}
			var got *entry
			f := root.walk(q, func(e *entry) { got = e })
			if got != best || f.depth != deepest {
				t.Fatalf("found %v after %d rows, want %v after %d", got, f.depth, best, deepest)
			}
			seen := 0
			checkTree(t, root, rows, &seen)
			if seen != len(list) {
				t.Fatalf("%d entries in the tree, want %d", seen, len(list))
			}
		}
	}
}

func checkTree(t *testing.T, n *node, rows map[*entry][]state.Row, seen *int) {
	t.Helper()
	if n.entry != nil {
		*seen++
		if l := n.rows(); n.entry.at != n || len(l) != n.end || commonRows(l, rows[n.entry]) != n.end {
			t.Fatal("an entry has other rows than its place")
		}
	}
	kids := slices.Clone(n.vecs)
	for _, k := range n.kids {
		kids = append(kids, k)
	}
	if n.up != nil && n.entry == nil && len(kids) < 2 {
		t.Fatal("a node without a purpose")
	}
	for _, k := range kids {
		if k.up != n || k.run.len() == 0 || k.end != n.end+k.run.len() {
			t.Fatal("a broken edge")
		}
		checkTree(t, k, rows, seen)
	}
}

// What a place remembers survives splits and joins of edges, within its bound.
func TestMarks(t *testing.T) {
	root := &node{}
	n := root.place(count(100, 100))
	n.entry = &entry{at: n}
	for d := 1; d <= 40; d++ {
		n.diverged(d)
	}
	if len(n.marks) > maxMarks {
		t.Errorf("%d marks on an edge", len(n.marks))
	}
	n.marks = nil
	for range 2 {
		n.diverged(30)
	}
	m := root.place(count(50, 30)) // splits at 30
	m.entry = &entry{at: m}
	if f := root.walk(count(50, 30)[:30], nil); f.node.diverged(30) != 3 {
		t.Error("the mark is lost in a split")
	}
	m.entry = nil
	m.prune() // joins again
	if got := n.diverged(30); got != 4 {
		t.Errorf("%d after a join, want 4", got)
	}
}
