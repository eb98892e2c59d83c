package natsbus

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"samebit/cache/cachetest"
	"samebit/rclc"
)

func TestBusDelivers(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	b := openBus(t, Config{Dir: t.TempDir()}, BusConfig{})
	var want []string
	files := map[string][]byte{}
	send := func(i int) {
		d := newDelivery(t, m, 20+130*(i%3), int32(i))
		id := fmt.Sprintf("d_%d-x", i)
		if err := b.Send(ctx, "ann", id, d); err != nil {
			t.Fatal(err)
		}
		want, files[id] = append(want, id), fileOf(t, d)
	}
	send(0)
	send(1) // before the receiver is known
	q := newQueue(t)
	r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m})
	send(2)
	send(3)
	drain(t, b, q, r)
	send(4)
	drain(t, b, q, r) // Run may be called again
	if !slices.Equal(q.list(), want) {
		t.Errorf("received %v, want %v", q.list(), want)
	}
	for id, f := range files {
		if !bytes.Equal(q.files[id], f) {
			t.Errorf("delivery %s has other bits", id)
		}
	}
	if n, p := stored(t, b, "to"); n != 0 || p != 0 {
		t.Errorf("%d entries and %d messages of payloads are left", n, p)
	}
	// A bus and a cache share a connection.
	s, err := b.c.Store(ctx, Config{})
	if err != nil {
		t.Fatal(err)
	}
	x := newSample(t, cachetest.NewBed(t), 1, 5, 0)
	put(t, s, x)
}

// A transfer whose receiver is another process's agent.
func TestBusIsAReceiver(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	b := openBus(t, Config{Dir: t.TempDir()}, BusConfig{})
	s, err := rclc.FromTokens(ctx, m, []int32{1, 2, 3, 4, 5, 6, 7, 8})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	reqs := []rclc.Request{{IDs: []int32{3}}, {IDs: []int32{4}}}
	err = rclc.Transfer(ctx, []rclc.Source{s, s}, []rclc.Receiver{b.To("ann"), b.To("bob")}, reqs, rclc.Config{Form: rclc.TokenIDs})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ann", "bob"} {
		var got []rclc.Request
		r := newReceiver(t, b, ReceiverConfig{Name: name, Model: m})
		c, cancel := context.WithCancel(ctx)
		err := r.Run(c, Into(rclc.ReceiverFunc(func(_ context.Context, d rclc.Delivery) error {
			if got = append(got, d.Request); len(got) == 2 {
				cancel()
			}
			if len(d.Messages) != 2 || d.Messages[0].Form() != rclc.TokenIDs {
				t.Errorf("%s: %d messages", name, len(d.Messages))
			}
			return nil
		})))
		if !errors.Is(err, context.Canceled) || !reflect.DeepEqual(got, reqs) {
			t.Errorf("%s: %v, requests %v", name, err, got)
		}
	}
	waitEmpty(t, b)
}

