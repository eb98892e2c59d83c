package pool

import (
	"runtime"
	"time"
)

// spin counts the polls of a waiting thread.
type spin struct {
	threads int // of the pool
	polls   int
	start   time.Time // first look at the clock
}

// expired waits a moment and reports whether it is time to park: after
// [spinFor], or soon where the pool has more threads than there are cores.
//
// It is not inlined so that each poll passes the stack check of a Go function,
// where the runtime can stop this thread (for a garbage collection) without
// having to interrupt the pause instruction.
//
//go:noinline
func (s *spin) expired() bool {
	s.polls++
	pause()
	if s.polls%pausesPerClock != 0 {
		return false
	}
	if s.start.IsZero() {
		s.start = time.Now()
		return min(runtime.GOMAXPROCS(0), runtime.NumCPU()) < s.threads
	}
	return time.Since(s.start) > spinFor
}
