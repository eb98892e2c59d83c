package natsbus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// embedded is a server inside this process that opens no port.
type embedded struct {
	srv  *server.Server
	dir  string
	lock *os.File
	log  *serverLog
}

// startEmbedded starts a server that keeps its data in dir. Servers do not notice
// when another one has the folder, so a lock, which ends with its process, does.
func startEmbedded(dir string, timeout time.Duration) (*embedded, error) {
	fail := func(err error) (*embedded, error) {
		return nil, fmt.Errorf("natsbus: starting a server inside this process in %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return fail(fmt.Errorf("%w: the folder is in use or cannot be locked; processes that share entries need one server and its URL", err))
	}
	e := &embedded{dir: dir, lock: lock, log: &serverLog{}}
	e.srv, err = server.NewServer(&server.Options{
		ServerName: "samebit",
		DontListen: true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   dir,
		// Buckets and streams have bounds of their own.
		JetStreamMaxStore:  1 << 50,
		JetStreamMaxMemory: 64 << 20,
	})
	if err != nil {
		lock.Close()
		return fail(err)
	}
	e.srv.SetLoggerV2(e.log, false, false, false)
	e.srv.Start() // returns when it has started, or has given up
	if !e.srv.ReadyForConnections(max(timeout, 30*time.Second)) || !e.srv.JetStreamEnabled() {
		err := e.log.last()
		if err == nil {
			err = errors.New("it does not get ready")
		}
		e.stop()
		return fail(err)
	}
	return e, nil
}

// stop returns when all data is written.
func (e *embedded) stop() error {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	return e.lock.Close()
}

// serverLog keeps the first thing that goes wrong in a server, and prints nothing.
type serverLog struct {
	mu  sync.Mutex
	err error
}

func (l *serverLog) last() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *serverLog) keep(format string, v []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errors.New(strings.TrimSpace(fmt.Sprintf(format, v...)))
	}
}

func (l *serverLog) Errorf(format string, v ...any) { l.keep(format, v) }
func (l *serverLog) Fatalf(format string, v ...any) { l.keep(format, v) }
func (*serverLog) Noticef(string, ...any)           {}
func (*serverLog) Warnf(string, ...any)             {}
func (*serverLog) Debugf(string, ...any)            {}
func (*serverLog) Tracef(string, ...any)            {}
