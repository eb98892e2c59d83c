package natsbus

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
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

// Objects lie in the stream as the clients of the object store expect: parts under
// $O.bucket.C.part, the manifest under $O.bucket.M.base64(name). What is ours is
// that parts are named after their object, and that the manifest holds the
// sequence number of every part.

func (s *Store) metaSubject(name string) string {
	return "$O." + s.bucket + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

func (s *Store) partSubject(nuid string) string { return "$O." + s.bucket + ".C." + nuid }

// nameIn reads a manifest's subject.
func (s *Store) nameIn(subject string) (objectName, bool) {
	b64, ok := strings.CutPrefix(subject, s.metaSubject(""))
	if !ok {
		return objectName{}, false
	}
	b, err := base64.URLEncoding.DecodeString(b64)
	if err != nil {
		return objectName{}, false
	}
	return parseName(string(b))
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
	seq   uint64   // of the message itself
	parts []uint64 // of the parts, ascending; all but the last have chunk bytes
	chunk int64
}

// manifest reads the manifest of an object. ErrNotFound if there is none,
// errBadManifest, with what is needed to remove it, if it is not one of ours.
func (s *Store) manifest(ctx context.Context, name objectName) (*manifest, error) {
	var raw *jetstream.RawStreamMsg
	err := s.c.ask(ctx, func(ctx context.Context) (err error) {
		raw, err = s.stream.GetLastMsgForSubject(ctx, s.metaSubject(name.String()))
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%w: %w", cache.ErrNotFound, err)
	}
	if err != nil {
		return nil, err
	}
	m := s.parseManifest(raw)
	m.id = name.id
	if m.parts == nil || m.Name != name.String() || !strings.HasPrefix(m.NUID, m.Name+"-") {
		return m, fmt.Errorf("bucket %s: object %s: %w", s.bucket, name, errBadManifest)
	}
	return m, nil
}

// parseManifest leaves parts nil when the message is not a manifest of ours.
func (s *Store) parseManifest(raw *jetstream.RawStreamMsg) *manifest {
	m := &manifest{seq: raw.Sequence}
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

// cost is what an object of n bytes takes in the stream, at most.
func (s *Store) cost(n int) int64 {
	parts := int64(n)/int64(s.chunk) + 1
	return int64(n) + parts*(256+int64(len(s.bucket))+21) + 2048
}

// upload stores an object: all parts first, and when the server has them, the
// manifest. An object of that name that is there already stays. What a failed
// upload leaves is removed, if the server can still be asked.
func (s *Store) upload(ctx context.Context, name objectName, data []byte) error {
	nuid := name.String() + "-" + rand.Text()
	seqs, err := s.uploadParts(ctx, s.partSubject(nuid), data)
	if err == nil {
		err = s.uploadManifest(ctx, name, nuid, data, seqs)
	}
	if err == nil {
		return nil
	}
	clean := context.WithoutCancel(ctx)
	// The confirmation may be what was lost.
	m, lookErr := s.manifest(clean, name)
	if lookErr == nil && m.NUID == nuid {
		return nil
	}
	s.purge(clean, nuid)
	if !hasCode(err, codeWrongLast, codeWrongLast2) {
		return err
	}
	if errors.Is(lookErr, cache.ErrNotFound) { // there is one that the server cannot read, or could not by now
		return s.c.ask(ctx, func(ctx context.Context) error {
			return errors.Join(errAgain, s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.metaSubject(name.String()))))
		})
	}
	return nil // another one was quicker
}

// uploadParts sends the parts and returns their sequence numbers once all are
// stored. On an error it returns when no part is under way any more.
func (s *Store) uploadParts(ctx context.Context, subject string, data []byte) ([]uint64, error) {
	if err := s.c.ready(); err != nil {
		return nil, err
	}
	const window = 16 // parts under way
	lost, release := s.c.attached(context.WithoutCancel(ctx))
	defer release()
	ctx, detach := s.c.attached(ctx)
	defer detach()
	var seqs []uint64
	var waiting []jetstream.PubAckFuture
	// wait takes the oldest answer. Cancellation does not keep it from doing so.
	wait := func() error {
		f := waiting[0]
		waiting = waiting[1:]
		t := time.NewTimer(s.c.cfg.Timeout)
		defer t.Stop()
		select {
		case ack := <-f.Ok():
			seqs = append(seqs, ack.Sequence)
			return nil
		case err := <-f.Err():
			return err
		case <-lost.Done():
			return errLost
		case <-t.C:
			return errSilent
		}
	}
	var err error
	for len(data) > 0 && err == nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		n := min(s.chunk, len(data))
		var f jetstream.PubAckFuture
		if f, err = s.c.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data[:n]}); err != nil {
			break
		}
		data, waiting = data[n:], append(waiting, f)
		if len(waiting) == window {
			err = wait()
		}
	}
	for len(waiting) > 0 {
		if e := wait(); err == nil {
			err = e
		}
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return seqs, err
}

