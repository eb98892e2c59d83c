package pool

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// within fails the test if f takes longer than d: the faults of a pool are hangs.
func within(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	select {
	case v := <-done:
		if v != nil {
			t.Fatalf("panic: %v", v)
		}
	case <-time.After(d):
		buf := make([]byte, 1<<16)
		t.Fatalf("hangs:\n%s", buf[:runtime.Stack(buf, true)])
	}
}

type count struct {
	hits   []atomic.Int32
	inUse  []atomic.Bool
	shared atomic.Int32 // times a worker number was used twice at once
}

func newCount(chunks, threads int) *count {
	return &count{hits: make([]atomic.Int32, chunks), inUse: make([]atomic.Bool, threads)}
}

func (c *count) Do(worker, chunk int) {
	if c.inUse[worker].Swap(true) {
		c.shared.Add(1)
	}
	c.hits[chunk].Add(1)
	c.inUse[worker].Store(false)
}

func TestEveryChunkOnce(t *testing.T) {
	for _, threads := range []int{-1, 1, 2, 3, 8} {
		t.Run(fmt.Sprint(threads), func(t *testing.T) {
			p := New(threads)
			within(t, time.Minute, func() {
				for _, chunks := range []int{0, 1, 2, 3, 7, 100} {
					c := newCount(chunks, p.Threads())
					const rounds = 50
					for r := range rounds {
						if r%10 == 9 && !testing.Short() {
							time.Sleep(spinFor * 2) // let them park
						}
						p.Run(c, chunks)
					}
					for i := range c.hits {
						if n := c.hits[i].Load(); n != rounds {
							t.Errorf("%d chunks: chunk %d ran %d times, want %d", chunks, i, n, rounds)
						}
					}
					if n := c.shared.Load(); n != 0 {
						t.Errorf("%d chunks: %d overlapping calls with one worker number", chunks, n)
					}
				}
				p.Close()
				p.Close()
				c := newCount(5, p.Threads())
				p.Run(c, 5)
				for i := range c.hits {
					if c.hits[i].Load() != 1 {
						t.Errorf("after Close: chunk %d ran %d times", i, c.hits[i].Load())
					}
				}
			})
		})
	}
}

func TestConcurrentRunsTakeTurns(t *testing.T) {
	p := New(3)
	defer p.Close()
	within(t, time.Minute, func() {
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				c := newCount(9, p.Threads())
				for range 100 {
					p.Run(c, 9)
				}
				for i := range c.hits {
					if c.hits[i].Load() != 100 {
						t.Errorf("chunk %d ran %d times", i, c.hits[i].Load())
					}
				}
			}()
		}
		wg.Wait()
	})
}

type taskFunc func(worker, chunk int)

func (f taskFunc) Do(worker, chunk int) { f(worker, chunk) }

func TestPanicReachesCaller(t *testing.T) {
	cause := errors.New("bad chunk")
	for _, threads := range []int{1, 2, 4} {
		p := New(threads)
		within(t, time.Minute, func() {
			for bad := range 6 {
				func() {
					defer func() {
						v := recover()
						err, ok := v.(error)
						if !ok || !errors.Is(err, cause) {
							t.Errorf("threads %d, chunk %d: recovered %v", threads, bad, v)
						}
					}()
					p.Run(taskFunc(func(_, c int) {
						if c == bad {
							panic(cause)
						}
					}), 6)
				}()
				c := newCount(6, p.Threads())
				p.Run(c, 6) // the pool still works
				for i := range c.hits {
					if c.hits[i].Load() != 1 {
						t.Errorf("after a panic: chunk %d ran %d times", i, c.hits[i].Load())
					}
				}
			}
			p.Close()
		})
	}
}

func TestGoexitInTask(t *testing.T) {
	p := New(3)
	within(t, time.Minute, func() {
		for range 20 {
			done := make(chan bool)
			go func() {
				defer close(done)
				p.Run(taskFunc(func(worker, c int) {
					if worker == 0 {
						runtime.Goexit()
					}
				}), 10)
			}()
			<-done
		}
		c := newCount(4, 3)
		p.Run(c, 4)
		for i := range c.hits {
			if c.hits[i].Load() != 1 {
				t.Errorf("chunk %d ran %d times", i, c.hits[i].Load())
			}
		}
		p.Close()
	})
}

func TestCloseWhileIdleOrRunning(t *testing.T) {
	within(t, time.Minute, func() {
		for i := range 100 {
			p := New(2 + i%3)
			if i%2 == 0 {
				go p.Run(newCount(20, p.Threads()), 20)
			}
			if i%3 == 0 {
				runtime.Gosched()
			}
			p.Close()
		}
	})
}

// The runtime must be able to stop workers that spin.
func TestCollectorStopsSpinningWorkers(t *testing.T) {
	p := New(2)
	defer p.Close()
	within(t, time.Minute, func() {
		c := newCount(8, 2)
		for range 20 {
			p.Run(c, 8)
			runtime.GC()
		}
	})
}

func TestRunAllocatesNothing(t *testing.T) {
	p := New(2)
	defer p.Close()
	c := newCount(8, 2)
	var task Task = c
	if n := testing.AllocsPerRun(100, func() { p.Run(task, 8) }); n != 0 {
		t.Errorf("%v allocations per Run", n)
	}
}
