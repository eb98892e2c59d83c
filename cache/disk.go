package cache

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"crypto/rand"

	"samebit/checkpoint"
	"samebit/internal/wholefile"
	"samebit/state"
)

// Disk is a Store in a folder, which any number of processes may share. An entry
// is one file that appears by renaming, after its content is durable, and is never
// changed; writers take turns by a lock that ends with its process. So a process
// that dies loses at most the entry that it was writing, and what it leaves of that
// is removed by the next writer.
//
// Files are read by mapping them: nobody may shorten them in place.
type Disk struct {
	dir   folder
	lock  folderLock
	max   int64
	bytes atomic.Int64 // when last looked
	racy  atomic.Uint64
	now   func() time.Time
}

const (
	entrySuffix = ".safetensors"
	tempSuffix  = ".tmp"
	lockName    = "lock"
)

// OpenDisk uses dir, which it makes if it is missing, for at most maxBytes of
// entries, 0 meaning 8 GiB. The entries used least recently, by any process, make
// room for new ones.
func OpenDisk(dir string, maxBytes int64) (*Disk, error) {
	if maxBytes < 0 {
		return nil, fmt.Errorf("cache: folder %s for %d bytes: want a positive bound, or 0 for 8 GiB", dir, maxBytes)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cache: second tier: %w", err)
	}
	return openDisk(newFolder(dir), filepath.Join(dir, lockName), maxBytes)
}

func openDisk(dir folder, lock string, maxBytes int64) (*Disk, error) {
	if maxBytes == 0 {
		maxBytes = 8 << 30
	}
	d := &Disk{dir: dir, lock: folderLock{name: lock}, max: maxBytes, now: time.Now}
	if _, err := d.scan(); err != nil {
		return nil, fmt.Errorf("cache: second tier: %w", err)
	}
	return d, nil
}

// fileName begins with a digest of the key, so that a key's entries are found by
// name.
func fileName(k Key, id EntryID) string { return keyPrefix(k) + id.String() + entrySuffix }

func keyPrefix(k Key) string {
	d := k.digest()
	return hex.EncodeToString(d[:8]) + "-"
}

// stored is a file of an entry.
type stored struct {
	name string
	size int64
	used time.Time
}

// scan lists the entries, the least recently used first.
func (d *Disk) scan() ([]stored, error) {
	list, err := d.dir.entries()
	if err != nil {
		return nil, err
	}
	var all []stored
	var sum int64
	for _, f := range list {
		if !strings.HasSuffix(f.Name(), entrySuffix) {
			continue
		}
		fi, err := f.Info()
		if err != nil {
			continue // removed meanwhile
		}
		all = append(all, stored{f.Name(), fi.Size(), fi.ModTime()})
		sum += fi.Size()
	}
	d.bytes.Store(sum)
	slices.SortFunc(all, func(a, b stored) int {
		if c := a.used.Compare(b.used); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return all, nil
}

// Bytes is the size of all entries, of all processes, when this one last looked.
func (d *Disk) Bytes() int64 { return d.bytes.Load() }

// Put writes the entry. See Store.
func (d *Disk) Put(ctx context.Context, e Entry, s state.Snapshot) error {
	p, err := pack(e, s)
	if err != nil {
		return err
	}
	name := fileName(e.Key, e.ID)
	if p.size > d.max {
		return fmt.Errorf("cache: storing %d rows: %d bytes in a folder for %d: %w", len(e.Rows), p.size, d.max, ErrTooLarge)
	}
	if err := d.lock.lock(ctx); err != nil {
		return err
	}
	defer d.lock.unlock()
	if there, err := d.room(name, p.size); there || err != nil {
		return err
	}
	if err := d.write(name, p); err != nil {
		return fmt.Errorf("cache: storing %d rows: %w", len(e.Rows), err)
	}
	d.bytes.Add(p.size)
	return nil
}

// room removes leftovers, and old entries until size bytes fit. It says whether
// the entry is there already. The lock is held.
func (d *Disk) room(name string, size int64) (there bool, err error) {
	list, err := d.dir.entries()
	if err != nil {
		return false, err
	}
	for _, f := range list {
		if strings.HasSuffix(f.Name(), tempSuffix) {
			d.dir.Remove(f.Name()) // its writer would hold the lock
		}
	}
	all, err := d.scan()
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(all, func(s stored) bool { return s.name == name }) {
		return true, nil
	}
	sum := d.bytes.Load()
	for _, s := range all {
		if sum+size <= d.max {
			break
		}
		if err := d.dir.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue // in use, where systems refuse that
		}
		sum -= s.size
	}
	d.bytes.Store(sum)
	if sum+size > d.max {
		return false, fmt.Errorf("cache: %d bytes of the second tier are in use and cannot make room for %d", sum, size)
	}
	return false, nil
}

// write makes the file appear whole. The lock is held.
func (d *Disk) write(name string, p *packed) error {
	return wholefile.Put(d.dir, "writing-"+rand.Text()+tempSuffix, name, p.write)
}

// Get reads the entry. See Store.
func (d *Disk) Get(ctx context.Context, e Entry, into Appender) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := fileName(e.Key, e.ID)
	set, err := d.open(name)
	if err != nil {
		return err
	}
	err = adopt(set, e, into)
	set.Close()
	switch {
	case errors.Is(err, errDamaged):
		d.dir.Remove(name)
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, errOther):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case err == nil:
		d.dir.touch(name, d.now()) // if it fails, the entry is merely older
	}
	return err
}

