package natsbus

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"samebit/cache"
	"samebit/cache/cachetest"
	"samebit/state"
)

var ctx = context.Background()

// listen runs a server with a port, for what must go over a network.
func listen(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	srv := listenUnready(t, change)
	if !srv.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not get ready")
	}
	return srv
}

// listenUnready does not wait until clients may connect.
func listenUnready(t *testing.T, change func(*server.Options)) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	if change != nil {
		change(o)
	}
	srv, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	return srv
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// sample is an entry with its snapshot and its bits.
type sample struct {
	e    cache.Entry
	snap state.Snapshot
	want []byte
}

var key = cache.Key{Model: state.ID{1}, Route: 2}

// newSample makes n rows, continuous ones of width values if width is positive.
func newSample(t testing.TB, bed *cachetest.Bed, doc, n, width int) sample {
	t.Helper()
	rows := make([]state.Row, n)
	for i := range rows {
		rows[i].Token = int32(1000*doc + i)
		if width > 0 {
			rows[i] = state.Row{Token: -1, Vec: make([]float32, width)}
			for j := range rows[i].Vec {
				rows[i].Vec[j] = float32(doc*31 + i*width + j)
			}
		}
	}
	q := bed.Sequence(key.Model, 0)
	if err := q.Append(ctx, rows); err != nil {
		t.Fatal(err)
	}
	snap, err := q.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(snap.Release)
	want, err := q.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return sample{cache.NewEntry(key, rows), snap, want}
}

func put(t testing.TB, s *Store, x sample) {
	t.Helper()
	if err := s.Put(ctx, x.e, x.snap); err != nil {
		t.Fatal(err)
	}
}

// has reports whether s gives x back, and fails if it gives anything else.
func has(t *testing.T, s *Store, bed *cachetest.Bed, x sample) bool {
	t.Helper()
	q := bed.Sequence(key.Model, 0)
	err := s.Get(ctx, x.e, q)
	if errors.Is(err, cache.ErrNotFound) {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := q.Bytes(); err != nil || !bytes.Equal(got, x.want) {
		t.Errorf("%d rows come back with other bits (%v)", len(x.e.Rows), err)
	}
	return true
}

func listed(t testing.TB, s *Store) map[cache.EntryID]bool {
	t.Helper()
	l := map[cache.EntryID]bool{}
	err := s.List(ctx, key, func(cache.EntryID) bool { return false }, func(e cache.Entry) bool {
		l[e.ID] = true
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// messages counts what the bucket holds.
func messages(t *testing.T, s *Store) uint64 {
	t.Helper()
	info, err := s.look(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// noLeak fails when goroutines that began after it are there when the test ends.
func noLeak(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if runtime.NumGoroutine() <= before {
				return
			}
		}
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after:\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
	})
}

// proxy passes bytes on to a server until it is told to stop.
type proxy struct {
	addr string
	to   string
	ln   net.Listener

	mu    sync.Mutex
	conns []net.Conn
	left  int // bytes to pass on from clients before everything is cut; negative means any number
	mute  bool
	done  sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: "nats://" + ln.Addr().String(), to: to, ln: ln, left: -1}
	p.done.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, c, s)
			p.mu.Unlock()
			p.done.Go(func() { p.pass(s, c, true) })
			p.done.Go(func() { p.pass(c, s, false) })
		}
	})
	t.Cleanup(func() { p.cut(); p.done.Wait() })
	return p
}

func (p *proxy) pass(dst, src net.Conn, count bool) {
	buf := make([]byte, 8<<10)
	for {
		n, err := src.Read(buf)
		if err != nil {
			dst.Close()
			return
		}
		p.mu.Lock()
		mute, cut := p.mute, false
		if count && p.left >= 0 {
			n = min(n, p.left)
			p.left -= n
			cut = p.left == 0
		}
		p.mu.Unlock()
		if !mute {
			dst.Write(buf[:n])
		}
		if cut {
			p.cut()
			return
		}
	}
}

func (p *proxy) set(left int, mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.mute = left, mute
}

func (p *proxy) cut() {
	p.ln.Close()
	p.drop()
}

func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}
