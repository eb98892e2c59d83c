// Package pool runs one operation of the cpu backend on several threads: a
// fork-join in about a microsecond, where goroutines and channels need more
// than the 20 µs that a decode step's operation takes.
//
// Workers spin on an epoch for a short while after each operation and park
// only then. The chunks of an operation are claimed one by one from an atomic
// counter and the caller takes part, so a worker that the system has taken off
// its core delays only the chunk it holds. Who computes a chunk never matters
// to the result.
package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Task is an operation cut into chunks. Do is called once for every chunk in
// [0, chunks) of a Run, by any thread; worker is in [0, Threads()) and no two
// calls with the same worker overlap, so it may index scratch memory. Do must
// not call Run of the same pool.
type Task interface {
	Do(worker, chunk int)
}

// spinFor is how long an idle worker keeps its core. Within a decode step the
// next operation comes after a few microseconds; a longer pause means that the
// caller is doing something else.
const spinFor = 80 * time.Microsecond

// pausesPerClock is how many polls are made between two looks at the clock.
const pausesPerClock = 64

type line [128]byte // keeps counters on cache lines of their own

// Pool is a fixed set of threads. Its methods may be called concurrently;
// concurrent Runs take turns.
type Pool struct {
	threads int

	run     sync.Mutex // held by Run and Close
	closed  bool       // guarded by run
	workers sync.WaitGroup

	// Written by Run before remaining is, read after a successful claim: a
	// claimed chunk keeps its Run from returning, so both stay valid.
	task   Task
	chunks int

	_         line
	epoch     atomic.Uint32 // rises with each Run and with Close
	_         line
	remaining atomic.Int64 // chunks not yet claimed; a claim is Add(-1) >= 0
	_         line
	pending   atomic.Int64 // chunks not yet finished
	_         line
	sleepers  atomic.Int32 // workers that are parked or about to
	waiting   atomic.Bool  // the caller is parked or about to
	stop      atomic.Bool
	failure   atomic.Pointer[Panic] // first panic of this Run

	park sync.Mutex // for wake and done
	wake sync.Cond  // a new epoch
	done sync.Cond  // pending reached zero
}

// Panic is what Run panics with after a chunk has panicked.
type Panic struct {
	Value any    // of the first chunk that panicked
	Stack []byte // of the thread that ran it
}

func (p *Panic) Error() string { return fmt.Sprintf("pool: task panicked: %v\n%s", p.Value, p.Stack) }

// Unwrap returns the panic value if it is an error.
func (p *Panic) Unwrap() error { err, _ := p.Value.(error); return err }

// New starts a pool of threads threads, the caller of Run counted: New(1), like
// any smaller number, starts none and computes everything in Run.
func New(threads int) *Pool {
	p := &Pool{threads: max(threads, 1)}
	p.wake.L, p.done.L = &p.park, &p.park
	for w := 1; w < p.threads; w++ {
		p.workers.Add(1)
		go p.worker(w)
	}
	return p
}

// Threads returns the number of threads, the caller's included.
func (p *Pool) Threads() int { return p.threads }

// Run calls t.Do for chunks 0 … chunks-1, about in that order, and returns when
// all have finished. It allocates nothing. If a chunk panics the unclaimed ones
// are dropped and Run panics with a [*Panic] once the others have finished.
// After Close, Run does all the work itself.
func (p *Pool) Run(t Task, chunks int) {
	if chunks <= 0 {
		return
	}
	p.run.Lock()
	defer p.run.Unlock()
	if p.threads == 1 || chunks == 1 || p.closed {
		for c := range chunks {
			t.Do(0, c)
		}
		return
	}
	p.task, p.chunks = t, chunks
	p.pending.Store(int64(chunks))
	p.remaining.Store(int64(chunks))
	p.announce()
	defer p.join() // also when a task ends this goroutine by runtime.Goexit
	p.drain(0)
}

// announce lets the workers see new chunks, or stop.
func (p *Pool) announce() {
	p.epoch.Add(1)
	if p.sleepers.Load() > 0 {
		p.park.Lock()
		p.wake.Broadcast()
		p.park.Unlock()
	}
}

// join waits for the chunks that others hold.
func (p *Pool) join() {
	for spin := (spin{threads: p.threads}); p.pending.Load() > 0; {
		if spin.expired() {
			p.waiting.Store(true) // before the next look at pending; finish looks in the other order
			p.park.Lock()
			for p.pending.Load() > 0 {
				p.done.Wait()
			}
			p.park.Unlock()
			p.waiting.Store(false)
		}
	}
	p.task = nil
	if f := p.failure.Swap(nil); f != nil {
		panic(f)
	}
}

// drain claims and computes chunks until none is left.
func (p *Pool) drain(worker int) {
	for !p.work(worker) {
	}
}

// work is drain up to the first panic; it reports whether there was none.
func (p *Pool) work(worker int) (ok bool) {
	held := false
	defer func() {
		if held { // panic or Goexit inside Do
			if v := recover(); v != nil {
				p.failure.CompareAndSwap(nil, &Panic{Value: v, Stack: debug.Stack()})
			}
			if n := p.remaining.Swap(-1); n > 0 {
				p.finish(n)
			}
			p.finish(1)
		}
	}()
	for {
		left := p.remaining.Add(-1)
		if left < 0 {
			return true
		}
		held = true
		p.task.Do(worker, p.chunks-1-int(left))
		held = false
		p.finish(1)
	}
}

func (p *Pool) finish(n int64) {
	if p.pending.Add(-n) == 0 && p.waiting.Load() {
		p.park.Lock()
		p.done.Broadcast()
		p.park.Unlock()
	}
}

func (p *Pool) worker(id int) {
	defer p.workers.Done()
	runtime.LockOSThread() // a goroutine that spins should not migrate; the thread ends with it
	var seen uint32
	for !p.stop.Load() {
		seen = p.next(seen)
		p.drain(id)
	}
}

// next returns the epoch once it differs from seen: spins, then parks.
func (p *Pool) next(seen uint32) uint32 {
	for spin := (spin{threads: p.threads}); !spin.expired(); {
		if e := p.epoch.Load(); e != seen {
			return e
		}
	}
	p.park.Lock()
	defer p.park.Unlock()
	p.sleepers.Add(1) // before the next look at the epoch; announce looks in the other order
	defer p.sleepers.Add(-1)
	for {
		if e := p.epoch.Load(); e != seen {
			return e
		}
		p.wake.Wait()
	}
}

// Close ends the workers after the current Run. Closing twice is fine.
func (p *Pool) Close() {
	p.run.Lock()
	defer p.run.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.stop.Store(true)
	p.announce()
	p.workers.Wait()
}
