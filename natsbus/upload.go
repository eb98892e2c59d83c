package natsbus

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
)

// cost is what an object of n bytes takes in the stream, at most.
func (s *objects) cost(n int) int64 {
	parts := int64(n)/int64(s.chunk) + 1
	return int64(n) + parts*(256+int64(len(s.bucket))+21) + 2048
}

// upload stores an object: all parts first, and when the server has them, the
// manifest. An object of that name that is there already stays. What a failed
// upload leaves is removed, if the server can still be asked.
func (s *objects) upload(ctx context.Context, name string, data []byte) error {
	nuid := name + "-" + rand.Text()
	seqs, err := s.uploadParts(ctx, s.partSubject(nuid), data)
	if err == nil {
		err = s.uploadManifest(ctx, name, nuid, data, seqs)
	}
	if err == nil {
		return nil
	}
	clean, end := lingering(ctx)
	defer end()
	// The confirmation may be what was lost.
	m, lookErr := s.find(clean, name)
	if lookErr == nil && m.NUID == nuid {
		return nil
	}
	s.purge(clean, nuid)
	if !hasCode(err, codeWrongLast, codeWrongLast2) {
		return err
	}
	if errors.Is(lookErr, cache.ErrNotFound) { // there is one that the server cannot read, or could not by now
		return s.c.ask(ctx, func(ctx context.Context) error {
			return errors.Join(errAgain, s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.metaSubject(name))))
		})
	}
	return nil // another one was quicker
}

// uploadParts sends the parts and returns their sequence numbers once all are
// stored. On an error it returns when no part is under way any more.
func (s *objects) uploadParts(ctx context.Context, subject string, data []byte) ([]uint64, error) {
	if err := s.c.ready(); err != nil {
		return nil, err
	}
	const window = 16 // parts under way
	late, end := lingering(ctx)
	defer end()
	late, release := s.c.attached(late)
	defer release()
	ctx, detach := s.c.attached(ctx)
	defer detach()
	var seqs []uint64
	var waiting []jetstream.PubAckFuture
	// wait takes the oldest answer, also for a moment after cancellation.
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
		case <-late.Done():
			return context.Cause(late)
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

func (s *objects) uploadManifest(ctx context.Context, name string, nuid string, data []byte, seqs []uint64) error {
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
			Name: name, Metadata: map[string]string{seqsKey: diffs.String()},
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
		_, err := s.c.js.PublishMsg(ctx, &nats.Msg{Subject: s.metaSubject(name), Data: body}, jetstream.WithExpectLastSequencePerSubject(0))
		return err
	})
}