func (s *Store) uploadManifest(ctx context.Context, name objectName, nuid string, data []byte, seqs []uint64) error {
	sum := sha256.New()
	sum.Write(data)
	var diffs strings.Builder
	last := uint64(0)
	for i, v := range seqs {
		if i > 0 {
			diffs.WriteByte(' ')
		}
		diffs.WriteString(strconv.FormatUint(v-last, 10))
		last = v
	}
	body, err := json.Marshal(jetstream.ObjectInfo{
		ObjectMeta: jetstream.ObjectMeta{
			Name: name.String(), Metadata: map[string]string{seqsKey: diffs.String()},
			Opts: &jetstream.ObjectMetaOptions{ChunkSize: uint32(s.chunk)},
		},
		Bucket: s.bucket, NUID: nuid, Size: uint64(len(data)), Chunks: uint32(len(seqs)),
		Digest: jetstream.GetObjectDigestValue(sum),
	})
	if err != nil {
		return err
	}
	if len(body) > int(s.c.nc.MaxPayload())-1024 {
		return fmt.Errorf("%d parts have no place in a manifest of %d bytes: raise the server's max_payload", len(seqs), s.c.nc.MaxPayload())
	}
	return s.c.ask(ctx, func(ctx context.Context) error {
		_, err := s.c.js.PublishMsg(ctx, &nats.Msg{Subject: s.metaSubject(name.String()), Data: body}, jetstream.WithExpectLastSequencePerSubject(0))
		return err
	})
}

// download reads an object. errDamaged if it is not all there, bit for bit.
func (s *Store) download(ctx context.Context, m *manifest) ([]byte, error) {
	if err := s.plausible(ctx, m); err != nil {
		return nil, err
	}
	data := make([]byte, m.Size)
	if err := s.readAll(ctx, m, data); err != nil {
		return nil, err
	}
	want, err := jetstream.DecodeObjectDigest(m.Digest)
	if sum := sha256.Sum256(data); err != nil || !bytes.Equal(sum[:], want) {
		return nil, fmt.Errorf("object %s does not have the checksum it was written with: %w", m.Name, errDamaged)
	}
	return data, nil
}

// plausible fails with errDamaged when an object is said to be larger than all that
// the bucket has. It is asked before memory is taken.
func (s *Store) plausible(ctx context.Context, m *manifest) error {
	if m.Size > math.MaxInt {
		return fmt.Errorf("object %s of %d bytes is more than this machine can address: %w", m.Name, m.Size, cache.ErrNotFound)
	}
	if m.Size <= uint64(s.bytes.Load()) {
		return nil
	}
	info, err := s.look(ctx, "")
	if err == nil && m.Size > info.State.Bytes {
		err = fmt.Errorf("object %s of %d bytes in a bucket of %d: %w", m.Name, m.Size, info.State.Bytes, errDamaged)
	}
	return err
}

// readAll fills dst with the parts of an object. They are asked for four at a time,
// since each is an answer to wait for.
func (s *Store) readAll(ctx context.Context, m *manifest, dst []byte) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(4, len(m.parts)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(m.parts)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				part, err := s.part(ctx, m, int(i))
				if err != nil {
					cancel(err)
					return
				}
				copy(dst[i*m.chunk:], part)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// part reads part i of an object.
func (s *Store) part(ctx context.Context, m *manifest, i int) ([]byte, error) {
	var raw *jetstream.RawStreamMsg
	err := s.c.ask(ctx, func(ctx context.Context) (err error) {
		raw, err = s.stream.GetMsg(ctx, m.parts[i])
		return err
	})
	subject := s.partSubject(m.NUID)
	want := min(m.chunk, int64(m.Size)-int64(i)*m.chunk)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		// It may be a replica that lags behind which has answered.
		if there, err := s.leaderHas(ctx, m.parts[i]); err != nil {
			return nil, err
		} else if there {
			return nil, fmt.Errorf("part %d of object %s is not everywhere yet: %w", i, m.Name, cache.ErrNotFound)
		}
		return nil, fmt.Errorf("part %d of object %s is missing: %w", i, m.Name, errDamaged)
	case err != nil:
		return nil, err
	case raw.Subject != subject || int64(len(raw.Data)) != want:
		return nil, fmt.Errorf("part %d of object %s is another message: %w", i, m.Name, errDamaged)
	}
	return raw.Data, nil
}

// leaderHas asks the one server of a cluster that always knows.
func (s *Store) leaderHas(ctx context.Context, seq uint64) (there bool, err error) {
	err = s.c.ask(ctx, func(ctx context.Context) error {
		r, err := s.c.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET.OBJ_"+s.bucket, fmt.Appendf(nil, `{"seq":%d}`, seq))
		if err != nil {
			return err
		}
		var answer struct {
			Message *struct{}           `json:"message"`
			Error   *jetstream.APIError `json:"error"`
		}
		if err := json.Unmarshal(r.Data, &answer); err != nil {
			return err
		}
		there = answer.Message != nil
		if answer.Error != nil && answer.Error.ErrorCode != jetstream.JSErrCodeMessageNotFound {
			return answer.Error
		}
		return nil
	})
	return there, err
}

// remove deletes the object of a manifest, the manifest first, and no object that
// took its name meanwhile.
func (s *Store) remove(ctx context.Context, m *manifest) error {
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
func (s *Store) purge(ctx context.Context, nuid string) error {
	if strings.ContainsFunc(nuid, func(r rune) bool { return !bucketRune(r) }) {
		return nil
	}
	return s.c.ask(ctx, func(ctx context.Context) error {
		return s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.partSubject(nuid)))
	})
}
