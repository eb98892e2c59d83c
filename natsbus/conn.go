// Package natsbus shares what one machine has computed with others, over NATS: a
// [Store] keeps the prefixes of package cache in JetStream's object store, and a
// [Bus] carries the deliveries of package rclc from sender to receiver.
package natsbus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Conn is a connection to a server with JetStream, maybe one inside this process.
// It finds back to a server that was away; meanwhile everything fails at once
// instead of waiting. It is safe for concurrent use.
type Conn struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	cfg    Config
	where  string        // the server, for messages
	owned  *embedded     // to be shut down with the connection, or nil
	closed chan struct{} // by the last handler

	once     sync.Once
	closeErr error

	mu      sync.Mutex
	up      context.Context // ends when the connection is lost
	down    context.CancelCauseFunc
	lastErr error     // what the server last said outside of answers,
	lastAt  time.Time // and when
}

// errLost is the cause when the connection breaks while an answer is awaited.
var errLost = errors.New("connection lost")

// Connect reaches the server of cfg, or starts one inside this process when there
// is no URL; starting one is not interrupted by ctx. Bucket, MaxBytes and Replicas
// are not used.
func Connect(ctx context.Context, cfg Config) (*Conn, error) {
	cfg, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("natsbus: connecting: %w", err)
	}
	if cfg.URL != "" {
		return dial(ctx, cfg, nil)
	}
	s, err := startEmbedded(cfg.Dir, cfg.Timeout)
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, cfg, s)
	if err != nil {
		s.stop()
		return nil, err
	}
	c.owned = s
	return c, nil
}

// dial connects to s, or to the URL when s is nil.
func dial(ctx context.Context, cfg Config, s *embedded) (*Conn, error) {
	auth, err := cfg.auth()
	if err != nil {
		return nil, err
	}
	c := &Conn{cfg: cfg, closed: make(chan struct{})}
	c.up, c.down = context.WithCancelCause(context.Background())
	d := &dialer{ctx: ctx, timeout: cfg.Timeout, wrap: cfg.wrap}
	o := append(auth,
		nats.Name("samebit"),
		nats.Timeout(cfg.Timeout),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(func(tries int) time.Duration { // soon at first, then about every 2 s
			d := min(20*time.Millisecond<<min(tries, 7), 2*time.Second)
			return d + rand.N(d/4)
		}),
		nats.ReconnectBufSize(-1), // a request that cannot be sent now is an error now
		nats.DisconnectErrHandler(func(*nats.Conn, error) { c.lose() }),
		nats.ReconnectHandler(func(*nats.Conn) { c.regain() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.heard(err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
	)
	if s != nil {
		c.where = "server inside this process in " + s.dir
		o = append(o, nats.InProcessServer(s.srv))
	} else {
		c.where = "server " + shown(cfg.URL)
		o = append(o, nats.SetCustomDialer(d))
	}
	stop := context.AfterFunc(ctx, d.abort)
	c.nc, err = nats.Connect(cfg.URL, o...)
	stop()
	d.detach()
	if err == nil {
		c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(cfg.Timeout), jetstream.WithPublishAsyncTimeout(cfg.Timeout))
		if err != nil {
			c.Close()
		}
	}
	if err != nil {
		c.down(err)
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, c.explain("connecting", err)
	}
	return c, nil
}

// Close lets go of the server, and shuts it down if it is inside this process.
// What it keeps stays in its folder.
func (c *Conn) Close() error {
	c.once.Do(func() { c.closeErr = c.close() })
	return c.closeErr
}

func (c *Conn) close() error {
	c.nc.Close()
	c.mu.Lock()
	c.down(nats.ErrConnectionClosed)
	c.mu.Unlock()
	select {
	case <-c.closed: // no handler runs after this
	case <-time.After(c.cfg.Timeout):
	}
	if c.owned != nil {
		return c.owned.stop()
	}
	return nil
}

func (c *Conn) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down(errLost)
}

func (c *Conn) regain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down(errLost)
	c.up, c.down = context.WithCancelCause(context.Background())
}

// fault is where tests let the process die.
func (c *Conn) fault(point string) {
	if c.cfg.fault != nil {
		c.cfg.fault(point)
	}
}

func (c *Conn) heard(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr, c.lastAt = err, time.Now()
}

// ready fails when there is no connection now.
func (c *Conn) ready() error {
	switch c.nc.Status() {
	case nats.CONNECTED:
		return nil
	case nats.CLOSED:
		return nats.ErrConnectionClosed
	}
	return errLost
}

// attached returns a context that also ends, with errLost as its cause, when the
// connection does.
func (c *Conn) attached(ctx context.Context) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(up, func() { cancel(context.Cause(up)) })
	return ctx, func() { stop(); cancel(nil) }
}

// ask runs f, one question to the server, for at most Timeout. An error is the
// cause of the context's end, if that is why f failed.
func (c *Conn) ask(ctx context.Context, f func(context.Context) error) error {
	if err := c.ready(); err != nil {
		return err
	}
	ctx, detach := c.attached(ctx)
	defer detach()
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.Timeout, errSilent)
	defer cancel()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && c.ready() != nil {
		return fmt.Errorf("%w (%w)", errLost, err)
	}
	return err
}

// grace is how long what was begun is brought to an end after a context has ended.
const grace = time.Second

// lingering returns a context that ends only grace after ctx does.
func lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return late, func() { stop(); cancel() }
}

// dialer opens connections that a context can abort until it is detached.
type dialer struct {
	timeout time.Duration
	wrap    func(net.Conn) net.Conn // nil for nothing
	mu      sync.Mutex
	ctx     context.Context // nil once detached
	conn    net.Conn
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.ctx
	d.mu.Unlock()
	if ctx == nil {
		ctx = context.Background()
	}
	conn, err := (&net.Dialer{Timeout: d.timeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.wrap != nil {
		conn = d.wrap(conn)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx != nil {
		d.conn = conn
		if d.ctx.Err() != nil {
			conn.Close()
		}
	}
	return conn, nil
}

func (d *dialer) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn != nil {
		d.conn.Close()
	}
}

func (d *dialer) detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ctx, d.conn = nil, nil
}
