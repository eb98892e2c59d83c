package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"samebit/cache"
	"samebit/cache/cachetest"
)

// connectTo is another process's connection to a server inside this one.
func connectTo(t *testing.T, c *Conn, cfg Config) *Store {
	t.Helper()
	cfg.Dir = c.cfg.Dir
	cfg, err := cfg.check()
	if err != nil {
		t.Fatal(err)
	}
	other, err := dial(ctx, cfg, c.owned)
	if err != nil {
		t.Fatal(err)
	}
	s, err := other.Store(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.own = true
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStore(t *testing.T) {
	noLeak(t)
	c, err := Connect(ctx, Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	n := 0
	cachetest.Run(t, func(t *testing.T) func() cache.Store {
		n++
		bucket := fmt.Sprintf("b%d", n)
		return func() cache.Store { return connectTo(t, c, Config{Bucket: bucket, MaxBytes: 16 << 20}) }
	})
}

func TestSharedByMachines(t *testing.T) {
	noLeak(t)
	srv := listen(t, nil)
	bed := cachetest.NewBed(t)
	a := open(t, Config{URL: srv.ClientURL()})
	b := open(t, Config{URL: srv.ClientURL()})
	a.chunk, b.chunk = 16<<10, 20<<10
	x, y := newSample(t, bed, 1, 70, 0), newSample(t, bed, 2, 90, 128) // y has three parts
	put(t, a, x)
	put(t, b, y)
	if !has(t, a, bed, y) || !has(t, b, bed, x) {
		t.Error("an entry of the other machine is missing")
	}
	for _, s := range []*Store{a, b} {
		if l := listed(t, s); len(l) != 2 || !l[x.e.ID] || !l[y.e.ID] {
			t.Errorf("%d entries are listed, want 2", len(l))
		}
	}
	n := messages(t, a)
	put(t, a, y)
	if m := messages(t, a); m != n {
		t.Errorf("%d messages, %d after an entry that was there", n, m)
	}
	if err := b.Delete(ctx, y.e.ID); err != nil {
		t.Fatal(err)
	}
	if has(t, a, bed, y) || messages(t, a) != n-4 {
		t.Errorf("%d messages after the other machine deleted its entry, want %d", messages(t, a), n-4)
	}
}

func TestRestart(t *testing.T) {
	noLeak(t)
	dir, bed := t.TempDir(), cachetest.NewBed(t)
	x := newSample(t, bed, 1, 70, 0)
	for i := range 2 {
		s, err := Open(ctx, Config{Dir: dir, MaxBytes: int64(i+1) << 20})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			put(t, s, x)
			if _, err := Open(ctx, Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), dir) {
				t.Errorf("the folder a second time: %v", err)
			}
		}
		if !has(t, s, bed, x) || s.max != int64(i+1)<<20 {
			t.Errorf("start %d: the entry is missing, or the bound is %d", i, s.max)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Put(ctx, x.e, x.snap); err == nil {
			t.Error("a closed store takes entries")
		}
	}
}

func TestOldestMakesRoom(t *testing.T) {
	bed := cachetest.NewBed(t)
	s := open(t, Config{Dir: t.TempDir(), MaxBytes: 1 << 20})
	var all []sample
	for i := range 6 { // of about 260 KiB
		all = append(all, newSample(t, bed, i, 16, 4096))
		put(t, s, all[i])
		if s.Bytes() > 1<<20 {
			t.Errorf("%d bytes", s.Bytes())
		}
	}
	for i, x := range all {
		if got := has(t, s, bed, x); got != (i >= 3) {
			t.Errorf("entry %d of 6 is there: %v; three fit", i, got)
		}
	}
	if err := s.Put(ctx, all[0].e, all[0].snap); err != nil {
		t.Error(err)
	}
	big := newSample(t, bed, 9, 70, 4096)
	if err := s.Put(ctx, big.e, big.snap); !errors.Is(err, cache.ErrTooLarge) {
		t.Errorf("1.1 MiB in 1 MiB: %v, want ErrTooLarge", err)
	}
	if !has(t, s, bed, all[5]) || !has(t, s, bed, all[0]) {
		t.Error("an entry had to go for one that cannot fit")
	}

	// What others are writing is not touched, and is no room.
	for _, x := range all {
		if err := s.Delete(ctx, x.e.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.uploadParts(ctx, s.partSubject(nameOf(key, big.e.ID).String()+"-x"), make([]byte, 900<<10)); err != nil {
		t.Fatal(err)
	}
	err := s.Put(ctx, all[0].e, all[0].snap)
	if err == nil || !strings.Contains(err.Error(), "MaxBytes") || !strings.Contains(err.Error(), s.bucket) {
		t.Errorf("storing in a full bucket: %v", err)
	}
	// Once they are old they are what a writer left that died.
	s.orphan = 0
	time.Sleep(2 * time.Millisecond)
	put(t, s, all[0])
	if n := messages(t, s); n != 2 {
		t.Errorf("%d messages, want one part and one manifest", n)
	}
}

func TestCancelledPut(t *testing.T) {
	noLeak(t)
	bed := cachetest.NewBed(t)
	s := open(t, Config{Dir: t.TempDir()})
	s.chunk = 4 << 10
	x := newSample(t, bed, 1, 300, 512) // 150 parts
	for i := range 8 {
		c, cancel := context.WithCancel(ctx)
		time.AfterFunc(time.Duration(i*i/2)*time.Millisecond, cancel)
		err := s.Put(c, x.e, x.snap)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if there := has(t, s, bed, x); there != (err == nil) {
			t.Errorf("%v, but the entry is there: %v", err, there)
		}
		if n := messages(t, s); err != nil && n != 0 {
			t.Errorf("a cancelled Put leaves %d messages", n)
		}
		q := bed.Sequence(key.Model, 0)
		if err == nil {
			if err := s.Get(c, x.e, q); !errors.Is(err, context.Canceled) {
				t.Errorf("Get, cancelled: %v", err)
			}
			if err := s.Delete(ctx, x.e.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Several writers in a bucket that is too small for what they write.
func TestTightTogether(t *testing.T) {
	noLeak(t)
	srv := listen(t, nil)
	bed := cachetest.NewBed(t)
	var all []sample
	for i := range 6 { // of about 130 KiB
		all = append(all, newSample(t, bed, i, 8, 4096))
	}
	var wg sync.WaitGroup
	for w := range 3 {
		s := open(t, Config{URL: srv.ClientURL(), MaxBytes: 600 << 10})
		q := bed.Sequence(key.Model, 0)
		wg.Go(func() {
			for i := range 12 {
				x := all[(i*(w+1)+w)%len(all)]
				if err := s.Put(ctx, x.e, x.snap); err != nil && !isFull(err) {
					t.Error(err)
				}
				x = all[(i+w)%len(all)]
				if err := s.Get(ctx, x.e, q); err == nil {
					if got, err := q.Bytes(); err != nil || !bytes.Equal(got, x.want) {
						t.Errorf("other bits (%v)", err)
					}
				} else if !errors.Is(err, cache.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := open(t, Config{URL: srv.ClientURL()})
	if s.Bytes() > 600<<10 {
		t.Errorf("%d bytes in a bucket for %d", s.Bytes(), 600<<10)
	}
	for _, x := range all {
		has(t, s, bed, x)
	}
	info, err := s.look(ctx, "$O.samebit.>")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.strays(info.State.Subjects)); n != 0 {
		t.Errorf("parts of %d uploads are left without a manifest", n)
	}
}

// A store that is closed while it writes ends the writing, and leaves all or
// nothing.
func TestCloseInPut(t *testing.T) {
	noLeak(t)
	bed, dir := cachetest.NewBed(t), t.TempDir()
	x := newSample(t, bed, 1, 300, 512)
	for i := range 4 {
		s, err := Open(ctx, Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		s.chunk = 4 << 10
		put := make(chan error, 1)
		go func() { put <- s.Put(ctx, x.e, x.snap) }()
		time.Sleep(time.Duration(3*i) * time.Millisecond)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		err = <-put
		s = open(t, Config{Dir: dir})
		if there := has(t, s, bed, x); err == nil && !there {
			t.Error("stored, and gone")
		}
		if err := s.Delete(ctx, x.e.ID); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}
