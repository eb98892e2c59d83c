package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DeadLetter is a delivery that its receiver could not take: damaged, of another
// model, too large, or refused too often. It stays, with its payload, until it
// expires, is sent again or is discarded.
type DeadLetter struct {
	To, ID   string
	Reason   string
	Attempts int       // how often it was handed out
	At       time.Time // when it was given up

	seq   uint64
	entry *entry // nil if it could not be read
}

// deadEntry is a dead letter in the stream.
type deadEntry struct {
	Version  int    `json:"version"`
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	Entry    *entry `json:"entry,omitempty"`
}

// bury makes an entry a dead letter, and only then takes it out of the queue. What
// it returns ends Run.
func (r *Receiver) bury(ctx context.Context, msg *nats.Msg, meta *nats.MsgMetadata, e *entry, reason error) error {
	b := r.b
	_, _, id, _ := b.address(msg.Subject)
	const most = 4 << 10
	text := reason.Error()
	if len(text) > most {
		text = text[:most]
	}
	body, err := json.Marshal(deadEntry{Version: entryVersion, Reason: text, Attempts: int(meta.NumDelivered), Entry: e})
	if err != nil {
		return b.fail(ctx, "dead letter "+id, err)
	}
	b.cfg.Log.Error("a delivery is a dead letter", "bus", b.cfg.Name, "receiver", r.cfg.Name, "id", id, "err", reason)
	err = b.retry(ctx, "dead letter "+id, func(ctx context.Context) error {
		err := b.c.ask(ctx, func(ctx context.Context) error {
			_, err := b.c.js.PublishMsg(ctx, &nats.Msg{Subject: b.subject("dead", r.cfg.Name, id), Data: body},
				jetstream.WithMsgID(fmt.Sprintf("dead.%s.%s.%d", r.cfg.Name, id, meta.Sequence.Stream)), jetstream.WithExpectStream(b.streamName()))
			return err
		})
		if err != nil {
			return err
		}
		return r.acknowledge(ctx, msg)
	})
	if err != nil {
		return b.fail(ctx, "dead letter "+id, err)
	}
	delete(r.failed, meta.Sequence.Stream)
	return nil
}

// Dead lists the dead letters of all receivers, the oldest first.
func (b *Bus) Dead(ctx context.Context) ([]DeadLetter, error) {
	info, err := b.info(ctx, b.subject("dead", "*", "*"))
	if err != nil {
		return nil, b.fail(ctx, "listing dead letters", err)
	}
	var l []DeadLetter
	for s := range info.State.Subjects {
		_, to, id, ok := b.address(s)
		if !ok {
			continue
		}
		var raw *jetstream.RawStreamMsg
		err := b.c.ask(ctx, func(ctx context.Context) (err error) {
			raw, err = b.stream.GetLastMsgForSubject(ctx, s)
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil {
			return nil, b.fail(ctx, "listing dead letters", err)
		}
		d := DeadLetter{To: to, ID: id, At: raw.Time, seq: raw.Sequence}
		var e deadEntry
		if err := json.Unmarshal(raw.Data, &e); err != nil || e.Version != entryVersion {
			e = deadEntry{Reason: fmt.Sprintf("unreadable: %.200q", raw.Data)}
		}
		d.Reason, d.Attempts, d.entry = e.Reason, e.Attempts, e.Entry
		l = append(l, d)
	}
	slices.SortFunc(l, func(a, b DeadLetter) int { return int(int64(a.seq) - int64(b.seq)) })
	return l, nil
}

// Resend puts a dead letter back into its receiver's queue, behind what waits there.
func (b *Bus) Resend(ctx context.Context, d DeadLetter) error {
	what := "sending dead letter " + d.ID + " again"
	if d.entry == nil {
		return b.fail(ctx, what, errors.New("its entry could not be read: discard it"))
	}
	body, err := json.Marshal(d.entry)
	if err != nil {
		return b.fail(ctx, what, err)
	}
	err = b.retry(ctx, what, func(ctx context.Context) error {
		err := b.c.ask(ctx, func(ctx context.Context) error {
			_, err := b.c.js.PublishMsg(ctx, &nats.Msg{Subject: b.subject("to", d.To, d.ID), Data: body},
				jetstream.WithMsgID(fmt.Sprintf("again.%s.%s.%d", d.To, d.ID, d.seq)), jetstream.WithExpectStream(b.streamName()))
			return err
		})
		if err != nil {
			return err
		}
		return b.forget(ctx, d.seq)
	})
	if err != nil {
		return b.fail(ctx, what, err)
	}
	return nil
}

// Discard deletes a dead letter and its payload.
func (b *Bus) Discard(ctx context.Context, d DeadLetter) error {
	what := "discarding dead letter " + d.ID
	err := b.retry(ctx, what, func(ctx context.Context) error {
		if err := b.forget(ctx, d.seq); err != nil || d.entry == nil {
			return err
		}
		m, err := b.pay.find(ctx, d.entry.Object)
		if m != nil {
			err = b.pay.remove(ctx, m)
		}
		if gone(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return b.fail(ctx, what, err)
	}
	return nil
}

// forget deletes an entry of the stream; it is no error if it is gone.
func (b *Bus) forget(ctx context.Context, seq uint64) error {
	err := b.c.ask(ctx, func(ctx context.Context) error { return b.stream.DeleteMsg(ctx, seq) })
	if gone(err) {
		return nil
	}
	return err
}