// The same id makes one delivery, however and whenever it is sent again.
func TestBusSameID(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	b := openBus(t, Config{Dir: t.TempDir()}, BusConfig{})
	d := newDelivery(t, m, 40, 1)
	send := func(to string) {
		t.Helper()
		if err := b.Send(ctx, to, "one", d); err != nil {
			t.Fatal(err)
		}
	}
	// copyEntry is what a sender does after the window in which the server knows ids.
	copyEntry := func() {
		t.Helper()
		name := "one_LATE"
		data := fileOf(t, d)
		if err := b.pay.upload(ctx, name, data); err != nil {
			t.Fatal(err)
		}
		e := entry{Version: entryVersion, ID: "one", Object: name, Bytes: int64(len(data)), SHA256: sumOf(data)}
		body, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.c.js.Publish(ctx, b.subject("to", "ann", "one"), body); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"", t.TempDir()} {
		r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m, Dir: dir})
		q := newQueue(t)
		send("ann")
		send("ann")
		send("bob") // another delivery
		if n, p := stored(t, b, "to"); dir == "" && (n != 2 || p != 4) {
			t.Errorf("%d entries and %d messages of payloads, want 2 and 4", n, p)
		}
		if dir != "" {
			copyEntry() // the server still knows the id
		} else {
			drainOne(t, b, q, r)
			send("ann")
			copyEntry()
			copyEntry()
		}
		drainOne(t, b, q, r)
		if got := q.list(); !slices.Equal(got, []string{"one"}) {
			t.Errorf("Dir %q: received %v, want it once", dir, got)
		}
		if dir == "" {
			continue
		}
		// Another process, which finds it in the folder and hands it over again until
		// it is done.
		for range 2 {
			r.Close()
			r = newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m, Dir: dir})
			q := newQueue(t)
			copyEntry()
			drainOne(t, b, q, r)
			if got := q.list(); !slices.Equal(got, []string{"one"}) || !slices.Equal(r.Waiting(), got) {
				t.Errorf("after a restart: received %v, waiting %v", got, r.Waiting())
			}
		}
		if err := errors.Join(r.Done("one"), r.Done("one")); err != nil {
			t.Error(err)
		}
		r.handed.Range(func(id, _ any) bool {
			t.Errorf("%v is done and remembered as handed over", id)
			return true
		})
		if err := r.Done("two"); !errors.Is(err, errUnknownID) {
			t.Errorf("an id that never came: %v", err)
		}
		r.Close()
		r = newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m, Dir: dir})
		q = newQueue(t)
		copyEntry()
		drainOne(t, b, q, r)
		if len(q.list()) != 0 || len(r.Waiting()) != 0 {
			t.Errorf("done, and received again: %v", q.list())
		}
		if _, err := b.Receiver(ctx, ReceiverConfig{Name: "ann", Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("a folder twice: %v", err)
		}
	}
	bob := newQueue(t)
	drain(t, b, bob, newReceiver(t, b, ReceiverConfig{Name: "bob"}))
	if len(bob.list()) != 1 {
		t.Errorf("bob received %v", bob.list())
	}
	noPayload(t, b)
}

// drainOne runs a receiver until nothing waits for it.
func drainOne(t *testing.T, b *Bus, q *queue, r *Receiver) {
	t.Helper()
	c, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- r.Run(c, q.take) }()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		info, err := b.info(ctx, b.subject("to", r.cfg.Name, "*"))
		if err == nil && len(info.State.Subjects) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("deliveries still wait for %s: %v", r.cfg.Name, err)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
}

