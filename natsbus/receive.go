package natsbus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache"
	"samebit/rclc"
)

// ReceiverConfig says who receives.
type ReceiverConfig struct {
	// Name that deliveries are sent to. Processes with the same name share the work:
	// each delivery goes to one of them.
	Name string
	// Model that deliveries must have been made with; nil: not compared.
	Model *rclc.Model
	// Dir, if set, is a folder that keeps what was accepted until Done is called, over
	// the death of the process. Every receiver has its own.
	Dir string
	// Parallel is how many deliveries all processes of this name have in hand at
	// once. 0 means 1: they are handed over in the order in which they were sent.
	Parallel int
}

// Handler takes a delivery. A context that ends or an error means that it was not
// taken: it comes again, a few times ([BusConfig.Attempts]), before it becomes a dead
// letter. A delivery of another model (rclc.ErrIncompatible, rclc.ErrMessage) is a
// dead letter at once.
type Handler func(ctx context.Context, id string, d rclc.Delivery) error

// Into is a handler that hands deliveries to r, such as an agent.
func Into(r rclc.Receiver) Handler {
	return func(ctx context.Context, _ string, d rclc.Delivery) error { return r.Deliver(ctx, d) }
}

// Receiver takes the deliveries of a name from a bus. A delivery is acknowledged to
// the server after it was checked, kept in Dir if there is one, and taken by the
// handler. One that comes again, because its acknowledgement was lost, is known by
// its id and not handed over again: the ids are kept as long as the Receiver, in Dir
// also beyond it, for twice the bus's Expiry.
//
// Without Dir, what the handler has taken lives as long as it says: a process that
// dies after the acknowledgement loses what was in its memory. With Dir, everything
// that was accepted and is not [Receiver.Done] is handed over again, in the same
// order, when the next process runs.
type Receiver struct {
	b      *Bus
	cfg    ReceiverConfig
	ledger ledger
	in     *inbox // nil without Dir

	wait    time.Duration // for an entry, before the server is asked again
	running sync.Mutex
	handed  sync.Map       // ids of the inbox that this Receiver handed over and that are not done
	failed  map[uint64]int // attempts by sequence number of the entry
}

// Receiver opens a receiver on the bus. It receives nothing before Run; the name is
// known to the server from now on.
func (b *Bus) Receiver(ctx context.Context, cfg ReceiverConfig) (*Receiver, error) {
	if cfg.Parallel == 0 {
		cfg.Parallel = 1
	}
	if !isName(cfg.Name) || cfg.Parallel < 0 {
		return nil, fmt.Errorf("natsbus: receiver %.60q, %d in parallel: want a name of at most 60 letters, digits, - and _, and a positive number, or 0 for 1", cfg.Name, cfg.Parallel)
	}
	r := &Receiver{b: b, cfg: cfg, wait: 8 * time.Second, failed: map[uint64]int{}}
	keep := 2 * b.cfg.Expiry
	if cfg.Dir == "" {
		r.ledger = newMemory(keep)
	} else {
		in, err := openInbox(cfg.Dir, keep, b.c.cfg.fault)
		if err != nil {
			return nil, err
		}
		r.in, r.ledger = in, in
	}
	if err := b.c.ask(ctx, r.bind); err != nil {
		return nil, errors.Join(b.fail(ctx, "opening receiver "+cfg.Name, err), r.Close())
	}
	return r, nil
}

// bind makes the consumer, or takes the one that is there.
func (r *Receiver) bind(ctx context.Context) error {
	_, err := r.b.stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: r.cfg.Name, FilterSubject: r.b.subject("to", r.cfg.Name, "*"),
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: r.b.cfg.AckWait, MaxDeliver: -1, MaxAckPending: r.cfg.Parallel,
	})
	return err
}

// Done says that an accepted delivery is not needed any more, so that Dir forgets
// all but its id. Without Dir it does nothing.
func (r *Receiver) Done(id string) error {
	err := r.ledger.done(id)
	if err == nil {
		r.handed.Delete(id)
	}
	return err
}

