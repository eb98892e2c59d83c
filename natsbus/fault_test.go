package natsbus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
	"samebit/cache/cachetest"
)

// replace stores other bytes and another manifest under the name of an entry.
func replace(t *testing.T, s *Store, name objectName, data []byte, change func(*jetstream.ObjectInfo)) {
	t.Helper()
	m, err := s.manifest(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	info := m.ObjectInfo
	if data != nil {
		if err := s.remove(ctx, m); err != nil {
			t.Fatal(err)
		}
		info.NUID = name.String() + "-other"
		seqs, err := s.uploadParts(ctx, s.partSubject(info.NUID), data)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.uploadManifest(ctx, name.String(), info.NUID, data, seqs); err != nil {
			t.Fatal(err)
		}
		if m, err = s.manifest(ctx, name); err != nil {
			t.Fatal(err)
		}
		info = m.ObjectInfo
	}
	if change == nil {
		return
	}
	if err := s.stream.DeleteMsg(ctx, m.seq); err != nil {
		t.Fatal(err)
	}
	change(&info)
	body, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, s, name, body)
}

func publish(t *testing.T, s *Store, name objectName, body []byte) {
	t.Helper()
	if _, err := s.c.js.Publish(ctx, s.metaSubject(name.String()), body); err != nil {
		t.Fatal(err)
	}
}