// What can never be taken is a dead letter, once, with its reason, and holds nobody
// up.
func TestBusDeadLetters(t *testing.T) {
	noLeak(t)
	m, other := tinyModel(t, "qwen3-bf16"), tinyModel(t, "qwen35-f32")
	b := openBus(t, Config{Dir: t.TempDir()}, BusConfig{Attempts: 3, AckWait: time.Second, Limits: rclc.Limits{Bytes: 1 << 20}})
	q := newQueue(t)
	refused := errors.New("the queue is full today")
	q.refuse = func(id string) error {
		if id == "unwanted" {
			return refused
		}
		return nil
	}
	r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m})
	swap := func(id string, change func([]byte) []byte) {
		t.Helper()
		o := objectOf(t, b, "ann", id)
		data, err := b.pay.download(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.pay.remove(ctx, o); err != nil {
			t.Fatal(err)
		}
		if data = change(data); data == nil {
			return
		}
		if err := b.pay.upload(ctx, o.Name, data); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(id, body string) {
		t.Helper()
		if _, err := b.c.js.Publish(ctx, b.subject("to", "ann", id), []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	d := newDelivery(t, m, 60, 1)
	for _, id := range []string{"ok1", "flipped", "shorter", "lost", "part", "unwanted", "ok2"} {
		if err := b.Send(ctx, "ann", id, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Send(ctx, "ann", "foreign", newDelivery(t, other, 60, 1)); err != nil {
		t.Fatal(err)
	}
	swap("flipped", func(data []byte) []byte { data[len(data)/2] ^= 16; return data })
	swap("shorter", func(data []byte) []byte { return data[:len(data)-1] })
	swap("lost", func([]byte) []byte { return nil })
	if o := objectOf(t, b, "ann", "part"); true {
		if err := b.pay.stream.DeleteMsg(ctx, o.parts[0]); err != nil {
			t.Fatal(err)
		}
	}
	publish("text", "hello")
	publish("future", `{"version":2,"id":"future","object":"future_1","bytes":3}`)
	publish("liar", `{"version":1,"id":"ok1","object":"ok1_1","bytes":3}`)
	publish("wild", `{"version":1,"id":"wild","object":"wild_>","bytes":3}`)
	publish("huge", `{"version":1,"id":"huge","object":"huge_1","bytes":1125899906842624}`)
	if err := b.Send(ctx, "ann", "ok3", d); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	drain(t, b, q, r)
	if time.Since(start) > 15*time.Second {
		t.Errorf("it took %v", time.Since(start))
	}
	if got := q.list(); !slices.Equal(got, []string{"ok1", "ok2", "ok3"}) {
		t.Errorf("received %v", got)
	}
	if q.calls != 3+3 {
		t.Errorf("the handler was called %d times, want 3 and 3 refusals", q.calls)
	}
	l, err := b.Dead(ctx)
	if err != nil {
		t.Fatal(err)
	}
	dead := map[string]DeadLetter{}
	for _, x := range l {
		if _, twice := dead[x.ID]; twice || x.To != "ann" || x.At.Before(start) || x.Attempts < 1 {
			t.Errorf("dead letter %+v", x)
		}
		dead[x.ID] = x
	}
	for id, want := range map[string]string{
		"flipped": "has digest", "shorter": "the entry announces", "lost": "is not there", "part": "part 0 of object",
		"unwanted": "refused 3 times: the queue is full today", "foreign": "the same checkpoint", "text": "cannot be read", "future": "version 1",
		"liar": "is not one of version 1 for delivery liar", "wild": "is not one of version", "huge": "raise its limit",
	} {
		x, ok := dead[id]
		if !ok || !strings.Contains(x.Reason, want) {
			t.Errorf("dead letter %s: %q, want %q in it", id, x.Reason, want)
		}
		delete(dead, id)
	}
	if len(dead) != 0 {
		t.Errorf("more dead letters: %v", dead)
	}
	// Sent again when the reason is gone, they are ordinary deliveries.
	q.refuse = nil
	byID := func(id string) DeadLetter {
		return l[slices.IndexFunc(l, func(x DeadLetter) bool { return x.ID == id })]
	}
	if err := errors.Join(b.Resend(ctx, byID("unwanted")), b.Resend(ctx, byID("flipped"))); err != nil {
		t.Fatal(err)
	}
	if err := b.Resend(ctx, byID("text")); err == nil {
		t.Error("an entry that cannot be read is sent again")
	}
	drain(t, b, q, r)
	if got := q.list(); !slices.Equal(got, []string{"ok1", "ok2", "ok3", "unwanted"}) {
		t.Errorf("received %v", got)
	}
	if l, err = b.Dead(ctx); err != nil || len(l) != 10 {
		t.Fatalf("%d dead letters, %v; want 10", len(l), err)
	}
	b.pay.orphan = 0
	if err := b.sweep(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := b.pay.find(ctx, byID("foreign").entry.Object); err != nil {
		t.Errorf("the payload of a dead letter is swept: %v", err)
	}
	for _, x := range l {
		if err := errors.Join(b.Discard(ctx, x), b.Discard(ctx, x)); err != nil {
			t.Error(err)
		}
	}
	if n, _ := stored(t, b, "dead"); n != 0 {
		t.Errorf("%d dead letters are left", n)
	}
	noPayload(t, b)
}

// Processes of one name share what is sent to it.
func TestBusSharedName(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	b := openBus(t, Config{URL: srv.ClientURL()}, BusConfig{})
	q := newQueue(t)
	var rs []*Receiver
	for range 2 {
		rs = append(rs, newReceiver(t, openBus(t, Config{URL: srv.ClientURL()}, BusConfig{}), ReceiverConfig{Name: "team", Model: m, Parallel: 2}))
	}
	var wg sync.WaitGroup
	const n = 24
	for w := range 3 {
		wg.Go(func() {
			for i := range n / 3 {
				if err := b.Send(ctx, "team", fmt.Sprintf("d%d-%d", w, i), newDelivery(t, m, 20, int32(i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	drain(t, b, q, rs...)
	got := q.list()
	slices.Sort(got)
	if len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("received %d: %v", len(got), got)
	}
	noPayload(t, b)
}

func TestBusLimits(t *testing.T) {
	m := tinyModel(t, "qwen3-bf16")
	dir := t.TempDir()
	small := openBus(t, Config{Dir: dir}, BusConfig{Name: "small", MaxBytes: 100 << 10, Limits: rclc.Limits{Bytes: 60 << 10}})
	d := newDelivery(t, m, 150, 1)
	if err := small.Send(ctx, "ann", "a", newDelivery(t, m, 500, 1)); !errors.Is(err, errTooLarge) {
		t.Errorf("beyond the limit: %v", err)
	}
	if err := small.Send(ctx, "ann", "b", d); err != nil {
		t.Fatalf("%d bytes: %v", len(fileOf(t, d)), err)
	}
	var err error
	for i := 0; i < 9 && err == nil; i++ {
		err = small.Send(ctx, "ann", fmt.Sprint("c", i), d)
	}
	if !isFull(err) || !strings.Contains(err.Error(), "bus small") || !strings.Contains(err.Error(), "MaxBytes") {
		t.Errorf("a full bus: %v", err)
	}
	// What a sender left that died makes room.
	small.pay.orphan = 0
	info, e := small.info(ctx, small.subject("to", "*", "*"))
	if e != nil {
		t.Fatal(e)
	}
	for s := range info.State.Subjects {
		if e := small.stream.Purge(ctx); e != nil {
			t.Fatal(s, e)
		}
	}
	time.Sleep(2 * time.Millisecond)
	if err := small.Send(ctx, "ann", "d", d); err != nil {
		t.Errorf("room could be made: %v", err)
	}
	for _, bad := range []struct{ to, id string }{{"", "x"}, {"a.b", "x"}, {"ann", ""}, {"ann", "*"}, {"ann", strings.Repeat("x", 61)}} {
		if err := small.Send(ctx, bad.to, bad.id, d); err == nil || !strings.Contains(err.Error(), "letters, digits") {
			t.Errorf("to %q as %q: %v", bad.to, bad.id, err)
		}
	}
	if err := small.Send(ctx, "ann", "empty", rclc.Delivery{}); !errors.Is(err, rclc.ErrWire) {
		t.Errorf("an empty delivery: %v", err)
	}
	for _, cfg := range []BusConfig{
		{Name: "a.b"}, {MaxBytes: -1}, {Expiry: time.Millisecond}, {AckWait: time.Millisecond}, {Attempts: -1}, {Replicas: 6}, {Limits: rclc.Limits{Rows: -1}},
	} {
		if _, err := small.c.Bus(ctx, cfg); err == nil || !strings.Contains(err.Error(), "bus config") {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	if _, err := small.Receiver(ctx, ReceiverConfig{Name: "a b"}); err == nil {
		t.Error("a receiver with a bad name")
	}
}

// What nobody takes goes after Expiry.
func TestBusExpiry(t *testing.T) {
	m := tinyModel(t, "qwen3-bf16")
	b := openBus(t, Config{Dir: t.TempDir()}, BusConfig{Expiry: time.Second})
	if err := b.Send(ctx, "nobody", "a", newDelivery(t, m, 20, 1)); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, b)
	noPayload(t, b)
}

func TestBusOfSomebodyElse(t *testing.T) {
	c, err := Connect(ctx, Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Store(ctx, Config{Bucket: "samebit-bus-mine"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Bus(ctx, BusConfig{Name: "mine"}); err == nil || !strings.Contains(err.Error(), "choose another Name") {
		t.Errorf("a bucket of a cache: %v", err)
	}
	b, err := c.Bus(ctx, BusConfig{Name: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	r := newReceiver(t, b, ReceiverConfig{Name: "ann"})
	if err := c.js.DeleteStream(ctx, "BUS_ours"); err != nil {
		t.Fatal(err)
	}
	m := tinyModel(t, "qwen3-bf16")
	if err := b.Send(ctx, "ann", "a", newDelivery(t, m, 20, 1)); err == nil || !strings.Contains(err.Error(), "bus ours") {
		t.Errorf("sending to a stream that was removed: %v", err)
	}
	if err := r.Run(ctx, newQueue(t).take); err == nil || !strings.Contains(err.Error(), "bus ours") {
		t.Errorf("receiving from a stream that was removed: %v", err)
	}
}

// A user that may do no more than the README says.
func TestBusPermissions(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	cert, _, pair := certificate(t)
	least := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: []string{"$JS.API.>", "$JS.ACK.>", "$O.samebit-bus-transfer.>", "samebit.bus.transfer.>"}},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
	}
	none := &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"$JS.API.>"}}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	deaf := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.MSG.NEXT.>"}}}
	srv := listen(t, func(o *server.Options) {
		o.TLSConfig, o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}, true
		o.Users = []*server.User{{Username: "ann", Password: "secret", Permissions: least}, {Username: "eve", Password: "secret", Permissions: none}, {Username: "bob", Password: "secret", Permissions: deaf}}
	})
	cfg := Config{URL: srv.ClientURL(), User: "ann", Password: "secret", RootCA: cert}
	b := openBus(t, cfg, BusConfig{})
	if err := b.Send(ctx, "ann", "a", newDelivery(t, m, 20, 1)); err != nil {
		t.Fatal(err)
	}
	q := newQueue(t)
	drain(t, b, q, newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m}))
	if len(q.list()) != 1 {
		t.Errorf("received %v", q.list())
	}
	cfg.User = "bob"
	bob := newReceiver(t, openBus(t, cfg, BusConfig{}), ReceiverConfig{Name: "bob"})
	bob.wait = 200 * time.Millisecond
	if err := bob.Run(ctx, q.take); err == nil || !strings.Contains(err.Error(), "CONSUMER.MSG.NEXT") || !strings.Contains(err.Error(), "what the account may do") {
		t.Errorf("without permission to receive: %v", err)
	}
	cfg.User, cfg.Timeout = "eve", 500*time.Millisecond
	eve := openBus(t, cfg, BusConfig{})
	c, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := eve.Send(c, "ann", "b", newDelivery(t, m, 20, 1))
	if err == nil || !strings.Contains(err.Error(), "samebit.bus.>") {
		t.Errorf("without permission: %v", err)
	}
	cfg.Password = "wrong"
	if _, err := OpenBus(ctx, cfg, BusConfig{}); err == nil || !strings.Contains(err.Error(), "check Token, User and Password") {
		t.Errorf("a wrong password: %v", err)
	}
}

// Everything ends with its context.
func TestBusCancel(t *testing.T) {
	noLeak(t)
	m := tinyModel(t, "qwen3-bf16")
	srv := listen(t, nil)
	p := newProxy(t, srv.Addr().String())
	b := openBus(t, Config{URL: p.addr, Timeout: 10 * time.Second}, BusConfig{})
	d := newDelivery(t, m, 60, 1)
	r := newReceiver(t, b, ReceiverConfig{Name: "ann", Model: m})
	soon := func() context.Context {
		c, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		t.Cleanup(cancel)
		return c
	}
	end := func(what string, f func(context.Context) error) {
		t.Helper()
		start := time.Now()
		if err := f(soon()); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
			t.Errorf("%s: %v after %v", what, err, time.Since(start))
		}
	}
	end("an idle receiver", func(c context.Context) error { return r.Run(c, newQueue(t).take) })
	if err := b.Send(ctx, "ann", "a", d); err != nil {
		t.Fatal(err)
	}
	end("a handler that waits", func(c context.Context) error {
		return r.Run(c, func(c context.Context, _ string, _ rclc.Delivery) error { <-c.Done(); return c.Err() })
	})
	q := newQueue(t)
	drain(t, b, q, r)
	if len(q.list()) != 1 {
		t.Errorf("received %v after a handler was cancelled", q.list())
	}
	p.set(-1, true) // silent
	end("sending to a silent server", func(c context.Context) error { return b.Send(c, "ann", "b", d) })
	end("receiving from a silent server", func(c context.Context) error { return r.Run(c, q.take) })
	end("opening a receiver", func(c context.Context) error { _, err := b.Receiver(c, ReceiverConfig{Name: "bob"}); return err })
	end("dead letters", func(c context.Context) error { _, err := b.Dead(c); return err })
	p.cut() // gone
	end("sending to no server", func(c context.Context) error { return b.Send(c, "ann", "b", d) })
	end("receiving from no server", func(c context.Context) error { return r.Run(c, q.take) })
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Send(ctx, "ann", "b", d); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("sending on a closed bus: %v", err)
	}
	if err := r.Run(ctx, q.take); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("receiving on a closed bus: %v", err)
	}
}

// Whatever an entry says, what is taken from it is a name of an object of its id.
func FuzzEntry(f *testing.F) {
	for _, s := range []string{`{"version":1,"id":"a","object":"a_1","bytes":1}`, `{"version":1,"id":"a","object":"a_>","bytes":1}`, `[]`, `{"id":"a"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := parseEntry(data, "a")
		if err == nil && (!strings.HasPrefix(e.Object, "a_") || e.Bytes < 1 || strings.ContainsAny(e.Object, ".*> ")) {
			t.Errorf("%+v", e)
		}
	})
}

func TestInboxFiles(t *testing.T) {
	dir := t.TempDir()
	open := func() *inbox {
		t.Helper()
		b, err := openInbox(dir, time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open()
	for _, id := range []string{"c", "a", "b-1_x", "d"} {
		if err := b.add(id, []byte("file of "+id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(b.done("a"), b.drop("d"), b.drop("d"), b.close()); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"00000000000000000009-z.writing": "half", "notes.txt": "mine", "7-x.delivery": "no name of ours"} {
		if err := os.WriteFile(dir+"/"+name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b = open()
	defer b.close()
	if got := b.waiting(); !slices.Equal(got, []string{"c", "b-1_x"}) || !b.has("a") || b.has("d") || b.has("z") || b.has("x") {
		t.Errorf("waiting %v", got)
	}
	if data, err := b.read("b-1_x"); err != nil || string(data) != "file of b-1_x" {
		t.Errorf("%q, %v", data, err)
	}
	b.keep = 0
	b.pruned = time.Time{}
	if err := b.done("c"); err != nil {
		t.Fatal(err)
	}
	if b.has("a") || b.has("c") {
		t.Error("old ids are not forgotten")
	}
	if _, err := os.Stat(dir + "/notes.txt"); err != nil {
		t.Error("a file that is not ours is gone")
	}
	m := newMemory(time.Hour)
	m.ids["old"] = time.Now().Add(-2 * time.Hour)
	if err := m.add("new", nil); err != nil || m.has("old") || !m.has("new") {
		t.Error("the ledger in memory does not forget, or forgets too much")
	}
}
