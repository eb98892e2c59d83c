package cache_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"samebit/cache"
)

// Requests, some of them cancelled, while the cache is cleared, flushed, asked and
// at last closed: bits are equal and nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	m := openModel(t, hybrid)
	turns := 60
	if testing.Short() {
		turns = 15
	}
	d, err := cache.OpenUnsynced(t.TempDir(), 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(m.pool, cache.Config{MemoryBytes: 500 << 10, Store: d, Policy: small(16)})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(11, 11))
	for range 10 {
		m.run(t, prompt(rng)) // fill the cold runs before the clock matters
	}
	var wg sync.WaitGroup
	for w := range 6 {
		q := m.seq(t, 16)
		defer q.close()
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(12, uint64(w)))
			for range turns {
				rows := prompt(rng)
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(4) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
				}
				q.bits, q.ran = map[int]uint64{}, 0
				_, err := c.Prefill(ctx, cache.Key{Model: m.dec.ID}, q, rows, rng.IntN(len(rows)+1))
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
					return
				}
				want := m.run(t, rows)
				for i, b := range q.bits {
					if b != want[i] {
						t.Errorf("worker %d: logits of row %d of %d differ", w, i, len(rows))
						return
					}
				}
			}
		})
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			switch i % 4 {
			case 0:
				c.Stats()
			case 1:
				if err := c.Flush(context.Background()); err != nil {
					t.Error(err)
				}
			case 2:
				if s, n := c.Lookup(cache.Key{Model: m.dec.ID}, tokens(1, 50)); n > 0 {
					s.Release()
				}
			case 3:
				c.Clear()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	wg.Wait()
	close(stop)
	<-done
	if err := c.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if s := c.Stats(); s.StoreFault != 0 || s.Bytes != 0 || s.Pinned != 0 {
		t.Errorf("%+v", s)
	}
}
