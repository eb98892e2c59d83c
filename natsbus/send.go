package natsbus

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/rclc"
)

// entry is a delivery in the stream.
type entry struct {
	Version int    `json:"version"`
	ID      string `json:"id"`
	Object  string `json:"object"` // in the bucket
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

const entryVersion = 1

// parseEntry reads the entry of a delivery.
func parseEntry(data []byte, id string) (e entry, err error) {
	if err = json.Unmarshal(data, &e); err != nil {
		return e, fmt.Errorf("the entry %.200q cannot be read: %w", data, err)
	}
	if e.Version != entryVersion || e.ID != id || objectID(e.Object) != id || strings.ContainsFunc(e.Object, func(r rune) bool { return !bucketRune(r) }) || e.Bytes < 1 {
		return e, fmt.Errorf("the entry %.200q is not one of version %d for delivery %s", data, entryVersion, id)
	}
	return e, nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// NewID returns an id that no other delivery has.
func NewID() string { return rand.Text() }

// Send hands d to a receiver by its name. When it returns nil, the server has the
// delivery, whole, and keeps it until the receiver has it or it expires. The receiver
// need not be there yet.
//
// While the connection is lost or the server silent, Send waits and tries again
// until ctx ends. An error then does not say that nothing was sent: whoever sends the
// same delivery again does so with the same id, which makes one delivery of both,
// also in another process. That holds for 10 minutes on the server and, as long as
// receivers remember ids, for twice the Expiry.
func (b *Bus) Send(ctx context.Context, to, id string, d rclc.Delivery) error {
	if !isName(to) || !isName(id) {
		return fmt.Errorf("natsbus: sending delivery %.60q to %.60q: want names of at most 60 letters, digits, - and _", id, to)
	}
	what := fmt.Sprintf("sending delivery %s to %s", id, to)
	if int64(d.Bytes()) > b.cfg.Limits.Bytes {
		return b.fail(ctx, what, fmt.Errorf("%w: %d bytes of rows, the limit is %d", errTooLarge, d.Bytes(), b.cfg.Limits.Bytes))
	}
	var data bytes.Buffer
	if _, err := d.WriteTo(&data); err != nil {
		return fmt.Errorf("natsbus: %s: %w", what, err)
	}
	if n := int64(data.Len()); n > b.cfg.Limits.Bytes || b.pay.cost(data.Len()) > b.pay.max {
		return b.fail(ctx, what, fmt.Errorf("%w: %d bytes, the limit is %d and the bucket holds %d", errTooLarge, n, b.cfg.Limits.Bytes, b.pay.max))
	}
	s := &sending{b: b, to: to, id: id, data: data.Bytes()}
	err := b.retry(ctx, what, s.attempt)
	if err != nil {
		s.abandon(ctx)
		return b.fail(ctx, what, err)
	}
	return nil
}

var errTooLarge = errors.New("the delivery is too large")

// To is a receiver that sends what it is given to a name, each delivery under a new
// id. See [Bus.Send].
func (b *Bus) To(name string) rclc.Receiver {
	return rclc.ReceiverFunc(func(ctx context.Context, d rclc.Delivery) error {
		return b.Send(ctx, name, NewID(), d)
	})
}

// sending is one call of Send.
type sending struct {
	b         *Bus
	to, id    string
	data      []byte
	object    string    // that has the payload; "" for none yet
	since     time.Time // before its upload
	published bool      // publishing was tried, so that an entry may name the object
}

// attempt uploads the payload, unless a young one is there, and publishes the entry.
func (s *sending) attempt(ctx context.Context) error {
	b := s.b
	if s.object == "" || time.Since(s.since) > freshFor {
		name := s.id + "_" + rand.Text()
		since := time.Now()
		if err := s.upload(ctx, name); err != nil {
			return err
		}
		s.object, s.since, s.published = name, since, false
	}
	body, err := json.Marshal(entry{Version: entryVersion, ID: s.id, Object: s.object, Bytes: int64(len(s.data)), SHA256: sumOf(s.data)})
	if err != nil {
		return err
	}
	first := !s.published
	s.published = true
	var ack *jetstream.PubAck
	err = b.c.ask(ctx, func(ctx context.Context) (err error) {
		ack, err = b.c.js.PublishMsg(ctx, &nats.Msg{Subject: b.subject("to", s.to, s.id), Data: body},
			jetstream.WithMsgID(s.to+"."+s.id), jetstream.WithExpectStream(b.streamName()), jetstream.WithExpectLastSequencePerSubject(0))
		return err
	})
	waits := hasCode(err, codeWrongLast, codeWrongLast2) // the delivery waits already
	if first && (waits || err == nil && ack.Duplicate) {
		s.published = false // no entry names the object
		s.abandon(ctx)
	}
	if waits {
		return nil
	}
	return err
}

// upload makes room once when there is none.
func (s *sending) upload(ctx context.Context, name string) error {
	err := s.b.pay.upload(ctx, name, s.data)
	if isFull(err) {
		if err := s.b.sweep(ctx); err != nil {
			return err
		}
		err = s.b.pay.upload(ctx, name, s.data)
	}
	return err
}

// abandon removes the payload when no entry can name it. What it cannot remove now
// is swept later.
func (s *sending) abandon(ctx context.Context) {
	if s.object == "" || s.published {
		return
	}
	ctx, end := lingering(ctx)
	defer end()
	m, err := s.b.pay.find(ctx, s.object)
	if err == nil {
		err = s.b.pay.remove(ctx, m)
	}
	if err != nil {
		s.b.cfg.Log.Warn("a payload is left over", "bus", s.b.cfg.Name, "object", s.object, "err", err)
	}
	s.object = ""
}

// retry calls f until it succeeds, fails for good, or ctx ends.
func (b *Bus) retry(ctx context.Context, what string, f func(context.Context) error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := ctx.Err()
		if err == nil {
			err = f(ctx)
		}
		if err == nil || ctx.Err() != nil || !b.passing(ctx, err) {
			return err
		}
		b.cfg.Log.Warn("trying again", "bus", b.cfg.Name, "what", what, "in", wait, "err", err)
		if sleep(ctx, wait) != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passing says that an error may go away by itself: that of a connection, or of a
// cluster that elects.
func (b *Bus) passing(ctx context.Context, err error) bool {
	if b.c.nc.IsClosed() || denied(err) || errors.Is(err, errSilent) && denied(b.c.said(time.Now().Add(-2*b.c.cfg.Timeout))) {
		return false
	}
	var api *jetstream.APIError
	var network net.Error
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, errPull):
		// A stream that is gone says nothing either.
		_, err := b.info(ctx, b.subject("to", "-", "-"))
		return !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrJetStreamNotEnabled) && !errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
	case errors.Is(err, errLost), errors.Is(err, errSilent), errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoServers),
		errors.Is(err, nats.ErrDisconnected), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, nats.ErrReconnectBufExceeded), errors.As(err, &network):
		return true
	case errors.As(err, &api):
		return api.Code == 503 && !hasCode(err, codeStoreFailed, codeNoStorage, codeNoMemory, codeNoResources, codeAccountFull)
	}
	return false
}
