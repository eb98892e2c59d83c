package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"samebit/cache/cachetest"
)

// cluster starts three servers that keep buckets and streams together.
func cluster(t *testing.T) (nodes []*server.Server, urls string) {
	t.Helper()
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	if raceDetector {
		t.Skip("nats-server v2.15.3 itself has a data race between (*batchStagedDiff).commit and applyStreamMsgOp in a cluster")
	}
	var routes []*url.URL
	var ports []int
	for range 3 { // every server must know the others before it starts
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, ln.Addr().(*net.TCPAddr).Port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: ln.Addr().String()})
		ln.Close()
	}
	for i := range 3 {
		nodes = append(nodes, listenUnready(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("n%d", i)
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}
			o.Routes = routes
		}))
	}
	for _, n := range nodes {
		if !n.ReadyForConnections(20 * time.Second) {
			t.Fatal("a server does not get ready")
		}
		urls += n.ClientURL() + ","
	}
	return nodes, urls[:len(urls)-1]
}

// shutLeader ends the server that leads a stream.
func shutLeader(t *testing.T, nodes []*server.Server, info *jetstream.StreamInfo, err error) {
	t.Helper()
	if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Fatalf("no cluster: %+v, %v", info, err)
	}
	for _, n := range nodes {
		if n.Name() == info.Cluster.Leader {
			n.Shutdown()
			n.WaitForShutdown()
		}
	}
}

// Three servers keep the bucket; the one that leads dies.
func TestClusterLosesItsLeader(t *testing.T) {
	noLeak(t)
	nodes, urls := cluster(t)
	cfg := Config{URL: urls, Replicas: 3, Timeout: 500 * time.Millisecond}
	var s *Store
	within(t, func() (err error) { s, err = Open(ctx, cfg); return err })
	t.Cleanup(func() { s.Close() })
	bed := cachetest.NewBed(t)
	s.chunk = 16 << 10
	x, y := newSample(t, bed, 1, 70, 128), newSample(t, bed, 2, 70, 128)
	within(t, func() error { return s.Put(ctx, x.e, x.snap) })
	// Followers may lag behind for a moment: a miss, but never a deletion.
	within(t, func() error { return s.Get(ctx, x.e, bed.Sequence(key.Model, 0)) })

	info, err := s.look(ctx, "")
	shutLeader(t, nodes, info, err)
	within(t, func() error { return s.Put(ctx, y.e, y.snap) })
	var other *Store
	within(t, func() (err error) { other, err = Open(ctx, cfg); return err })
	t.Cleanup(func() { other.Close() })
	for _, z := range []sample{x, y} {
		within(t, func() error { return other.Get(ctx, z.e, bed.Sequence(key.Model, 0)) })
		if !has(t, other, bed, z) {
			t.Error("an entry is lost with the leader")
		}
	}
}

// Three servers keep the bus; the one that leads its stream dies while deliveries are
// sent and received.
func TestBusClusterLosesItsLeader(t *testing.T) {
	noLeak(t)
	nodes, urls := cluster(t)
	m := tinyModel(t, "qwen3-bf16")
	cfg, bus := Config{URL: urls, Timeout: time.Second}, BusConfig{Replicas: 3, AckWait: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	var from, to *Bus
	within(t, func() (err error) { from, err = OpenBus(ctx, cfg, bus); return err })
	t.Cleanup(func() { from.Close() })
	within(t, func() (err error) { to, err = OpenBus(ctx, cfg, bus); return err })
	t.Cleanup(func() { to.Close() })
	var r *Receiver
	within(t, func() (err error) { r, err = to.Receiver(ctx, ReceiverConfig{Name: "ann", Model: m}); return err })
	d := newDelivery(t, m, 60, 1)
	const n = 10
	sent := make(chan error, 1)
	half := make(chan struct{})
	go func() {
		for i := range n {
			if i == n/2 {
				close(half)
			}
			if err := from.Send(ctx, "ann", fmt.Sprintf("d%02d", i), d); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	q := newQueue(t)
	c, cancel := context.WithCancel(ctx)
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- r.Run(c, q.take) }()
	<-half
	info, err := to.info(ctx, to.subject("to", "*", "*"))
	shutLeader(t, nodes, info, err)
	if err := <-sent; err != nil {
		t.Error(err)
	}
	waitEmpty(t, to)
	cancel()
	if err := <-ran; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	got := q.list()
	if slices.Sort(got); len(got) != n || len(slices.Compact(got)) != n {
		t.Errorf("received %d: %v", len(got), got)
	}
}

// within repeats f until it succeeds.
func within(t *testing.T, f func() error) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
