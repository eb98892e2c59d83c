package cache

import (
	"slices"

	"samebit/state"
)

// node is a place in the radix tree of a key: the rows from the root to it. It
// may hold a checkpoint.
type node struct {
	up    *node
	run   run // rows between up and here, at least one except at the root
	end   int // rows from the root to here
	kids  map[int32]*node
	vecs  []*node // children that begin with a continuous row
	entry *entry
	marks []mark // rows (up.end, end] at which others went another way, rising
}

// mark counts the rows that diverged after pos rows.
type mark struct{ pos, n int }

// maxMarks bounds what an edge remembers; the oldest in place go first.
const maxMarks = 16

// child returns the child that begins as rows do.
func (n *node) child(rows []state.Row) *node {
	if rows[0].Vec == nil {
		return n.kids[rows[0].Token]
	}
	for _, k := range n.vecs {
		if k.run.common(rows[:1]) == 1 {
			return k
		}
	}
	return nil
}

func (n *node) put(k *node) {
	k.up = n
	if k.run.vec != nil && k.run.vec[0] != nil {
		n.vecs = append(n.vecs, k)
		return
	}
	if n.kids == nil {
		n.kids = map[int32]*node{}
	}
	n.kids[k.run.tok[0]] = k
}

// cutOff removes the child k.
func (n *node) cutOff(k *node) {
	if i := slices.Index(n.vecs, k); i >= 0 {
		n.vecs = slices.Delete(n.vecs, i, i+1)
		return
	}
	delete(n.kids, k.run.tok[0])
}

// found is where a walk ended: after depth rows, on the edge to node or at its
// end.
type found struct {
	node  *node
	depth int
}

// walk follows rows from the root as far as they agree and calls at for every
// checkpoint passed, rising.
func (n *node) walk(rows []state.Row, at func(*entry)) found {
	for {
		if n.entry != nil && at != nil {
			at(n.entry)
		}
		if n.end == len(rows) {
			return found{n, n.end}
		}
		k := n.child(rows[n.end:])
		if k == nil {
			return found{n, n.end}
		}
		if c := k.run.common(rows[n.end:]); c < k.run.len() {
			return found{k, n.end + c}
		}
		n = k
	}
}

// place returns the node after rows, which it makes if it has to.
func (n *node) place(rows []state.Row) *node {
	f := n.walk(rows, nil)
	at := f.node
	if f.depth < at.end {
		at = at.split(f.depth)
	}
	if f.depth < len(rows) {
		k := &node{run: makeRun(rows[f.depth:]), end: len(rows)}
		at.put(k)
		at = k
	}
	return at
}

// split makes a node on the edge to n, after end rows.
func (n *node) split(end int) *node {
	up, c := n.up, end-n.up.end
	m := &node{run: n.run.cut(0, c), end: end}
	up.cutOff(n)
	up.put(m)
	n.run = n.run.cut(c, n.run.len())
	m.put(n)
	i := slices.IndexFunc(n.marks, func(k mark) bool { return k.pos > end })
	if i < 0 {
		i = len(n.marks)
	}
	m.marks, n.marks = n.marks[:i:i], n.marks[i:]
	return m
}

// prune removes what leads to no checkpoint, from n up, and joins edges. It
// returns the root.
func (n *node) prune() *node {
	for n.up != nil && n.entry == nil && len(n.kids)+len(n.vecs) == 0 {
		up := n.up
		up.cutOff(n)
		n = up
	}
	if n.up != nil && n.entry == nil && len(n.kids)+len(n.vecs) == 1 {
		k := n.only()
		n.up.cutOff(n)
		k.run = n.run.join(k.run)
		n.up.put(k)
		k.marks = limited(slices.Concat(n.marks, k.marks))
	}
	for n.up != nil {
		n = n.up
	}
	return n
}

func (n *node) only() *node {
	for _, k := range n.kids {
		return k
	}
	return n.vecs[0]
}

func (n *node) empty() bool { return n.entry == nil && len(n.kids)+len(n.vecs) == 0 }

// diverged notes that rows went another way after depth rows, a place on n's edge
// or its end, and returns how many have by now.
func (n *node) diverged(depth int) int {
	i, ok := slices.BinarySearchFunc(n.marks, depth, func(m mark, p int) int { return m.pos - p })
	if !ok {
		n.marks = limited(slices.Insert(n.marks, i, mark{pos: depth}))
		if i, ok = slices.BinarySearchFunc(n.marks, depth, func(m mark, p int) int { return m.pos - p }); !ok {
			return 1
		}
	}
	n.marks[i].n++
	return n.marks[i].n
}

// limited keeps the marks that were seen most.
func limited(m []mark) []mark {
	for len(m) > maxMarks {
		least := 0
		for i := range m {
			if m[i].n > 0 && (m[least].n == 0 || m[i].n < m[least].n) {
				least = i
			}
		}
		m = slices.Delete(m, least, least+1)
	}
	return m
}

// rows returns all rows before n.
func (n *node) rows() []state.Row {
	var path []*node
	for m := n; m.up != nil; m = m.up {
		path = append(path, m)
	}
	rows := make([]state.Row, 0, n.end)
	for _, m := range slices.Backward(path) {
		rows = m.run.appendTo(rows)
	}
	return rows
}

// below calls f for the checkpoints under n that have no other between.
func (n *node) below(f func(*entry)) {
	visit := func(k *node) {
		if k.entry != nil {
			f(k.entry)
		} else {
			k.below(f)
		}
	}
	for _, k := range n.kids {
		visit(k)
	}
	for _, k := range n.vecs {
		visit(k)
	}
}

// donor finds a checkpoint in memory at n or below, looking at few places.
func (n *node) donor(looked *int) *entry {
	if n.entry != nil && n.entry.snap != nil {
		return n.entry
	}
	for _, k := range n.kids {
		if *looked++; *looked > 64 {
			return nil
		}
		if e := k.donor(looked); e != nil {
			return e
		}
	}
	for _, k := range n.vecs {
		if *looked++; *looked > 64 {
			return nil
		}
		if e := k.donor(looked); e != nil {
			return e
		}
	}
	return nil
}
