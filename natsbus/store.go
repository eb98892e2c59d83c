package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
	"samebit/state"
)

// Store is a cache.Store in a bucket of JetStream's object store, which any number
// of processes on any number of machines may share. An entry is an object with the
// bytes of cache.WriteEntry. It appears when its last message, the manifest, is
// stored, after the server has confirmed all others; it is never changed. The
// entries stored first make room for new ones.
type Store struct {
	objects
	own bool // c is closed with the store

	stamp    atomic.Uint64
	stampErr atomic.Int64 // when asking for it failed last, Unix ns
}

var _ cache.Store = (*Store)(nil)

const markKey, markValue = "samebit.cache", "1" // metadata of our buckets

// Open connects by cfg and opens its bucket. Close lets go of both.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	c, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := c.Store(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s.own = true
	return s, nil
}

// Store opens cfg's bucket on c, which the store's Close leaves open. Of cfg only
// Bucket, MaxBytes and Replicas matter.
func (c *Conn) Store(ctx context.Context, cfg Config) (*Store, error) {
	conn := c.cfg
	conn.Bucket, conn.MaxBytes, conn.Replicas = cfg.Bucket, cfg.MaxBytes, cfg.Replicas
	cfg, err := conn.check()
	if err != nil {
		return nil, err
	}
	s := &Store{objects: objects{c: c, bucket: cfg.Bucket, max: cfg.MaxBytes, orphan: orphanAge}}
	if s.chunk = int(min(maxChunk, c.nc.MaxPayload()-1024)); s.chunk < 1024 {
		return nil, s.fail(ctx, "opening", fmt.Errorf("messages of %d bytes are too small: raise the server's max_payload to 1 MiB", c.nc.MaxPayload()))
	}
	err = c.ask(ctx, func(ctx context.Context) error { return s.bind(ctx, cfg) })
	if err == nil {
		err = s.sweep(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, "opening", err)
	}
	return s, nil
}

// bind finds the bucket or makes it.
func (s *Store) bind(ctx context.Context, cfg Config) error {
	name := "OBJ_" + s.bucket
	st, err := s.c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = s.c.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: s.bucket, Description: "prefixes computed by samebit", MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas,
			Metadata: map[string]string{markKey: markValue},
		})
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) { // another process was quicker
			st, err = s.c.js.Stream(ctx, name)
		}
	}
	if err != nil {
		return err
	}
	have := st.CachedInfo().Config
	if have.Metadata[markKey] != markValue {
		return errors.New("the bucket exists and is not a samebit cache of this version: choose another Bucket")
	}
	if s.c.owned != nil && have.MaxBytes != cfg.MaxBytes {
		have.MaxBytes = cfg.MaxBytes
		if st, err = s.c.js.UpdateStream(ctx, have); err != nil {
			return err
		}
	}
	if have.MaxBytes > 0 { // a bound of the bucket, the same for all who share it
		s.max = have.MaxBytes
	}
	s.stream = st
	return nil
}

// fail explains an error of the bucket. What ended ctx comes first.
func (s *objects) fail(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if s.stream != nil && errors.Is(err, nats.ErrNoResponders) { // what a bucket says that is none any more
		if _, e := s.look(ctx, ""); e != nil {
			err = e
		}
	}
	return s.c.explain("bucket "+s.bucket+": "+what, err)
}

