package natsbus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"samebit/internal/wholefile"
)

// ledger remembers the ids of deliveries that were accepted, so that one that comes
// again is not accepted again.
type ledger interface {
	has(id string) bool
	// add accepts a delivery. When it returns nil, has(id) holds, with an inbox also
	// after the process died.
	add(id string, data []byte) error
	// drop takes add back.
	drop(id string) error
	// done says that an accepted delivery is not needed any more; its id stays.
	done(id string) error
	close() error
}

// memory is the ledger of a receiver whose queue dies with the process.
type memory struct {
	keep   time.Duration
	mu     sync.Mutex
	ids    map[string]time.Time
	pruned time.Time
}

func newMemory(keep time.Duration) *memory { return &memory{keep: keep, ids: map[string]time.Time{}} }

func (m *memory) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ids[id]
	return ok
}

func (m *memory) add(id string, _ []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.ids[id] = now
	if now.Sub(m.pruned) > m.keep/8 {
		m.pruned = now
		for k, at := range m.ids {
			if now.Sub(at) > m.keep {
				delete(m.ids, k)
			}
		}
	}
	return nil
}

func (m *memory) drop(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.ids, id)
	return nil
}

func (*memory) done(string) error { return nil }
func (*memory) close() error      { return nil }

// inbox is a queue of deliveries in a folder, and its files are the ledger: one file
// N-ID.delivery for each that waits, N rising, and an empty N-ID.done for each that
// was taken. A file appears as a whole, by renaming.
type inbox struct {
	dir   string
	keep  time.Duration // of .done files
	lock  *os.File
	fault func(point string) // tests kill the process here

	mu     sync.Mutex
	files  map[string]string // by id, names of files
	next   uint64
	pruned time.Time
}

const (
	waitingExt, doneExt, writingExt = ".delivery", ".done", ".writing"
	lockName                        = "lock"
)

func openInbox(dir string, keep time.Duration, fault func(string)) (*inbox, error) {
	fail := func(err error) (*inbox, error) {
		return nil, fmt.Errorf("natsbus: opening inbox %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if err != nil {
		return fail(fmt.Errorf("%w: the folder is in use or cannot be locked; every receiver needs one of its own", err))
	}
	if fault == nil {
		fault = func(string) {}
	}
	b := &inbox{dir: dir, keep: keep, lock: lock, fault: fault, files: map[string]string{}, pruned: time.Now()}
	list, err := os.ReadDir(dir)
	for i := 0; i < len(list) && err == nil; i++ {
		err = b.found(list[i])
	}
	if err != nil {
		lock.Close()
		return fail(err)
	}
	return b, nil
}

// found takes a file of an earlier process.
func (b *inbox) found(f fs.DirEntry) error {
	name := f.Name()
	if strings.HasSuffix(name, writingExt) {
		return os.Remove(b.path(name)) // its writer died
	}
	n, id, ok := parseInboxName(name)
	if !ok {
		return nil // not ours
	}
	b.next = max(b.next, n+1)
	if strings.HasSuffix(name, doneExt) {
		info, err := f.Info()
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) > b.keep {
			return os.Remove(b.path(name))
		}
		if info.Size() > 0 {
			if err := os.Truncate(b.path(name), 0); err != nil {
				return err
			}
		}
	}
	b.files[id] = name
	return nil
}

func parseInboxName(name string) (n uint64, id string, ok bool) {
	ext := filepath.Ext(name)
	num, id, ok := strings.Cut(strings.TrimSuffix(name, ext), "-")
	n, err := strconv.ParseUint(num, 10, 64)
	return n, id, ok && err == nil && len(num) == 20 && isName(id) && (ext == waitingExt || ext == doneExt)
}

// sync makes the names in the folder durable.
func (b *inbox) sync() error { return wholefile.OS(b.dir).Sync() }

func (b *inbox) path(name string) string { return filepath.Join(b.dir, name) }

func (b *inbox) has(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.files[id] != ""
}

// add writes the file of a delivery; it is there, durably and as a whole, or not at
// all.
func (b *inbox) add(id string, data []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	stem := fmt.Sprintf("%020d-%s", b.next, id)
	temp := b.path(stem + writingExt)
	err := b.write(temp, data)
	b.fault("written")
	if err == nil {
		err = os.Rename(temp, b.path(stem+waitingExt))
	}
	b.fault("renamed")
	if err == nil {
		if err = b.sync(); err != nil {
			os.Remove(b.path(stem + waitingExt))
		}
	}
	b.fault("synced")
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("natsbus: inbox %s: keeping delivery %s: %w", b.dir, id, err)
	}
	b.files[id] = stem + waitingExt
	b.next++
	return nil
}

func (b *inbox) write(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	b.fault("created")
	half := len(data) / 2
	_, err = f.Write(data[:half])
	b.fault("half written")
	if err == nil {
		_, err = f.Write(data[half:])
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (b *inbox) drop(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := b.files[id]
	if name == "" {
		return nil
	}
	if err := os.Remove(b.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("natsbus: inbox %s: dropping delivery %s: %w", b.dir, id, err)
	}
	delete(b.files, id)
	return b.sync()
}

// done renames the file, which is one step, and empties it.
func (b *inbox) done(id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	name := b.files[id]
	stem, waiting := strings.CutSuffix(name, waitingExt)
	if !waiting {
		if name == "" {
			return fmt.Errorf("natsbus: inbox %s: delivery %.60q: %w", b.dir, id, errUnknownID)
		}
		return nil // twice is harmless
	}
	b.fault("before done")
	err := os.Rename(b.path(name), b.path(stem+doneExt))
	if err == nil {
		b.fault("renamed done")
		b.files[id] = stem + doneExt
		err = errors.Join(os.Truncate(b.path(stem+doneExt), 0), b.sync())
		b.fault("done")
	}
	if err != nil {
		return fmt.Errorf("natsbus: inbox %s: delivery %s is done: %w", b.dir, id, err)
	}
	if time.Since(b.pruned) > min(b.keep, time.Hour) {
		b.prune()
	}
	return nil
}

var errUnknownID = errors.New("no delivery of this id was accepted, or it is long ago")

// prune forgets what was done long ago. What fails now is found again later.
func (b *inbox) prune() {
	b.pruned = time.Now()
	for id, name := range b.files {
		if !strings.HasSuffix(name, doneExt) {
			continue
		}
		if info, err := os.Stat(b.path(name)); err == nil && time.Since(info.ModTime()) > b.keep && os.Remove(b.path(name)) == nil {
			delete(b.files, id)
		}
	}
}

// waits reports whether a delivery was accepted and is not done.
func (b *inbox) waits(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.HasSuffix(b.files[id], waitingExt)
}

// waiting lists the ids of what was accepted and is not done, oldest first.
func (b *inbox) waiting() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for _, name := range b.files {
		if strings.HasSuffix(name, waitingExt) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for i, name := range names {
		_, names[i], _ = parseInboxName(name)
	}
	return names
}

func (b *inbox) read(id string) ([]byte, error) {
	b.mu.Lock()
	name := b.files[id]
	b.mu.Unlock()
	return os.ReadFile(b.path(name))
}

func (b *inbox) close() error { return b.lock.Close() }
