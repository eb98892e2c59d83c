package rclc

import (
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
}

func (l *ledger) Alloc(n int) (tensor.Buffer, error) {
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
	ids := script(5, 6000, m.Info.Vocab)
	peak := func(n int) int {
		s := tokens(t, m, ids[:n])
		return l.peakOf(t, func() error {
			_, err := CacheBack{}.Scores(bg, s, ids[:request])
			return err
		})
	}
	rows := peak(1) // with a block of weights of the request alone
	for _, n := range []int{500, 2500, 6000} {
		block := 4 * m.Info.Heads * (n + request) * request
		if block > 16<<20 {
			block = 16 << 20
		}
		got, most := peak(n), rows+3*4*m.Info.KVHeads*n+block+1<<16 // and rounding to pages
		if got > most {
			t.Errorf("%d positions: %d bytes, want at most %d", n, got, most)
		}
		if n == 6000 && got < 16<<20 {
			t.Errorf("only %d bytes are seen", got)
		}
	}
}
