package emu

import (
	"math/bits"
)

// group is lanes of a warp that stand at the same block.
type group struct {
	pc   int32
	mask uint32
	held bool // waits for other lanes of the warp
}

// warp is 32 threads in lock step. Where a branch parts them, the group at the
// lowest block runs first, and groups that meet join: in the layout of compilers,
// where a block lies before those that follow it, this is where the branches end.
type warp struct {
	b      *worker
	index  int
	r32    []v32
	r64    []v64
	pred   []uint32
	t32    v32
	t64    v64
	addr   [32]uint64
	alive  uint32 // lanes that have not returned
	group         // that runs
	parked []group
	epoch  uint32 // time of the last barrier of the warp
	wait   int32  // barrier that it waits at, -1 for none
	fault  *Fault
}

// park puts a group aside, or joins it to one at the same block.
func (w *warp) park(g group) {
	for i := range w.parked {
		if p := &w.parked[i]; p.pc == g.pc {
			p.mask |= g.mask
			p.held = false
			return
		}
	}
	w.parked = append(w.parked, g)
}

// lowest takes the runnable parked group at the lowest block as the one that runs.
func (w *warp) lowest() bool {
	best := -1
	for i, g := range w.parked {
		if !g.held && (best < 0 || g.pc < w.parked[best].pc) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	w.group = w.parked[best]
	w.parked[best] = w.parked[len(w.parked)-1]
	w.parked = w.parked[:len(w.parked)-1]
	return true
}

// meet chooses the group that runs next when others are parked.
func (w *warp) meet() {
	w.park(w.group)
	w.lowest() // the one just parked can run at least
}

// ready reports whether all lanes that the first instruction of a block waits
// for are in the running group.
func (w *warp) ready(b *block) bool {
	if b.end == waits && len(b.code) == 0 {
		return w.mask == w.alive
	}
	if !b.sync {
		return true
	}
	in := &b.code[0]
	for x := w.mask; x != 0; x &= x - 1 {
		if w.r32[in.e][bits.TrailingZeros32(x)]&w.alive&^w.mask != 0 {
			return false
		}
	}
	return true
}

// state is where a warp stopped.
type state uint8

const (
	ended state = iota
	waiting
	faulted
)

// run runs a warp up to a barrier of its block or its end.
func (w *warp) run() state {
	b := w.b
	blocks := b.p.blocks
	for {
		if len(w.parked) > 0 {
			w.meet()
			for !w.ready(&blocks[w.pc]) {
				g := w.group
				g.held = true
				w.parked = append(w.parked, g)
				if !w.lowest() {
					w.stuck(blocks)
					return faulted
				}
			}
		}
		blk := &blocks[w.pc]
		b.visits[w.pc]++
		b.lanes[w.pc] += int64(bits.OnesCount32(w.mask))
		if b.steps--; b.steps < 0 {
			w.fail(Runaway, blk.firstLine(), bits.TrailingZeros32(w.mask), "more than %d blocks of instructions: does a loop not end?", b.most)
			return faulted
		}
		for i := range blk.code {
			in := &blk.code[i]
			m := w.mask
			if in.guard >= 0 {
				p := w.pred[in.guard]
				if in.not {
					p = ^p
				}
				if m &= p; m != w.mask {
					b.idle[in.class] += int64(bits.OnesCount32(w.mask &^ m))
					if m == 0 {
						continue
					}
				}
			}
			in.run(w, in, m)
			if w.fault != nil {
				return faulted
			}
		}
		taken := w.mask
		if blk.guard >= 0 {
			if p := w.pred[blk.guard]; blk.not {
				taken &^= p
			} else {
				taken &= p
			}
		}
		switch blk.end {
		case falls:
			w.pc++
		case branches:
			switch {
			case taken == 0:
				w.pc++
			case taken == w.mask:
				w.pc = blk.target
			case blk.target == w.pc+1:
				w.pc++
			default:
				b.count.Diverged++
				w.park(group{pc: blk.target, mask: taken})
				w.mask &^= taken
				w.pc++
			}
		case selects:
			if !w.choose(blk) {
				return faulted
			}
		case returns:
			w.alive &^= taken
			w.mask &^= taken
			w.pc++
			for i := range w.parked {
				w.parked[i].held = false
			}
			if w.mask == 0 && !w.lowest() {
				return ended
			}
		case waits:
			w.wait = blk.barrier
			return waiting
		}
	}
}

// choose sends each lane to its entry of a table.
func (w *warp) choose(blk *block) bool {
	from := w.group
	for x := from.mask; x != 0; x &= x - 1 {
		i := bits.TrailingZeros32(x)
		k := w.r32[blk.slot][i]
		if uint64(k) >= uint64(len(blk.targets)) {
			w.fail(OutOfBounds, blk.line, i, "entry %d of a table of %d targets", k, len(blk.targets))
			return false
		}
		w.park(group{pc: blk.targets[k], mask: 1 << i})
	}
	n := len(w.parked)
	if n > 1 {
		w.b.count.Diverged++
	}
	return w.lowest()
}

// stuck reports lanes that wait for each other.
func (w *warp) stuck(blocks []block) {
	g := w.parked[0]
	for _, o := range w.parked {
		if o.pc < g.pc {
			g = o
		}
	}
	line := blocks[g.pc].firstLine()
	w.fail(Deadlock, line, bits.TrailingZeros32(g.mask), "lanes %08x wait for lanes %08x, which wait elsewhere", g.mask, w.alive&^g.mask)
}

func (b *block) firstLine() int32 {
	if len(b.code) > 0 {
		return b.code[0].line
	}
	return b.line
}
