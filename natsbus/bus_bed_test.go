package natsbus

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"samebit/backend/cpu"
	"samebit/checkpoint"
	"samebit/qwen3"
	"samebit/rclc"
	"samebit/state"
)

// tinyModel loads a model of testdata.
func tinyModel(t testing.TB, name string) *rclc.Model {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	dev, err := cpu.New(cpu.Config{Threads: 1})
	must(err)
	set, err := checkpoint.Open("../testdata/models/gguf/" + name + ".gguf")
	must(err)
	defer set.Close()
	cfg, err := qwen3.FromSet(set)
	must(err)
	dec, err := qwen3.Load(ctx, dev, cfg, set, qwen3.LoadOptions{})
	must(err)
	pool, err := state.NewPool(dev, 0)
	must(err)
	t.Cleanup(func() {
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
		dec.Close()
		dev.Close()
	})
	m, err := rclc.NewModel(dec, pool, rclc.ModelConfig{ModelType: cfg.ModelType, Checkpoint: name})
	must(err)
	return m
}

// newDelivery is what a sender of n tokens hands over for a request of ids. Others
// of another seed have other bits.
func newDelivery(t testing.TB, m *rclc.Model, n int, seed int32) rclc.Delivery {
	t.Helper()
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = (int32(i)*7 + seed*31) % int32(m.Info.Vocab)
	}
	s, err := rclc.FromTokens(ctx, m, ids)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	var got rclc.Delivery
	into := rclc.ReceiverFunc(func(_ context.Context, d rclc.Delivery) error { got = d; return nil })
	req := rclc.Request{IDs: []int32{seed % int32(m.Info.Vocab), 5, 9}}
	err = rclc.Transfer(ctx, []rclc.Source{s}, []rclc.Receiver{into}, []rclc.Request{req}, rclc.Config{Ratio: 2, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func fileOf(t testing.TB, d rclc.Delivery) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func openBus(t testing.TB, cfg Config, bus BusConfig) *Bus {
	t.Helper()
	b, err := OpenBus(ctx, cfg, bus)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	b.pay.chunk = 16 << 10 // several parts
	return b
}

func newReceiver(t testing.TB, b *Bus, cfg ReceiverConfig) *Receiver {
	t.Helper()
	r, err := b.Receiver(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// queue is what a receiver's handler has taken, in order.
type queue struct {
	t      testing.TB
	mu     sync.Mutex
	ids    []string
	files  map[string][]byte
	refuse func(id string) error // nil: nothing
	calls  int
}

func newQueue(t testing.TB) *queue { return &queue{t: t, files: map[string][]byte{}} }

func (q *queue) take(_ context.Context, id string, d rclc.Delivery) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls++
	if q.refuse != nil {
		if err := q.refuse(id); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		q.t.Error(err)
	}
	q.ids = append(q.ids, id)
	q.files[id] = b.Bytes()
	return nil
}

func (q *queue) list() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.ids)
}

// drain runs receivers until the bus has nothing for anybody, and then for a while.
func drain(t testing.TB, b *Bus, q *queue, rs ...*Receiver) {
	t.Helper()
	c, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, r := range rs {
		wg.Go(func() {
			if err := r.Run(c, q.take); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		})
	}
	waitEmpty(t, b)
	cancel()
	wg.Wait()
}

// waitEmpty waits until no delivery waits.
func waitEmpty(t testing.TB, b *Bus) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		info, err := b.info(ctx, b.subject("to", "*", "*"))
		if err == nil && len(info.State.Subjects) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("deliveries still wait: %v", err)
		}
	}
}

// stored counts the entries of a kind and the messages of payloads.
func stored(t testing.TB, b *Bus, kind string) (entries int, payload uint64) {
	t.Helper()
	info, err := b.info(ctx, b.subject(kind, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.pay.look(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	return len(info.State.Subjects), p.State.Msgs
}

// noPayload waits until no payload is left, after sweeping at any age.
func noPayload(t testing.TB, b *Bus) {
	t.Helper()
	b.pay.orphan = 0
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if err := b.sweep(ctx); err != nil {
			t.Fatal(err)
		}
		if _, n := stored(t, b, "to"); n == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("payloads are left that nobody needs")
		}
	}
}

// objectOf is the payload of a delivery that waits.
func objectOf(t testing.TB, b *Bus, to, id string) *manifest {
	t.Helper()
	raw, err := b.stream.GetLastMsgForSubject(ctx, b.subject("to", to, id))
	if err != nil {
		t.Fatal(err)
	}
	e, err := parseEntry(raw.Data, id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.pay.find(ctx, e.Object)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// killer ends connections, or a whole process, at the nth write.
type killer struct {
	died    func()
	forever bool // no connection is possible afterwards, as after the death of a process

	mu    sync.Mutex
	left  int // writes until then; negative for never
	half  bool
	fired bool
	conns []net.Conn
}

func (k *killer) arm(left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = left
}

func (k *killer) wrap(c net.Conn) net.Conn {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fired && k.forever {
		c.Close()
	}
	k.conns = append(k.conns, c)
	return &killed{c, k}
}

type killed struct {
	net.Conn
	k *killer
}

func (c *killed) Write(b []byte) (int, error) {
	k := c.k
	k.mu.Lock()
	if k.left < 0 || k.fired {
		k.mu.Unlock()
		return c.Conn.Write(b)
	}
	if k.left > 0 {
		k.left--
		k.mu.Unlock()
		return c.Conn.Write(b)
	}
	k.fired = true
	conns := k.conns
	k.mu.Unlock()
	n := 0
	if k.half {
		n, _ = c.Conn.Write(b[:len(b)/2])
	}
	for _, o := range conns {
		o.Close()
	}
	if k.died != nil {
		k.died()
	}
	return n, &net.OpError{Op: "write", Net: "tcp", Err: errors.New("the connection broke")}
}