// open maps an entry's file; a file that cannot be one is removed.
func (d *Disk) open(name string) (*checkpoint.Set, error) {
	set, err := d.dir.open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, checkpoint.ErrUnsupported):
		d.dir.Remove(name)
		return nil, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return set, err
}

// List reads the keys and rows of entries. See Store.
func (d *Disk) List(ctx context.Context, k Key, skip func(EntryID) bool, f func(Entry) bool) error {
	files, err := d.dir.entries()
	if err != nil {
		return fmt.Errorf("cache: second tier: %w", err)
	}
	prefix := keyPrefix(k)
	for _, file := range files {
		name := file.Name()
		var id EntryID
		hex, ok := strings.CutPrefix(name, prefix)
		if !ok || !strings.HasSuffix(hex, entrySuffix) || !unhex(id[:], strings.TrimSuffix(hex, entrySuffix)) || skip(id) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		set, err := d.open(name)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cache: second tier: %w", err)
		}
		e, err := identify(set)
		set.Close()
		if err != nil || e.ID != id || e.Key != k {
			d.dir.Remove(name) // damaged, of another version, or under a wrong name
			continue
		}
		if !f(e) {
			return nil
		}
	}
	return nil
}

// Stamp is the folder's time of change. A change that is so recent that another
// one could have the same time is never the same twice.
func (d *Disk) Stamp(context.Context) uint64 {
	fi, err := d.dir.stamp()
	if err != nil || d.now().Sub(fi.ModTime()) < 50*time.Millisecond {
		return d.racy.Add(1)
	}
	return uint64(fi.ModTime().UnixNano())
}

// Delete removes an entry of any key; it is no error if there is none.
func (d *Disk) Delete(ctx context.Context, id EntryID) error {
	if err := d.lock.lock(ctx); err != nil {
		return err
	}
	defer d.lock.unlock()
	all, err := d.scan()
	if err != nil {
		return err
	}
	for _, s := range all {
		if strings.HasSuffix(s.name, "-"+id.String()+entrySuffix) {
			if err := d.dir.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("cache: second tier: %w", err)
			}
			d.bytes.Add(-s.size)
		}
	}
	return nil
}

// Close lets go of the folder. The entries stay.
func (d *Disk) Close() error {
	d.lock.mu.Lock()
	defer d.lock.mu.Unlock()
	d.lock.file.close()
	return nil
}
