package nn

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"samebit/backend"
)

// BatcherConfig bounds a Batcher. The zero value puts at most 256 rows in a pass.
type BatcherConfig struct {
	Rows int // rows per pass; 0 means 256
}

// Batcher puts the next rows of many runners into one pass, so that each weight
// is read once for all of them. Runners join by RunnerConfig.Batcher and leave by
// not asking for more; neither changes a bit of anybody's results, only the time.
//
// A pass takes what the pass before had no room for, then every sequence that
// waits with one row, then prompt chunks in the order in which they asked. So a
// long prompt delays nobody by more than a pass, and nobody waits forever.
// A Batcher is safe for concurrent use; its runners belong to a goroutine each.
type Batcher struct {
	dec  *Decoder
	c    *Ctx
	rows int
	s    backend.Stream

	mu     sync.Mutex
	queue  []*job
	wake   sync.Cond
	closed bool
	done   chan struct{}
}

// job is one runner's rows waiting for a pass. The runner's goroutine sleeps
// until finished is signalled.
type job struct {
	seq      *Seq
	err      error
	finished chan struct{}
	left     bool // a pass had no room for it
}

// NewBatcher starts the goroutine that runs the passes, on a stream of its own.
func (d *Decoder) NewBatcher(dev backend.Device, cfg BatcherConfig) (*Batcher, error) {
	if cfg.Rows < 0 {
		return nil, fmt.Errorf("nn: batcher with passes of %d rows: want a positive number, or 0 for 256", cfg.Rows)
	}
	if cfg.Rows == 0 {
		cfg.Rows = 256
	}
	if dev == nil {
		return nil, fmt.Errorf("nn: batcher: no device")
	}
	s, err := dev.NewStream()
	if err != nil {
		return nil, err
	}
	b := &Batcher{dec: d, c: NewCtx(s, dev), rows: cfg.Rows, s: s, done: make(chan struct{})}
	b.wake.L = &b.mu
	go b.loop()
	return b, nil
}

var errBatcherClosed = fmt.Errorf("nn: batcher: %w", backend.ErrClosed)

// Close ends the passes. Rows that wait fail with backend.ErrClosed.
func (b *Batcher) Close() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		<-b.done
		return nil
	}
	b.closed = true
	b.wake.Signal()
	b.mu.Unlock()
	<-b.done
	b.c.Close()
	return b.s.Close()
}

// forward runs one sequence's rows in some pass. A cancelled context takes rows
// that still wait out of the queue; a pass under way is waited for, since it uses
// the state.
func (b *Batcher) forward(ctx context.Context, j *job) error {
	if n := len(j.seq.In); n > b.rows {
		return fmt.Errorf("nn: batcher: %d rows at once, a pass has %d", n, b.rows)
	}
	if err := b.dec.checkSeq(j.seq, 0); err != nil { // nobody else's pass is to fail for it
		return err
	}
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return errBatcherClosed
	}
	j.left = false
	b.queue = append(b.queue, j)
	b.wake.Signal()
	b.mu.Unlock()
	select {
	case <-j.finished:
		return j.err
	case <-ctx.Done():
	}
	if b.withdraw(j) {
		return ctx.Err()
	}
	<-j.finished
	return j.err
}

// withdraw takes a waiting job back; false if a pass has it or had it.
func (b *Batcher) withdraw(j *job) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, q := range b.queue {
		if q == j {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			return true
		}
	}
	return false
}

// next waits for work and takes one pass of it from the queue; nil after Close.
func (b *Batcher) next(taken []*job) []*job {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 && !b.closed {
		b.wake.Wait()
	}
	if b.closed {
		for _, j := range b.queue {
			j.err = errBatcherClosed
			j.finished <- struct{}{}
		}
		b.queue = nil
		return nil
	}
	taken, rows := taken[:0], 0
	for turn := range 3 {
		rest := b.queue[:0]
		for _, j := range b.queue {
			n := len(j.seq.In)
			if (turn == 0 && j.left || turn == 1 && n == 1 || turn == 2) && rows+n <= b.rows {
				taken, rows = append(taken, j), rows+n
			} else {
				rest = append(rest, j)
			}
		}
		clear(b.queue[len(rest):])
		b.queue = rest
	}
	for _, j := range b.queue {
		j.left = true
	}
	return taken
}

func (b *Batcher) loop() {
	defer close(b.done)
	var taken []*job
	var seqs []Seq
	for {
		if taken = b.next(taken); taken == nil {
			return
		}
		seqs = seqs[:0]
		for _, j := range taken {
			seqs = append(seqs, *j.seq)
		}
		err := b.dec.Forward(context.Background(), b.c, seqs)
		if err != nil && len(taken) > 1 { // find out whose fault it is
			err = nil
			for i, j := range taken {
				j.err = b.dec.Forward(context.Background(), b.c, seqs[i:i+1])
			}
		}
		for i, j := range taken {
			*j.seq = seqs[i]
			j.err = errors.Join(j.err, err)
			j.finished <- struct{}{}
		}
	}
}
