package natsbus

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
	"samebit/cache/cachetest"
)

// Whatever a manifest says, what is taken from it fits together.
func FuzzManifest(f *testing.F) {
	for _, parts := range []string{"1 1 2", "1", "0 1", "18446744073709551615 2", ""} {
		b, err := json.Marshal(jetstream.ObjectInfo{
			ObjectMeta: jetstream.ObjectMeta{Name: "n", Metadata: map[string]string{seqsKey: parts}, Opts: &jetstream.ObjectMetaOptions{ChunkSize: 4}},
			NUID:       "n-x", Size: 11, Chunks: 3,
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &objects{bucket: "b"}
		m := s.parseManifest(&jetstream.RawStreamMsg{Data: b, Sequence: 9})
		last := uint64(0)
		for _, p := range m.parts {
			if p <= last || p >= 9 {
				t.Errorf("parts %v of message 9", m.parts)
			}
			last = p
		}
		if n := uint64(len(m.parts)); n > 0 && (m.Size > n*uint64(m.chunk) || m.Size <= (n-1)*uint64(m.chunk)) {
			t.Errorf("%d bytes in %d parts of %d", m.Size, n, m.chunk)
		}
	})
}

// Whatever an object holds, reading its rows ends in rows or errDamaged, inside the
// object. What cache can read, readRows reads alike.
func FuzzRows(f *testing.F) {
	bed := cachetest.NewBed(f)
	for i, width := range []int{0, 3} {
		x := newSample(f, bed, i, 4, width)
		var b bytes.Buffer
		if err := cache.WriteEntry(&b, x.e, x.snap); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
		f.Add(b.Bytes()[:b.Len()-9])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		rows, err := readRows(int64(len(b)), func(dst []byte, off int64) error {
			if off < 0 || off+int64(len(dst)) > int64(len(b)) {
				t.Fatalf("bytes %d to %d of %d are read", off, off+int64(len(dst)), len(b))
			}
			copy(dst, b[off:])
			return nil
		})
		if (err == nil) != (len(rows) > 0) || err != nil && !errors.Is(err, errDamaged) {
			t.Errorf("%d rows and %v", len(rows), err)
		}
		if e, bad := cache.EntryRows(b); bad == nil && (err != nil || cache.NewEntry(e.Key, rows).ID != e.ID) {
			t.Errorf("cache reads %d rows, we %d and %v", len(e.Rows), len(rows), err)
		}
	})
}
