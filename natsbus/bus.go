package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"samebit/rclc"
)

// BusConfig bounds a Bus. The zero value is the bus "transfer" with 8 GiB of
// payloads, which keeps a delivery for 7 days.
type BusConfig struct {
	// Name of the bus; "transfer" when empty. Its stream and its bucket are made if
	// they are missing, and keep the bounds and the expiry of whoever made them.
	Name string
	// MaxBytes bounds all payloads that wait to be taken; 0 means 8 GiB.
	MaxBytes int64
	// Expiry is how long a delivery waits for its receiver, and a dead letter for
	// somebody to look at it; 0 means 7 days. After it both are dropped.
	Expiry time.Duration
	// Replicas on so many servers of a cluster; 0 means 1.
	Replicas int

	// Limits of a delivery, for those sent and those received.
	Limits rclc.Limits
	// AckWait is how long a receiver's process may be silent before what it was given
	// goes to the next; 0 means 30 s. A receiver that works is not silent.
	AckWait time.Duration
	// Attempts is how often a receiver may refuse a delivery before it becomes a dead
	// letter; 0 means 5.
	Attempts int
	// Log, if set, is told of retries, dead letters and what could not be cleaned up.
	Log *slog.Logger
}

const (
	defaultBus      = "transfer"
	defaultExpiry   = 7 * 24 * time.Hour
	defaultAckWait  = 30 * time.Second
	defaultAttempts = 5

	busMark, busVersion = "samebit.bus", "1" // metadata of our streams and buckets

	dedupWindow = 10 * time.Minute // in which the server knows the ids of deliveries
	// An entry is published within freshFor of its payload, and a payload without an
	// entry is left over after busOrphan. The second must be larger by far.
	freshFor  = 5 * time.Minute
	busOrphan = 20 * time.Minute
)

func (c BusConfig) check() (BusConfig, error) {
	if c.Name == "" {
		c.Name = defaultBus
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.Expiry == 0 {
		c.Expiry = defaultExpiry
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	if c.Limits.Bytes == 0 {
		c.Limits.Bytes = 1 << 30
	}
	if c.AckWait == 0 {
		c.AckWait = defaultAckWait
	}
	if c.Attempts == 0 {
		c.Attempts = defaultAttempts
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	switch {
	case !isName(c.Name):
		err = fmt.Errorf("name %.60q of the bus: want at most 60 letters, digits, - and _", c.Name)
	case c.MaxBytes < 0:
		err = fmt.Errorf("bound MaxBytes %d: want a positive one, or 0 for 8 GiB", c.MaxBytes)
	case c.Expiry < time.Second:
		err = fmt.Errorf("duration of Expiry %v: want at least 1 s, or 0 for %v", c.Expiry, defaultExpiry)
	case c.AckWait < 100*time.Millisecond:
		err = fmt.Errorf("duration of AckWait %v: want at least 100 ms, or 0 for %v", c.AckWait, defaultAckWait)
	case c.Attempts < 0:
		err = fmt.Errorf("number of Attempts %d: want a positive one, or 0 for %d", c.Attempts, defaultAttempts)
	case c.Replicas < 0 || c.Replicas > 5:
		err = fmt.Errorf("number of Replicas %d: want 1 to 5, or 0 for 1", c.Replicas)
	case c.Limits.Bytes < 0 || c.Limits.Messages < 0 || c.Limits.Rows < 0:
		err = fmt.Errorf("limits %+v: want positive ones, or 0 for the defaults", c.Limits)
	}
	if err != nil {
		return c, fmt.Errorf("natsbus: bus config: %w", err)
	}
	return c, nil
}

// isName says that s can be part of subjects, names of streams and names of files.
func isName(s string) bool {
	return s != "" && len(s) <= 60 && !strings.ContainsFunc(s, func(r rune) bool { return !bucketRune(r) })
}

// Bus carries deliveries of package rclc from one process to another. The payload of
// a delivery is an object in a bucket, a file as rclc writes it; the delivery itself
// is an entry in a stream with work-queue retention, under the subject
//
//	samebit.bus.NAME.to.RECEIVER.ID
//
// The entry is published when the server has confirmed all of the payload, and goes
// when the receiver has it. On the wire a delivery may be seen more than once; into
// the receiver's queue it goes once, see [Receiver]. A Bus is safe for concurrent
// use.
type Bus struct {
	c      *Conn
	own    bool // c is closed with the bus
	cfg    BusConfig
	stream jetstream.Stream
	pay    objects
}

// OpenBus connects by cfg and opens a bus. Of cfg, Bucket, MaxBytes and Replicas are
// not used. Close lets go of both.
func OpenBus(ctx context.Context, cfg Config, bus BusConfig) (*Bus, error) {
	c, err := Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b, err := c.Bus(ctx, bus)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	b.own = true
	return b, nil
}

// Bus opens a bus on c, which the bus's Close leaves open.
func (c *Conn) Bus(ctx context.Context, cfg BusConfig) (*Bus, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	b := &Bus{c: c, cfg: cfg}
	b.pay.c, b.pay.bucket, b.pay.max, b.pay.orphan = c, "samebit-bus-"+cfg.Name, cfg.MaxBytes, busOrphan
	if b.pay.chunk = int(min(maxChunk, c.nc.MaxPayload()-1024)); b.pay.chunk < 1024 {
		return nil, b.fail(ctx, "opening", fmt.Errorf("messages of %d bytes are too small: raise the server's max_payload to 1 MiB", c.nc.MaxPayload()))
	}
	err = c.ask(ctx, b.bind)
	if err == nil {
		err = b.sweep(ctx)
	}
	if err != nil {
		return nil, b.fail(ctx, "opening", err)
	}
	return b, nil
}

func (b *Bus) streamName() string { return "BUS_" + b.cfg.Name }

// subject of kind "to" or "dead"; receiver and id may be "*".
func (b *Bus) subject(kind, receiver, id string) string {
	return "samebit.bus." + b.cfg.Name + "." + kind + "." + receiver + "." + id
}

// address reads a subject.
func (b *Bus) address(subject string) (kind, receiver, id string, ok bool) {
	rest, ok := strings.CutPrefix(subject, "samebit.bus."+b.cfg.Name+".")
	f := strings.Split(rest, ".")
	if !ok || len(f) != 3 {
		return "", "", "", false
	}
	return f[0], f[1], f[2], isName(f[1]) && isName(f[2])
}

// bind finds the stream and the bucket or makes them.
func (b *Bus) bind(ctx context.Context) error {
	mark := map[string]string{busMark: busVersion}
	st, err := b.c.js.Stream(ctx, b.streamName())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		st, err = b.c.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: b.streamName(), Description: "deliveries of samebit", Subjects: []string{b.subject("*", "*", "*")},
			Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxAge: b.cfg.Expiry, Duplicates: min(dedupWindow, b.cfg.Expiry),
			MaxMsgSize: 64 << 10, MaxBytes: 256 << 20, Replicas: b.cfg.Replicas, AllowDirect: true, Metadata: mark,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was quicker
			st, err = b.c.js.Stream(ctx, b.streamName())
		}
	}
	if err != nil {
		return err
	}
	if have := st.CachedInfo().Config; have.Metadata[busMark] != busVersion {
		return errors.New("the stream exists and is not a samebit bus of this version: choose another Name")
	}
	b.stream = st
	bucket, err := b.c.js.Stream(ctx, "OBJ_"+b.pay.bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = b.c.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: b.pay.bucket, Description: "payloads of samebit's deliveries", MaxBytes: b.cfg.MaxBytes, Replicas: b.cfg.Replicas,
			TTL:      b.cfg.Expiry + max(b.cfg.Expiry/8, 2*freshFor), // after the entry that names it
			Metadata: mark,
		})
		if err == nil || errors.Is(err, jetstream.ErrBucketExists) {
			bucket, err = b.c.js.Stream(ctx, "OBJ_"+b.pay.bucket)
		}
	}
	if err != nil {
		return err
	}
	have := bucket.CachedInfo().Config
	if have.Metadata[busMark] != busVersion {
		return fmt.Errorf("the bucket %s exists and is not of a samebit bus of this version: choose another Name", b.pay.bucket)
	}
	if have.MaxBytes > 0 {
		b.pay.max = have.MaxBytes
	}
	b.pay.stream = bucket
	return nil
}

