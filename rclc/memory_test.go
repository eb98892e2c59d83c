package rclc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/tensor"
)

// ledger is a device that knows how much memory is out, and the most there was.
type ledger struct {
	backend.Device
	mu        sync.Mutex
	out, most int
	left      int // allocations until one fails; 0 for never
}

func (l *ledger) Alloc(n int) (tensor.Buffer, error) {
	l.mu.Lock()
	dry := l.left == 1
	l.left = max(l.left-1, 0)
	l.mu.Unlock()
	if dry {
		return nil, fmt.Errorf("ledger: %w", backend.ErrNoMemory)
	}
	b, err := l.Device.Alloc(n)
	if err == nil {
		l.mu.Lock()
		l.out += b.Len()
		l.most = max(l.most, l.out)
		l.mu.Unlock()
	}
	return b, err
}

func (l *ledger) Free(b tensor.Buffer) {
	l.mu.Lock()
	l.out -= b.Len()
	l.mu.Unlock()
	l.Device.Free(b)
}

// peakOf is the most memory that f takes on top of what is out; a pool may keep some
// of it for its next pages.
func (l *ledger) peakOf(t testing.TB, f func() error) int {
	t.Helper()
	before := l.out
	l.most = before
	if err := f(); err != nil {
		t.Fatal(err)
	}
	return l.most - before
}

// TestSelectionMemory: a selection takes the rows of its request, which do not depend
// on the sender's length, three vectors of that length per key head, and one block of
// weights.
func TestSelectionMemory(t *testing.T) {
	l := &ledger{Device: processor(t, 2, "")}
	m := core(t, l, "qwen3-tied-fp32", ModelConfig{})
	m.dec.Context, m.Info.Context = 1<<20, 1<<20
	const request = 440
	lengths := []int{500, 2500, 6000}
	if testing.Short() {
		lengths = []int{500, 1500}
	}
	most := lengths[len(lengths)-1]
	ids := script(5, most+request, m.Info.Vocab)
	for _, c := range []struct {
		sel Scorer
		own int // rows of the sender that run again
	}{{CacheBack{}, 0}, {ChunkKV{Window: request}, request}} {
		peak := func(n int) int {
			s := tokens(t, m, ids[:n+c.own])
			return l.peakOf(t, func() error {
				_, err := c.sel.Scores(bg, s, ids[:request])
				return err
			})
		}
		rows := peak(1) // with a block of weights of the request alone
		for _, n := range lengths {
			block := min(4*m.Info.Heads*(n+request)*request, max(1<<20, 8*4*m.Info.Heads*(n+request))) // or 8 rows
			got, limit := peak(n), rows+3*4*m.Info.KVHeads*n+block+1<<16                               // and rounding to pages
			if got > limit {
				t.Errorf("%T, %d positions: %d bytes, want at most %d", c.sel, n, got, limit)
			}
			if n == most && got < 1<<20 {
				t.Errorf("%T: only %d bytes are seen", c.sel, got)
			}
		}
	}
}

// TestOutOfMemory: wherever a transfer's memory runs out, it fails with the cause,
// delivers nothing and leaves the senders as they were.
func TestOutOfMemory(t *testing.T) {
	for _, name := range []string{"qwen3-tied-fp32", "qwen35-8l-bf16"} {
		l := &ledger{Device: processor(t, 2, "")}
		m := core(t, l, name, ModelConfig{})
		s := fromRows(t, m, mixedRows(1, 90, m))
		before, used := fingerprint(t, s), m.pool.Bytes()
		done := false
		for n := 1; !done && n < 200; n++ {
			delivered := 0
			to := ReceiverFunc(func(context.Context, Delivery) error { delivered++; return nil })
			l.left = n
			err := Transfer(bg, []Source{s}, []Receiver{to}, []Request{{IDs: []int32{1, 2, 3}}}, Config{Selector: []Selector{CacheBack{}, ChunkKV{Window: 7}}[n%2]})
			done = l.left > 0 && n%2 == 0
			l.left = 0
			if err != nil && !errors.Is(err, backend.ErrNoMemory) || (err == nil) != (delivered == 1) {
				t.Errorf("%s: allocation %d: %d deliveries, %v", name, n, delivered, err)
			}
			if m.pool.Bytes() != used {
				t.Errorf("%s: allocation %d: %d bytes of states, %d before", name, n, m.pool.Bytes(), used)
			}
		}
		if !done {
			t.Errorf("%s: the transfer never ran through", name)
		}
		before.same(t, s)
	}
}