func TestDamageIsAMiss(t *testing.T) {
	bed := cachetest.NewBed(t)
	s := open(t, Config{Dir: t.TempDir(), MaxBytes: 64 << 20})
	s.chunk = 16 << 10
	x, other := newSample(t, bed, 1, 70, 128), newSample(t, bed, 2, 3, 0) // three parts, and one
	name := nameOf(key, x.e.ID)
	var good, otherGood bytes.Buffer
	if err := errors.Join(cache.WriteEntry(&good, x.e, x.snap), cache.WriteEntry(&otherGood, other.e, other.snap)); err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		b := bytes.Clone(good.Bytes())
		b[at] ^= 4
		return b
	}
	for _, d := range []struct {
		what   string
		hurt   func()
		listed bool // the rows are whole, so List may not notice
	}{
		{"a bit of a state, with a right sum of the object", func() { replace(t, s, name, flipped(good.Len()-1), nil) }, true},
		{"a bit of a state", func() {
			sum := sha256.New()
			sum.Write(good.Bytes())
			replace(t, s, name, flipped(good.Len()-1), func(i *jetstream.ObjectInfo) { i.Digest = jetstream.GetObjectDigestValue(sum) })
		}, true},
		{"a bit of the head's length", func() { replace(t, s, name, flipped(2), nil) }, false},
		{"a bit of the head", func() { replace(t, s, name, flipped(8), nil) }, false},
		{"half", func() { replace(t, s, name, good.Bytes()[:good.Len()/2], nil) }, true},
		{"seven bytes", func() { replace(t, s, name, good.Bytes()[:7], nil) }, false},
		{"another entry under the name", func() { replace(t, s, name, otherGood.Bytes(), nil) }, false},
		{"a part is gone", func() {
			m, err := s.manifest(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.stream.DeleteMsg(ctx, m.parts[1]); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"parts of a message that is none", func() {
			replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.Metadata[seqsKey] = "1 1 1" })
		}, true},
		{"fewer parts", func() {
			replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.Metadata[seqsKey] = "1" })
		}, false},
		{"a size that cannot be", func() { replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.Size = 1 << 60 }) }, false},
		{"a size larger than the bucket's content", func() {
			replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.Size, i.Opts.ChunkSize = 60<<20, 60<<20/i.Chunks+1 })
		}, false},
		{"marked as deleted", func() { replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.Deleted = true }) }, false},
		{"parts of anybody", func() { replace(t, s, name, nil, func(i *jetstream.ObjectInfo) { i.NUID = ">" }) }, false},
		{"no manifest but text", func() {
			m, err := s.manifest(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.remove(ctx, m); err != nil {
				t.Fatal(err)
			}
			publish(t, s, name, []byte("hello"))
		}, false},
		{"an object of another client", func() {
			obs, err := s.c.js.ObjectStore(ctx, s.bucket)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := obs.PutBytes(ctx, name.String(), good.Bytes()); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		for _, by := range []string{"Get", "List"} {
			put(t, s, other)
			put(t, s, x)
			d.hurt()
			if by == "List" {
				l := listed(t, s)
				if !l[other.e.ID] || l[x.e.ID] && !d.listed {
					t.Errorf("%s: listed %v", d.what, l)
				}
			}
			if has(t, s, bed, x) {
				t.Errorf("%s: found", d.what)
			}
			if _, err := s.manifest(ctx, name); !errors.Is(err, cache.ErrNotFound) {
				t.Errorf("%s: still there after %s: %v", d.what, by, err)
			}
			put(t, s, x)
			if !has(t, s, bed, x) || !has(t, s, bed, other) {
				t.Errorf("%s: an entry is missing afterwards", d.what)
			}
			if err := s.Delete(ctx, x.e.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.orphan = 0
	time.Sleep(2 * time.Millisecond)
	if err := s.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if n := messages(t, s); n != 2 {
		t.Errorf("%d messages after all, want the other entry's 2", n)
	}
}

// Every client of the object store can read what is stored.
func TestObjectOfTheObjectStore(t *testing.T) {
	bed := cachetest.NewBed(t)
	s := open(t, Config{Dir: t.TempDir()})
	s.chunk = 16 << 10
	x := newSample(t, bed, 1, 70, 128)
	put(t, s, x)
	obs, err := s.c.js.ObjectStore(ctx, s.bucket)
	if err != nil {
		t.Fatal(err)
	}
	data, err := obs.GetBytes(ctx, nameOf(key, x.e.ID).String())
	if err != nil {
		t.Fatal(err)
	}
	if err := cache.ReadEntry(data, x.e, bed.Sequence(key.Model, 0)); err != nil {
		t.Error(err)
	}
}

func TestDamagedDisk(t *testing.T) {
	bed, dir := cachetest.NewBed(t), t.TempDir()
	s := open(t, Config{Dir: dir})
	x := newSample(t, bed, 1, 300, 0)
	put(t, s, x)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", "OBJ_samebit", "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no blocks in %s, %v", dir, err)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/3] ^= 1
	if err := os.WriteFile(files[0], b, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if has(t, s, bed, x) {
		t.Error("damaged blocks give an entry")
	}
	put(t, s, x)
	if !has(t, s, bed, x) {
		t.Error("the entry cannot be stored again")
	}
}

func TestConnectionCutInPut(t *testing.T) {
	noLeak(t)
	srv := listen(t, nil)
	bed := cachetest.NewBed(t)
	direct := open(t, Config{URL: srv.ClientURL()})
	x := newSample(t, bed, 1, 200, 256) // 13 parts
	for _, after := range []int{10, 20 << 10, 100 << 10, 200 << 10} {
		p := newProxy(t, srv.Addr().String())
		s := open(t, Config{URL: p.addr, Timeout: 5 * time.Second})
		s.chunk = 16 << 10
		p.set(after, false)
		start := time.Now()
		err := s.Put(ctx, x.e, x.snap)
		if err == nil || !strings.Contains(err.Error(), p.addr) || !strings.Contains(err.Error(), "bucket samebit") {
			t.Errorf("cut after %d bytes: %v", after, err)
		}
		if has(t, direct, bed, x) || len(listed(t, direct)) != 0 {
			t.Errorf("cut after %d bytes: an entry is there", after)
		}
		stamp := s.Stamp(ctx)
		if err := s.Get(ctx, x.e, bed.Sequence(key.Model, 0)); err == nil || errors.Is(err, cache.ErrNotFound) {
			t.Errorf("Get without a server: %v", err)
		}
		if s.Stamp(ctx) != stamp {
			t.Error("the stamp changes while there is no server")
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("without a server, all takes %v", d)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if messages(t, direct) == 0 {
		t.Error("no parts are left: the test tests nothing")
	}
	direct.orphan = 0
	time.Sleep(2 * time.Millisecond)
	if err := direct.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if n := messages(t, direct); n != 0 {
		t.Errorf("%d messages after sweeping", n)
	}
}

func TestServerThatComesBackAndOneThatIsSilent(t *testing.T) {
	noLeak(t)
	srv := listen(t, nil)
	bed := cachetest.NewBed(t)
	p := newProxy(t, srv.Addr().String())
	s := open(t, Config{URL: p.addr, Timeout: 300 * time.Millisecond})
	x := newSample(t, bed, 1, 5, 0)
	put(t, s, x)

	p.set(-1, true)
	start := time.Now()
	err := s.Get(ctx, x.e, bed.Sequence(key.Model, 0))
	if !errors.Is(err, errSilent) || time.Since(start) > 5*time.Second {
		t.Errorf("a silent server: %v after %v", err, time.Since(start))
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if err := s.Get(short, x.e, bed.Sequence(key.Model, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a silent server and a deadline: %v", err)
	}
	brief, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if s.Stamp(brief); s.stampErr.Load() != 0 {
		t.Error("a deadline that passed counts as a silent server")
	}
	p.set(-1, false)
	p.drop()
	for end := time.Now().Add(8 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := s.Get(ctx, x.e, bed.Sequence(key.Model, 0))
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the connection does not come back: %v", err)
		}
	}
}

func TestBucketOfSomebodyElse(t *testing.T) {
	c, err := Connect(ctx, Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "photos"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Store(ctx, Config{Bucket: "photos"}); err == nil || !strings.Contains(err.Error(), "photos") {
		t.Errorf("a bucket that is no cache: %v", err)
	}
	s, err := c.Store(ctx, Config{Bucket: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.js.DeleteObjectStore(ctx, "ours"); err != nil {
		t.Fatal(err)
	}
	bed := cachetest.NewBed(t)
	x := newSample(t, bed, 1, 5, 0)
	if err := s.Put(ctx, x.e, x.snap); err == nil || !strings.Contains(err.Error(), "bucket was removed") {
		t.Errorf("a bucket that was removed: %v", err)
	}
}

// forgetful is a stream that fails to give messages of a subject.
type forgetful struct {
	jetstream.Stream
	subject string
}

func (s forgetful) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	if subject == s.subject {
		return nil, nats.ErrTimeout
	}
	return s.Stream.GetLastMsgForSubject(ctx, subject)
}

// Parts whose manifest cannot be read now may be in use.
func TestSweepingWithoutAManifest(t *testing.T) {
	srv := listen(t, nil)
	bed := cachetest.NewBed(t)
	s := open(t, Config{URL: srv.ClientURL()})
	x := newSample(t, bed, 1, 5, 0)
	put(t, s, x)
	name := nameOf(x.e.Key, x.e.ID).String()
	before := messages(t, s)
	if _, err := s.c.js.Publish(ctx, s.partSubject(name+"-left"), []byte("of a writer that died")); err != nil {
		t.Fatal(err)
	}
	s.orphan = 0
	time.Sleep(2 * time.Millisecond)
	whole := s.stream
	s.stream = forgetful{whole, s.metaSubject(name)}
	err := s.sweep(ctx)
	s.stream = whole
	if !errors.Is(err, nats.ErrTimeout) || !has(t, s, bed, x) {
		t.Errorf("error %v, the entry is there: %v", err, has(t, s, bed, x))
	}
	if err := s.sweep(ctx); err != nil || !has(t, s, bed, x) || messages(t, s) != before {
		t.Errorf("error %v, the entry is there: %v, %d messages, want %d", err, has(t, s, bed, x), messages(t, s), before)
	}
}
