package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
)

// room deletes leftovers, and then the oldest objects, until cost bytes fit.
func (s *Store) room(ctx context.Context, cost int64) error {
	info, err := s.look(ctx, "")
	if err != nil || int64(info.State.Bytes)+cost <= s.max {
		return err
	}
	s.mu.Lock()
	due := time.Since(s.swept) > s.orphan
	s.mu.Unlock()
	if due {
		if err := s.sweep(ctx); err != nil {
			return err
		}
		if info, err = s.look(ctx, ""); err != nil || int64(info.State.Bytes)+cost <= s.max {
			return err
		}
	}
	for idle := 0; idle < 50; {
		before := s.bytes.Load()
		m, err := s.oldest(ctx)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err == nil {
			err = s.remove(ctx, m)
		}
		if err == nil {
			info, err = s.look(ctx, "")
		}
		if err != nil || int64(info.State.Bytes)+cost <= s.max {
			return err
		}
		// A replica that lags behind names what was deleted already, for a while.
		if int64(info.State.Bytes) >= before {
			idle++
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if info, err = s.look(ctx, ""); err != nil || int64(info.State.Bytes)+cost <= s.max {
		return err
	}
	return fmt.Errorf("%w: %d bytes of %d are being written by others and cannot make room for %d", errFull, info.State.Bytes, s.max, cost)
}

// oldest finds the manifest that was stored first.
func (s *Store) oldest(ctx context.Context) (*manifest, error) {
	var raw *jetstream.RawStreamMsg
	err := s.c.ask(ctx, func(ctx context.Context) (err error) {
		raw, err = s.stream.GetMsg(ctx, 1, jetstream.WithGetMsgSubject(s.metaSubject("")+">"))
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.parseManifest(raw), nil
}

// sweep removes parts whose writer died: those that no manifest names and that
// have not become more for a while, by the server's clock.
func (s *objects) sweep(ctx context.Context) error {
	info, err := s.look(ctx, "$O."+s.bucket+".>")
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.swept = time.Now()
	s.mu.Unlock()
	for nuid := range s.strays(info.State.Subjects) {
		m, err := s.find(ctx, uploadOf(nuid))
		switch {
		case err == nil && m.NUID == nuid:
			continue
		case err != nil && !errors.Is(err, cache.ErrNotFound) && !errors.Is(err, errBadManifest):
			return err // whether they are in use is not known
		}
		var last *jetstream.RawStreamMsg
		err = s.c.ask(ctx, func(ctx context.Context) (err error) {
			last, err = s.stream.GetLastMsgForSubject(ctx, s.partSubject(nuid))
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err == nil && info.TimeStamp.Sub(last.Time) > s.orphan {
			err = s.purge(ctx, nuid)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// strays finds names of parts whose object has no manifest, or more parts than one
// upload has: the others are surely in use.
func (s *objects) strays(subjects map[string]uint64) map[string]bool {
	uploads := map[string][]string{} // by manifest subject
	for subject := range subjects {
		nuid, ok := strings.CutPrefix(subject, s.partSubject(""))
		if !ok {
			continue
		}
		meta := s.metaSubject(uploadOf(nuid))
		uploads[meta] = append(uploads[meta], nuid)
	}
	stray := map[string]bool{}
	for meta, nuids := range uploads {
		if _, there := subjects[meta]; there && len(nuids) == 1 {
			continue
		}
		for _, n := range nuids {
			stray[n] = true
		}
	}
	return stray
}

// uploadOf is the name of the object that parts belong to.
func uploadOf(nuid string) string {
	if i := strings.LastIndexByte(nuid, '-'); i >= 0 {
		return nuid[:i]
	}
	return nuid
}