// look asks for the stream's numbers, and its subjects under filter if there is
// one, with the number of messages of each.
func (s *objects) look(ctx context.Context, filter string) (*jetstream.StreamInfo, error) {
	var o []jetstream.StreamInfoOpt
	if filter != "" {
		o = append(o, jetstream.WithSubjectFilter(filter))
	}
	var info *jetstream.StreamInfo
	err := s.c.ask(ctx, func(ctx context.Context) (err error) {
		info, err = s.stream.Info(ctx, o...)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.bytes.Store(int64(info.State.Bytes))
	return info, nil
}

// Put keeps the entry. See cache.Store.
func (s *Store) Put(ctx context.Context, e cache.Entry, snap state.Snapshot) error {
	what := fmt.Sprintf("storing %d rows", len(e.Rows))
	if err := ctx.Err(); err != nil {
		return s.fail(ctx, what, err)
	}
	var data bytes.Buffer
	if err := cache.WriteEntry(&data, e, snap); err != nil {
		return err
	}
	name := nameOf(e.Key, e.ID)
	switch _, err := s.manifest(ctx, name); {
	case err == nil, errors.Is(err, errBadManifest):
		return nil // it is there already; Get finds out whether it is whole
	case !errors.Is(err, cache.ErrNotFound):
		return s.fail(ctx, what, err)
	}
	cost := s.cost(data.Len())
	if cost > s.max {
		return fmt.Errorf("natsbus: %s: bucket %s: %s: %d bytes in a bucket for %d: %w", s.c.where, s.bucket, what, cost, s.max, cache.ErrTooLarge)
	}
	// Others may take the room that was made, so it is made more than once.
	var err error
	for range 4 {
		if err = s.room(ctx, cost); err == nil {
			err = s.upload(ctx, name.String(), data.Bytes())
		}
		if !isFull(err) && !errors.Is(err, errAgain) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return s.fail(ctx, what, err)
	}
	s.look(ctx, "") // for Bytes only
	return nil
}

// Get reads the entry. See cache.Store.
func (s *Store) Get(ctx context.Context, e cache.Entry, into cache.Appender) error {
	what := fmt.Sprintf("reading %d rows", len(e.Rows))
	if err := ctx.Err(); err != nil {
		return s.fail(ctx, what, err)
	}
	m, err := s.manifest(ctx, nameOf(e.Key, e.ID))
	var data []byte
	if err == nil {
		data, err = s.download(ctx, m)
	}
	if err == nil {
		if err = cache.ReadEntry(data, e, into); !errors.Is(err, cache.ErrNotFound) {
			return err // of the appender, which says itself what went wrong
		}
		if have, bad := cache.EntryRows(data); bad == nil && cache.NewEntry(have.Key, have.Rows).ID == m.id && cache.NewEntry(e.Key, e.Rows).ID != m.id {
			return err // whole, but not what was asked for
		}
		err = fmt.Errorf("%w: %w", errDamaged, err)
	}
	return s.missing(ctx, what, m, err)
}

// missing makes what is damaged a miss, after deleting it.
func (s *Store) missing(ctx context.Context, what string, m *manifest, err error) error {
	if errors.Is(err, errDamaged) || errors.Is(err, errBadManifest) {
		s.remove(ctx, m)
		return fmt.Errorf("%w: %w", cache.ErrNotFound, err)
	}
	if errors.Is(err, cache.ErrNotFound) {
		return err
	}
	return s.fail(ctx, what, err)
}

// List reads the rows of entries, not their states. See cache.Store.
func (s *Store) List(ctx context.Context, k cache.Key, skip func(cache.EntryID) bool, f func(cache.Entry) bool) error {
	info, err := s.look(ctx, s.metaSubject("")+">")
	if err != nil {
		return s.fail(ctx, "listing", err)
	}
	prefix := keyPrefix(k)
	for subject := range info.State.Subjects {
		name, ok := s.entryIn(subject)
		if !ok || name.prefix != prefix || skip(name.id) {
			continue
		}
		m, err := s.manifest(ctx, name)
		var e cache.Entry
		if err == nil {
			e, err = s.rows(ctx, m, k)
		}
		if err != nil {
			if err = s.missing(ctx, "listing", m, err); errors.Is(err, cache.ErrNotFound) {
				continue
			}
			return err
		}
		if !f(e) {
			return nil
		}
	}
	return nil
}

// Stamp is the number of messages that the bucket ever had. While the server does
// not answer, or when ctx ends first, it stays what it was; a server that did not
// answer is not asked again for a second.
func (s *Store) Stamp(ctx context.Context) uint64 {
	if time.Now().UnixNano()-s.stampErr.Load() < int64(time.Second) {
		return s.stamp.Load()
	}
	info, err := s.look(ctx, "")
	if err != nil {
		if ctx.Err() == nil {
			s.stampErr.Store(time.Now().UnixNano())
		}
		return s.stamp.Load()
	}
	v := info.State.LastSeq ^ uint64(info.Created.UnixNano())<<20
	s.stamp.Store(v)
	return v
}

// Delete removes an entry of any key; it is no error if there is none.
func (s *Store) Delete(ctx context.Context, id cache.EntryID) error {
	info, err := s.look(ctx, s.metaSubject("")+">")
	for subject := range infoSubjects(info) {
		name, ok := s.entryIn(subject)
		if !ok || name.id != id {
			continue
		}
		m, e := s.manifest(ctx, name)
		if e == nil || errors.Is(e, errBadManifest) {
			e = s.remove(ctx, m)
		}
		if e != nil && !errors.Is(e, cache.ErrNotFound) {
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return s.fail(ctx, "deleting", err)
	}
	s.look(ctx, "") // for Bytes only
	return nil
}

func infoSubjects(info *jetstream.StreamInfo) map[string]uint64 {
	if info == nil {
		return nil
	}
	return info.State.Subjects
}

// Bytes is what the bucket takes on the server, when this store last looked.
func (s *Store) Bytes() int64 { return s.bytes.Load() }

// Close lets go of the bucket, and of the connection if Open made it. The entries
// stay.
func (s *Store) Close() error {
	if s.own {
		return s.c.Close()
	}
	return nil
}
