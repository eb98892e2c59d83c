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
	err = e.log.fatal()
	if err == nil && !e.srv.ReadyForConnections(timeout) {
		err = fmt.Errorf("it is not ready after %v", timeout)
	}
	if err != nil {
		return fail(errors.Join(err, e.stop()))
	}
	return e, nil
}

// stop returns when all data is written.
func (e *embedded) stop() error {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	return e.lock.Close()
}

// serverLog keeps why a server gave up, and prints nothing. What else is wrong shows
// in answers.
type serverLog struct {
	mu  sync.Mutex
	err error
}

func (l *serverLog) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Fatalf is called by a server that cannot go on. It expects no more of it.
func (l *serverLog) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = errors.New(strings.TrimSpace(fmt.Sprintf(format, v...)))
	}
}

func (*serverLog) Errorf(string, ...any)  {}
func (*serverLog) Warnf(string, ...any)   {}
func (*serverLog) Noticef(string, ...any) {}
func (*serverLog) Debugf(string, ...any)  {}
func (*serverLog) Tracef(string, ...any)  {}