// Waiting lists the ids of what was accepted and is not Done, oldest first; none
// without Dir.
func (r *Receiver) Waiting() []string {
	if r.in == nil {
		return nil
	}
	return r.in.waiting()
}

// Close gives up Dir. Run must have returned.
func (r *Receiver) Close() error { return r.ledger.close() }

// Run hands deliveries to h, one after the other, until ctx ends, and returns its
// error then. A lost connection is waited for. Run fails when what is in Dir cannot
// be read or is refused by h, when Dir cannot be written, and when the server says
// that there is no such bus or no permission. It may be called again.
func (r *Receiver) Run(ctx context.Context, h Handler) error {
	r.running.Lock()
	defer r.running.Unlock()
	if r.in != nil {
		if err := r.again(ctx, h); err != nil {
			return err
		}
	}
	for {
		what := "receiving for " + r.cfg.Name
		var msg *nats.Msg
		err := r.b.retry(ctx, what, func(ctx context.Context) (err error) {
			msg, err = r.next(ctx)
			return err
		})
		if err != nil {
			return r.b.fail(ctx, what, err)
		}
		if msg == nil {
			continue
		}
		if err := r.take(ctx, h, msg); err != nil {
			return err
		}
	}
}

// again hands over what an earlier process accepted.
func (r *Receiver) again(ctx context.Context, h Handler) error {
	for _, id := range r.in.waiting() {
		if _, ok := r.handed.Load(id); ok || !r.in.waits(id) { // done since
			continue
		}
		data, err := r.in.read(id)
		var d rclc.Delivery
		if err == nil {
			d, err = rclc.ReadDelivery(bytes.NewReader(data), r.cfg.Model, r.b.cfg.Limits)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = r.hand(ctx, h, id, d)
		}
		if err != nil {
			return fmt.Errorf("natsbus: inbox %s: delivery %s of an earlier run: %w", r.cfg.Dir, id, err)
		}
	}
	return nil
}

// hand calls h, which may call Done.
func (r *Receiver) hand(ctx context.Context, h Handler, id string, d rclc.Delivery) error {
	if r.in != nil {
		r.handed.Store(id, true)
	}
	err := h(ctx, id, d)
	if err != nil {
		r.handed.Delete(id)
	}
	return err
}

// next waits for an entry; nil, nil if none comes for a while.
func (r *Receiver) next(ctx context.Context) (*nats.Msg, error) {
	nc := r.b.c.nc
	if err := r.b.c.ready(); err != nil {
		return nil, err
	}
	up, detach := r.b.c.attached(ctx)
	defer detach()
	start := time.Now()
	up, cancel := context.WithTimeout(up, r.wait*5/4) // the server should say so itself
	defer cancel()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err == nil {
		err = nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.b.streamName()+"."+r.cfg.Name, sub.Subject, fmt.Appendf(nil, `{"batch":1,"expires":%d}`, r.wait))
	}
	var msg *nats.Msg
	if err == nil {
		msg, err = sub.NextMsgWithContext(up)
	}
	if err != nil {
		cause := context.Cause(up)
		r.giveUp(sub)
		switch {
		case ctx.Err() == nil && errors.Is(cause, context.DeadlineExceeded):
			if said := r.b.c.said(start); denied(said) {
				return nil, said
			}
			return nil, nil
		case cause != nil:
			return nil, cause
		}
		return nil, r.lost(err)
	}
	if err := sub.Unsubscribe(); err != nil {
		return nil, r.lost(err) // what came will come again
	}
	switch status := msg.Header.Get("Status"); status {
	case "":
		return msg, nil
	case "404", "408": // none was there in time
		return nil, nil
	case "503":
		return nil, r.b.c.ask(ctx, r.bind) // no such consumer, or no leader
	default:
		return nil, fmt.Errorf("%w: %s %s", errPull, status, msg.Header.Get("Description")) // a server that shuts down, a new leader
	}
}

// lost says that there is no connection, if that is so.
func (r *Receiver) lost(err error) error {
	if e := r.b.c.ready(); e != nil {
		return fmt.Errorf("%w (%w)", e, err)
	}
	return err
}

