package natsbus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
)

// download reads an object. errDamaged if it is not all there, bit for bit.
func (s *objects) download(ctx context.Context, m *manifest) ([]byte, error) {
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
func (s *objects) plausible(ctx context.Context, m *manifest) error {
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
func (s *objects) readAll(ctx context.Context, m *manifest, dst []byte) error {
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
func (s *objects) part(ctx context.Context, m *manifest, i int) ([]byte, error) {
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
func (s *objects) leaderHas(ctx context.Context, seq uint64) (there bool, err error) {
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