// Close lets go of the bus, and of the connection if OpenBus made it. Deliveries
// stay.
func (b *Bus) Close() error {
	if b.own {
		return b.c.Close()
	}
	return nil
}

// fail explains an error of the bus. What ended ctx comes first.
func (b *Bus) fail(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return b.c.explain("bus "+b.cfg.Name+": "+what, err)
}

// info asks for the stream's numbers, and the subjects under filter.
func (b *Bus) info(ctx context.Context, filter string) (*jetstream.StreamInfo, error) {
	var info *jetstream.StreamInfo
	err := b.c.ask(ctx, func(ctx context.Context) (err error) {
		info, err = b.stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		return err
	})
	return info, err
}

// sweep removes payloads whose sender died before their entry was published, or
// whose receiver died after it had acknowledged.
func (b *Bus) sweep(ctx context.Context) error {
	if err := b.pay.sweep(ctx); err != nil {
		return err
	}
	objects, err := b.pay.look(ctx, b.pay.metaSubject("")+">")
	if err != nil || len(objects.State.Subjects) == 0 {
		return err
	}
	// Entries are listed after payloads: what is published in between is in neither
	// list or in the second.
	entries, err := b.info(ctx, b.subject("*", "*", "*"))
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for s := range entries.State.Subjects {
		if _, _, id, ok := b.address(s); ok {
			used[id] = true
		}
	}
	for s := range objects.State.Subjects {
		name, ok := b.pay.nameIn(s)
		if !ok || used[objectID(name)] {
			continue
		}
		m, err := b.pay.find(ctx, name)
		if m == nil {
			if gone(err) {
				continue
			}
			return err
		}
		if objects.TimeStamp.Sub(m.at) > b.pay.orphan {
			if err := b.pay.remove(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// objectID is the id of the delivery that an object belongs to. Every attempt to
// send has an object of its own, ID_random.
func objectID(name string) string {
	if i := strings.LastIndexByte(name, '_'); i >= 0 {
		return name[:i]
	}
	return ""
}