// giveUp ends a request for the next entry. An entry that the server has sent until
// it hears of that is given back, or it would be nobody's until AckWait.
func (r *Receiver) giveUp(sub *nats.Subscription) {
	if sub == nil {
		return
	}
	if r.b.c.ready() != nil || sub.Drain() != nil {
		_ = sub.Unsubscribe() // there is no connection, or sub is closed
		return
	}
	late, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	late, detach := r.b.c.attached(late)
	defer detach()
	for {
		msg, err := sub.NextMsgWithContext(late)
		if err != nil {
			break
		}
		if msg.Header.Get("Status") == "" {
			r.later(msg, 0)
		}
	}
	_ = sub.Unsubscribe()
}

// errPull is the cause when a server gives up a request for the next entry.
var errPull = errors.New("waiting for a delivery was ended by the server")

// take handles an entry. What it returns ends Run.
func (r *Receiver) take(ctx context.Context, h Handler, msg *nats.Msg) error {
	stop := r.hold(msg)
	defer stop()
	_, _, id, _ := r.b.address(msg.Subject)
	meta, err := msg.Metadata()
	if err != nil {
		return r.b.fail(ctx, "receiving for "+r.cfg.Name, err)
	}
	e, err := parseEntry(msg.Data, id)
	if err != nil {
		return r.bury(ctx, msg, meta, nil, err)
	}
	if r.ledger.has(id) {
		r.settle(ctx, msg, e)
		return nil
	}
	if most := uint64(16 * r.b.cfg.Attempts); meta.NumDelivered > most {
		return r.bury(ctx, msg, meta, &e, fmt.Errorf("handed out %d times and never acknowledged", meta.NumDelivered-1))
	}
	data, d, err := r.fetch(ctx, e)
	if err == nil {
		if err = r.accept(ctx, h, id, data, d); errors.Is(err, errInbox) {
			r.later(msg, 0)
			return err
		}
	}
	var refused *refusal
	switch {
	case err == nil:
		delete(r.failed, meta.Sequence.Stream)
		r.settle(ctx, msg, e)
		return nil
	case ctx.Err() != nil:
		r.later(msg, 0)
		return r.b.fail(ctx, "receiving for "+r.cfg.Name, ctx.Err())
	case final(err):
		return r.bury(ctx, msg, meta, &e, err)
	case !errors.As(err, &refused) && r.b.passing(ctx, err): // nobody's fault
		r.later(msg, 50*time.Millisecond)
		return nil
	}
	r.failed[meta.Sequence.Stream]++
	n := r.failed[meta.Sequence.Stream]
	if n >= r.b.cfg.Attempts {
		return r.bury(ctx, msg, meta, &e, fmt.Errorf("refused %d times: %w", n, err))
	}
	r.b.cfg.Log.Warn("a delivery was refused and comes again", "bus", r.b.cfg.Name, "receiver", r.cfg.Name, "id", id, "attempt", n, "err", err)
	r.later(msg, min(100*time.Millisecond<<min(n, 10), r.b.cfg.AckWait))
	return nil
}

// errInbox is the cause when the folder fails, which no other delivery would cure.
var errInbox = errors.New("the inbox cannot be written")

