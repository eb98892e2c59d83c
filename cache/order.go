package cache

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// Order says which checkpoint goes first when the budget is exceeded.
type Order uint8

const (
	// Cost weighs the rows that would have to be run again against the bytes that
	// would become free, and lets what was not used for long fade.
	Cost Order = iota
	// LRU takes the one that was used least recently.
	LRU
)

func (o Order) String() string {
	if o == LRU {
		return "LRU"
	}
	return "cost"
}

// order keeps the resident checkpoints.
type order interface {
	add(e *entry)
	touch(e *entry)
	remove(e *entry)
	victim() *entry   // nil when all are pinned; it stays until removed
	ranked() []*entry // the next victim first
}

// lru is a list with the least recently used first.
type lru struct{ head entry }

func newLRU() *lru {
	l := &lru{}
	l.head.prev, l.head.next = &l.head, &l.head
	return l
}

func (l *lru) add(e *entry) {
	e.prev, e.next = l.head.prev, &l.head
	e.prev.next, e.next.prev = e, e
}

func (l *lru) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

func (l *lru) touch(e *entry) {
	l.remove(e)
	l.add(e)
}

func (l *lru) victim() *entry {
	for e := l.head.next; e != &l.head; e = e.next {
		if e.pins == 0 {
			return e
		}
	}
	return nil
}

func (l *lru) ranked() (all []*entry) {
	for e := l.head.next; e != &l.head; e = e.next {
		all = append(all, e)
	}
	return all
}

// costs orders by worth, the rows that would have to be run again (the distance
// from the checkpoint before) per byte that would become free, halved for every
// halfLife of the cache's turnover since the last use: as a logarithm
//
//	log2(rows/bytes) + age,   age = turnovers/halfLife when it was last used,
//
// which changes with the neighbours only, so it is computed again before its
// holder goes. Without fading, the many checkpoints in the middle of old texts,
// which free little, would outlive the ends of the texts under way.
type costs struct {
	list   []*entry
	ledger *ledger
	age    float64
	seq    int64 // decides ties, the older first
}

// halfLife is in turnovers: uses divided by the checkpoints there are. On the
// traces of package agenttrace 1/2 loses a tenth of what dense models could reuse;
// 1/16 is within a percent of LRU where budgets are ample and better where they are
// not (go test -bench Reuse ./cache/agenttrace).
const halfLife = 1.0 / 16

func (c *costs) worth(e *entry) float64 {
	n := e.at.up
	for n != nil && n.entry == nil {
		n = n.up
	}
	rows := e.pos()
	if n != nil {
		rows -= n.end
	}
	w := math.Log2(float64(rows) / float64(max(c.ledger.frees(e.snap), 1)))
	return e.age + w
}

// use moves time on.
func (c *costs) use(e *entry) {
	c.age += 1 / (halfLife * float64(len(c.list)+1))
	e.age = c.age
}

func (c *costs) add(e *entry) {
	c.seq++
	e.seq = c.seq
	c.use(e)
	e.prio = c.worth(e)
	heap.Push(c, e)
	// Those behind e now have less to lose.
	e.at.below(func(b *entry) {
		if b.resident && b != e {
			c.again(b)
		}
	})
}

func (c *costs) touch(e *entry) {
	c.use(e)
	c.again(e)
}

func (c *costs) again(e *entry) {
	e.prio = c.worth(e)
	heap.Fix(c, e.heap)
}

func (c *costs) remove(e *entry) { heap.Remove(c, e.heap) }

func (c *costs) victim() *entry {
	var aside []*entry
	defer func() {
		for _, e := range aside {
			heap.Push(c, e)
		}
	}()
	for len(c.list) > 0 {
		e := c.list[0]
		if e.pins > 0 {
			heap.Pop(c)
			aside = append(aside, e)
			continue
		}
		old := e.prio
		if c.again(e); e.prio > old && c.list[0] != e {
			continue
		}
		return e
	}
	return nil
}

func (c *costs) ranked() []*entry {
	return slices.SortedFunc(slices.Values(c.list), func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.prio, b.prio), cmp.Compare(a.seq, b.seq))
	})
}

func (c *costs) Len() int { return len(c.list) }
func (c *costs) Less(i, j int) bool {
	a, b := c.list[i], c.list[j]
	return a.prio < b.prio || a.prio == b.prio && a.seq < b.seq
}
func (c *costs) Swap(i, j int) {
	c.list[i], c.list[j] = c.list[j], c.list[i]
	c.list[i].heap, c.list[j].heap = i, j
}
func (c *costs) Push(x any) {
	e := x.(*entry)
	e.heap = len(c.list)
	c.list = append(c.list, e)
}
func (c *costs) Pop() any {
	e := c.list[len(c.list)-1]
	c.list[len(c.list)-1] = nil
	c.list = c.list[:len(c.list)-1]
	return e
}
