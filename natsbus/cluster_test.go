package natsbus

import (
	"fmt"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"samebit/cache/cachetest"
)

// Three servers keep the bucket; the one that leads dies.
func TestClusterLosesItsLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("elections take seconds")
	}
	if raceDetector {
		t.Skip("nats-server v2.15.3 itself has a data race between (*batchStagedDiff).commit and applyStreamMsgOp in a cluster")
	}
	noLeak(t)
	var nodes []*server.Server
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
	}
	urls := ""
	for _, n := range nodes {
		urls += n.ClientURL() + ","
	}
	cfg := Config{URL: urls[:len(urls)-1], Replicas: 3, Timeout: 500 * time.Millisecond}
	var s *Store
	within(t, func() (err error) { s, err = Open(ctx, cfg); return err })
	t.Cleanup(func() { s.Close() })
	bed := cachetest.NewBed(t)
	s.chunk = 16 << 10
	x, y := newSample(t, bed, 1, 70, 128), newSample(t, bed, 2, 70, 128)
	put(t, s, x)
	// Followers may lag behind for a moment: a miss, but never a deletion.
	within(t, func() error { return s.Get(ctx, x.e, bed.Sequence(key.Model, 0)) })

	info, err := s.look(ctx, "")
	if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != 2 {
		t.Fatalf("no cluster: %+v, %v", info, err)
	}
	for _, n := range nodes {
		if n.Name() == info.Cluster.Leader {
			n.Shutdown()
			n.WaitForShutdown()
		}
	}
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