// refusal is an error of the handler, which is never taken for one of the server.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// final says that an error stays, however often the delivery comes.
func final(err error) bool {
	for _, e := range []error{rclc.ErrWire, rclc.ErrIncompatible, rclc.ErrMessage, errDamaged, errBadManifest, errTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// fetch reads and checks the payload of an entry.
func (r *Receiver) fetch(ctx context.Context, e entry) ([]byte, rclc.Delivery, error) {
	if most := r.b.cfg.Limits.Bytes; e.Bytes > most {
		return nil, rclc.Delivery{}, fmt.Errorf("%w: %d bytes, the receiver takes %d: raise its limit", errTooLarge, e.Bytes, most)
	}
	m, err := r.b.pay.find(ctx, e.Object)
	if errors.Is(err, cache.ErrNotFound) {
		return nil, rclc.Delivery{}, fmt.Errorf("the payload %s is not there: it expired or was deleted (%w)", e.Object, err)
	}
	if err != nil {
		return nil, rclc.Delivery{}, err
	}
	if int64(m.Size) != e.Bytes {
		return nil, rclc.Delivery{}, fmt.Errorf("the payload %s has %d bytes, the entry announces %d: %w", e.Object, m.Size, e.Bytes, errDamaged)
	}
	data, err := r.b.pay.download(ctx, m)
	if err != nil {
		return nil, rclc.Delivery{}, err
	}
	if sum := sumOf(data); sum != e.SHA256 {
		return nil, rclc.Delivery{}, fmt.Errorf("the payload %s has digest %s, the entry announces %.64s: %w", e.Object, sum, e.SHA256, errDamaged)
	}
	d, err := rclc.ReadDelivery(bytes.NewReader(data), r.cfg.Model, r.b.cfg.Limits)
	return data, d, err
}

// accept makes a delivery the receiver's: first in the folder, then by the handler.
func (r *Receiver) accept(ctx context.Context, h Handler, id string, data []byte, d rclc.Delivery) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.in != nil {
		if err := r.in.add(id, data); err != nil {
			return fmt.Errorf("%w: %w", errInbox, err)
		}
	}
	r.b.c.fault("before the handler")
	if err := r.hand(ctx, h, id, d); err != nil {
		if e := r.ledger.drop(id); e != nil {
			return errors.Join(err, fmt.Errorf("%w: %w", errInbox, e))
		}
		return &refusal{err}
	}
	r.b.c.fault("after the handler")
	if r.in != nil {
		return nil
	}
	return r.ledger.add(id, nil)
}

// settle acknowledges an entry and, when the server has heard, deletes its payload.
// If it cannot, the entry comes again and is known. It is tried once even if ctx has
// ended: what was taken is better said than asked again.
func (r *Receiver) settle(ctx context.Context, msg *nats.Msg, e entry) {
	clean, end := lingering(ctx)
	defer end()
	err := r.acknowledge(clean, msg)
	if err != nil && ctx.Err() == nil {
		err = r.b.retry(ctx, "acknowledging "+e.ID, func(ctx context.Context) error { return r.acknowledge(ctx, msg) })
	}
	if err != nil {
		r.b.cfg.Log.Warn("an acknowledgement was lost", "bus", r.b.cfg.Name, "receiver", r.cfg.Name, "id", e.ID, "err", err)
		return
	}
	m, err := r.b.pay.find(clean, e.Object)
	if m != nil {
		err = r.b.pay.remove(clean, m)
	}
	if err != nil && !gone(err) {
		r.b.cfg.Log.Warn("a payload is left over", "bus", r.b.cfg.Name, "object", e.Object, "err", err)
	}
}

// acknowledge returns nil when the server has heard that an entry was taken.
func (r *Receiver) acknowledge(ctx context.Context, msg *nats.Msg) error {
	return r.b.c.ask(ctx, func(ctx context.Context) error {
		_, err := r.b.c.nc.RequestWithContext(ctx, msg.Reply, []byte("+ACK"))
		return err
	})
}

// later gives an entry back. If that is lost, it comes again after AckWait.
func (r *Receiver) later(msg *nats.Msg, after time.Duration) {
	if err := r.b.c.nc.Publish(msg.Reply, fmt.Appendf(nil, `-NAK {"delay":%d}`, after)); err != nil {
		r.b.cfg.Log.Warn("a delivery comes again only after AckWait", "bus", r.b.cfg.Name, "receiver", r.cfg.Name, "err", err)
	}
}

// hold tells the server that an entry is being worked on, until stop is called.
func (r *Receiver) hold(msg *nats.Msg) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		t := time.NewTicker(r.b.cfg.AckWait / 3)
		defer t.Stop()
		for {
			select {
			case <-end:
				return
			case <-t.C:
				_ = r.b.c.nc.Publish(msg.Reply, []byte("+WPI")) // the next one may get through
			}
		}
	})
	return func() { close(end); wg.Wait() }
}
