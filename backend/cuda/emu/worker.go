package emu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"samebit/backend/cuda/driver"
)

// shares is what the workers of one launch have in common.
type shares struct {
	next    atomic.Int64 // block to take
	failed  atomic.Int64 // lowest block that failed, or blocks
	mu      sync.Mutex
	fault   *Fault
	atomics *sync.Mutex
	sums    Sums
}

// worker runs blocks of a launch, one after the other.
type worker struct {
	p        *program
	mem      *memory
	launch   driver.Launch
	params   []byte
	shares   *shares
	warps    []*warp
	shared   []byte
	watch    []watched
	local    []byte
	localSet []byte
	caches   []*allocation
	at       [3]uint32 // block
	clock    uint32    // time of shared memory
	epoch    uint32    // of the last barrier
	born     uint32    // of the beginning of the block
	steps    int64
	most     int64
	visits   []int64
	lanes    []int64
	idle     [Classes]int64 // lanes that guards left out
	count    Counts
}

// Every launch gets fresh workers: nothing of one reaches the next.
func newWorker(p *program, mem *memory, l driver.Launch, params []byte, most int64, s *shares) *worker {
	threads := int(l.Block[0] * l.Block[1] * l.Block[2])
	b := &worker{p: p, mem: mem, launch: l, params: params, shares: s, most: most}
	n := p.shared + l.Shared
	b.shared = make([]byte, n)
	b.watch = make([]watched, (n+1<<p.grain-1)>>p.grain)
	b.local = make([]byte, (threads+31)/32*32*p.local)
	b.localSet = make([]byte, len(b.local))
	b.caches = make([]*allocation, p.caches)
	b.visits, b.lanes = make([]int64, len(p.blocks)), make([]int64, len(p.blocks))
	for i := range (threads + 31) / 32 {
		w := &warp{b: b, index: i, r32: make([]v32, p.n32), r64: make([]v64, p.n64), pred: make([]uint32, p.npred)}
		for _, f := range p.fixed {
			v := f.val
			switch f.kind {
			case isParam:
				v = paramValue(params[f.val:], f.size, f.sign)
			case isSpecial:
				for lane := range 32 {
					w.r32[f.slot][lane] = w.special(f.name, lane)
				}
				continue
			}
			if f.pred {
				w.pred[f.slot] = -uint32(v)
				continue
			}
			for lane := range 32 {
				if f.wide {
					w.r64[f.slot][lane] = v
				} else {
					w.r32[f.slot][lane] = uint32(v)
				}
			}
		}
		b.warps = append(b.warps, w)
	}
	return b
}

