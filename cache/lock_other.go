//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly || windows)

package cache

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// lockFile is a file that exists while the folder is locked, for systems without
// locks that end with their process. One older than staleLock is taken for a
// leftover: the worst that a mistake does is to lose the entry being written.
type lockFile struct{ name string }

const staleLock = 10 * time.Minute

func (l *lockFile) try(name string) (bool, error) {
	name += ".held"
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		l.name = name
		return true, f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if fi, err := os.Stat(name); err == nil && time.Since(fi.ModTime()) > staleLock {
		os.Remove(name)
	}
	return false, nil
}

func (l *lockFile) release() { os.Remove(l.name) }
func (l *lockFile) close()   {}
