package natsbus

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
)

var (
	errDamaged     = errors.New("damaged entry")
	errBadManifest = errors.New("damaged or foreign manifest")
	errAgain       = errors.New("an unreadable object was in the way")
)

// objectName is the name of an entry's object: a digest of the key, by which a
// key's entries are found, and the entry's ID.
type objectName struct {
	prefix string // 16 hex digits
	id     cache.EntryID
}

func (n objectName) String() string { return n.prefix + "-" + n.id.String() }

func nameOf(k cache.Key, id cache.EntryID) objectName { return objectName{keyPrefix(k), id} }

// keyPrefix begins the ID of no rows, which is a digest of the key alone.
func keyPrefix(k cache.Key) string {
	id := cache.NewEntry(k, nil).ID
	return hex.EncodeToString(id[:8])
}

// objects is a bucket of JetStream's object store. Objects lie in its stream as the
// clients of the object store expect: parts under $O.bucket.C.part, the manifest
// under $O.bucket.M.base64(name). What is ours is that parts are named after their
// object, and that the manifest holds the sequence number of every part. A name
// consists of letters, digits, - and _.
type objects struct {
	c      *Conn
	bucket string
	stream jetstream.Stream
	max    int64 // of the stream's bytes
	chunk  int   // bytes of an object in one message
	orphan time.Duration

	bytes atomic.Int64 // of the stream, when last looked

	mu    sync.Mutex
	swept time.Time // when leftovers were last looked for
}

const (
	// orphanAge is how long parts without a manifest may grow no further before they
	// count as left by a writer that died.
	orphanAge = 5 * time.Minute
	maxChunk  = 512 << 10
)

func (s *objects) metaSubject(name string) string {
	return "$O." + s.bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (s *objects) partSubject(nuid string) string { return "$O." + s.bucket + ".C." + nuid }

// nameIn reads a manifest's subject.
func (s *objects) nameIn(subject string) (string, bool) {
	b64, ok := strings.CutPrefix(subject, s.metaSubject(""))
	if !ok {
		return "", false
	}
	b, err := base64.URLEncoding.DecodeString(b64)
	return string(b), err == nil
}

// entryIn is nameIn of an entry.
func (s *Store) entryIn(subject string) (objectName, bool) {
	name, ok := s.nameIn(subject)
	if !ok {
		return objectName{}, false
	}
	return parseName(name)
}

func parseName(text string) (objectName, bool) {
	prefix, id, ok := strings.Cut(text, "-")
	n := objectName{prefix: prefix}
	if !ok || len(prefix) != 16 || len(id) != 2*len(n.id) {
		return n, false
	}
	_, err := hex.Decode(n.id[:], []byte(id))
	return n, err == nil
}

const seqsKey = "samebit.parts" // sequence numbers of the parts, differences in decimal

// manifest is the last message of an object.
type manifest struct {
	jetstream.ObjectInfo
	id    cache.EntryID
	seq   uint64    // of the message itself
	at    time.Time // when the server stored it
	parts []uint64  // of the parts, ascending; all but the last have chunk bytes
	chunk int64
}

// find reads the manifest of an object. ErrNotFound if there is none,
// errBadManifest, with what is needed to remove it, if it is not one of ours.
func (s *objects) find(ctx context.Context, name string) (*manifest, error) {
	var raw *jetstream.RawStreamMsg
	err := s.c.ask(ctx, func(ctx context.Context) (err error) {
		raw, err = s.stream.GetLastMsgForSubject(ctx, s.metaSubject(name))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	m := s.parseManifest(raw)
	if m.parts == nil || m.Name != name || !strings.HasPrefix(m.NUID, m.Name+"-") {
		return m, fmt.Errorf("bucket %s: object %s: %w", s.bucket, name, errBadManifest)
	}
	return m, nil
}

// manifest is find of an entry.
func (s *Store) manifest(ctx context.Context, name objectName) (*manifest, error) {
	m, err := s.find(ctx, name.String())
	if m != nil {
		m.id = name.id
	}
	return m, err
}

// parseManifest leaves parts nil when the message is not a manifest of ours.
func (s *objects) parseManifest(raw *jetstream.RawStreamMsg) *manifest {
	m := &manifest{seq: raw.Sequence, at: raw.Time}
	if json.Unmarshal(raw.Data, &m.ObjectInfo) != nil || m.Deleted || m.Opts == nil || m.Opts.Link != nil {
		return m
	}
	m.chunk = int64(m.Opts.ChunkSize)
	diffs := strings.Fields(m.Metadata[seqsKey])
	if n := uint64(len(diffs)); m.chunk == 0 || n == 0 || uint64(m.Chunks) != n ||
		m.Size > n*uint64(m.chunk) || m.Size <= (n-1)*uint64(m.chunk) {
		return m
	}
	parts, last := make([]uint64, len(diffs)), uint64(0)
	for i, d := range diffs {
		v, err := strconv.ParseUint(d, 10, 64)
		if err != nil || v == 0 || last+v < last || last+v >= m.seq {
			return m
		}
		last += v
		parts[i] = last
	}
	m.parts = parts
	return m
}

// remove deletes the object of a manifest, the manifest first, and no object that
// took its name meanwhile.
func (s *objects) remove(ctx context.Context, m *manifest) error {
	err := s.c.ask(ctx, func(ctx context.Context) error { return s.stream.DeleteMsg(ctx, m.seq) })
	if err != nil && !gone(err) {
		return err
	}
	if m.NUID == "" {
		return nil // its parts, if it has any, are swept up
	}
	return s.purge(ctx, m.NUID)
}

// gone says that a message to delete was not there.
func gone(err error) bool {
	const codeDeleteFailed, codeSequenceNotFound = 10057, 10043
	return errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) || hasCode(err, codeDeleteFailed, codeSequenceNotFound, jetstream.JSErrCodeMessageNotFound)
}

// purge deletes parts. A nuid with anything but the characters of names could be a
// pattern, and is left alone.
func (s *objects) purge(ctx context.Context, nuid string) error {
	if strings.ContainsFunc(nuid, func(r rune) bool { return !bucketRune(r) }) {
		return nil
	}
	return s.c.ask(ctx, func(ctx context.Context) error {
		return s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.partSubject(nuid)))
	})
}