func paramValue(b []byte, size uint8, sign bool) uint64 {
	switch size {
	case 1:
		if sign {
			return uint64(int64(int8(b[0])))
		}
		return uint64(b[0])
	case 2:
		if sign {
			return uint64(int64(int16(le.Uint16(b))))
		}
		return uint64(le.Uint16(b))
	case 4:
		if sign {
			return uint64(int64(int32(le.Uint32(b))))
		}
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}

// specials are the special registers, all of 32 bits.
var specials = map[string]func(w *warp, lane int) uint32{
	"%laneid":      func(_ *warp, lane int) uint32 { return uint32(lane) },
	"%warpid":      func(w *warp, _ int) uint32 { return uint32(w.index) },
	"%nwarpid":     func(w *warp, _ int) uint32 { return uint32(len(w.b.warps)) },
	"%lanemask_eq": func(_ *warp, lane int) uint32 { return 1 << lane },
	"%lanemask_lt": func(_ *warp, lane int) uint32 { return 1<<lane - 1 },
	"%lanemask_le": func(_ *warp, lane int) uint32 { return 2<<lane - 1 },
	"%lanemask_gt": func(_ *warp, lane int) uint32 { return ^(2<<lane - 1) },
	"%lanemask_ge": func(_ *warp, lane int) uint32 { return ^(1<<lane - 1) },

	"%dynamic_smem_size": func(w *warp, _ int) uint32 { return uint32(w.b.launch.Shared) },
	"%total_smem_size":   func(w *warp, _ int) uint32 { return uint32(len(w.b.shared)) },
}

func init() {
	for i, axis := range []string{".x", ".y", ".z"} {
		specials["%tid"+axis] = func(w *warp, lane int) uint32 { return w.thread(lane)[i] }
		specials["%ntid"+axis] = func(w *warp, _ int) uint32 { return w.b.launch.Block[i] }
		specials["%ctaid"+axis] = func(w *warp, _ int) uint32 { return w.b.at[i] }
		specials["%nctaid"+axis] = func(w *warp, _ int) uint32 { return w.b.launch.Grid[i] }
	}
}

func special(name string) bool { return specials[name] != nil }

func (w *warp) special(name string, lane int) uint32 { return specials[name](w, lane) }

// begin makes the worker ready for a block.
func (b *worker) begin(at [3]uint32) {
	b.at = at
	if b.clock > 1<<31 {
		clear(b.watch)
		b.clock = 0
	}
	b.clock++
	b.epoch, b.born = b.clock, b.clock
	b.steps = b.most
	clear(b.localSet)
	threads := b.launch.Block[0] * b.launch.Block[1] * b.launch.Block[2]
	for i, w := range b.warps {
		clear(w.r32[:b.p.free32])
		clear(w.r64[:b.p.free64])
		clear(w.pred[:b.p.freePred])
		w.alive = full
		if left := threads - uint32(i)*32; left < 32 {
			w.alive = 1<<left - 1
		}
		w.group = group{mask: w.alive}
		w.parked, w.wait, w.epoch, w.fault = w.parked[:0], -1, b.epoch, nil
		for _, f := range b.p.blockly {
			v := specials[f.name](w, 0)
			r := &w.r32[f.slot]
			for lane := range r {
				r[lane] = v
			}
		}
	}
}

// block runs one block to its end.
func (b *worker) block(at [3]uint32) *Fault {
	b.begin(at)
	b.count.Blocks++
	b.count.Warps += int64(len(b.warps))
	left := len(b.warps)
	ended := make([]bool, len(b.warps))
	for {
		held := 0
		var first *warp // that waits
		for i, w := range b.warps {
			if ended[i] {
				continue
			}
			switch w.run() {
			case faulted:
				return w.fault
			case waiting:
				held++
				if first == nil {
					first = w
				}
				if w.wait != first.wait {
					w.fail(Deadlock, b.p.blocks[w.pc].line, 0, "warp %d waits at barrier %d, warp %d at barrier %d (PTX line %d)", w.index, w.wait, first.index, first.wait, b.p.blocks[first.pc].line)
					return w.fault
				}
			default:
				ended[i] = true
				left--
			}
		}
		switch {
		case left == 0:
			return nil
		case held < len(b.warps):
			first.fail(Deadlock, b.p.blocks[first.pc].line, 0, "warp %d waits at a barrier, %d of %d warps of its block have ended", first.index, len(b.warps)-held, len(b.warps))
			return first.fault
		}
		b.count.Barriers++
		b.clock++
		b.epoch = b.clock
		for _, w := range b.warps {
			w.wait, w.epoch = -1, b.epoch
			w.pc++
		}
	}
}

// tally turns visits of blocks into counts of instructions.
func (b *worker) tally() Counts {
	for i := range b.p.blocks {
		for c, n := range b.p.blocks[i].count {
			b.count.Issued[c] += n * b.visits[i]
			b.count.Threads[c] += n * b.lanes[i]
		}
	}
	for c, n := range b.idle {
		b.count.Threads[c] -= n
	}
	return b.count
}

// launch runs a kernel on several workers and returns what it did.
// It notes in ran which basic blocks were entered.
func (p *program) launch(mem *memory, l driver.Launch, params []byte, workers int, most int64, atomics *sync.Mutex, sums Sums, ran []bool) (Counts, error) {
	blocks := int64(l.Grid[0]) * int64(l.Grid[1]) * int64(l.Grid[2])
	s := &shares{atomics: atomics, sums: sums}
	s.failed.Store(blocks)
	workers = int(min(int64(max(workers, 1)), blocks))
	counts := make([]Counts, workers)
	var wg sync.WaitGroup
	for i := range workers {
		work := func() {
			b := newWorker(p, mem, l, params, most, s)
			for {
				// Blocks are taken in order, so all below a failed one are run and
				// the lowest fault is the one that is reported.
				n := s.next.Add(1) - 1
				if n >= s.failed.Load() {
					break
				}
				at := [3]uint32{uint32(n % int64(l.Grid[0])), uint32(n / int64(l.Grid[0]) % int64(l.Grid[1])), uint32(n / int64(l.Grid[0]) / int64(l.Grid[1]))}
				if f := b.block(at); f != nil {
					s.mu.Lock()
					if n < s.failed.Load() {
						s.failed.Store(n)
						s.fault = f
					}
					s.mu.Unlock()
				}
			}
			counts[i] = b.tally()
			s.mu.Lock()
			defer s.mu.Unlock()
			for j, n := range b.visits {
				ran[j] = ran[j] || n > 0
			}
		}
		if i == workers-1 {
			work()
		} else {
			wg.Go(work)
		}
	}
	wg.Wait()
	total := Counts{Launches: 1}
	for _, c := range counts {
		total.Add(c)
	}
	if s.fault != nil {
		return total, s.fault
	}
	return total, nil
}

// check says what is wrong with a launch, or nil.
func (p *program) check(l driver.Launch, params []byte, sharedMost int) error {
	bad := func(format string, args ...any) error {
		return &Fault{Kind: BadLaunch, Kernel: p.name, Detail: fmt.Sprintf(format, args...)}
	}
	g, k := l.Grid, l.Block
	switch {
	case g[0] == 0 || g[1] == 0 || g[2] == 0 || k[0] == 0 || k[1] == 0 || k[2] == 0:
		return bad("grid %v of blocks %v has a zero", g, k)
	case g[0] > 1<<31-1 || g[1] > 65535 || g[2] > 65535:
		return bad("grid %v passes 2147483647, 65535, 65535", g)
	case k[0] > 1024 || k[1] > 1024 || k[2] > 64 || k[0]*k[1]*k[2] > uint32(p.maxThreads):
		return bad("block %v has more than %d threads", k, p.maxThreads)
	case l.Shared < 0 || p.shared+l.Shared > sharedMost:
		return bad("%d bytes of static and %d of dynamic shared memory pass %d (see SetMaxShared)", p.shared, l.Shared, sharedMost)
	case len(params) != p.psize:
		return bad("%d bytes of parameters, %d are declared", len(params), p.psize)
	}
	return nil
}
