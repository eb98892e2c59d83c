//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package cache

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile is held by flock, which belongs to the open file and ends with it.
type lockFile struct{ f *os.File }

func (l *lockFile) try(name string) (bool, error) {
	if l.f == nil {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return false, err
		}
		l.f = f
	}
	for {
		err := unix.Flock(int(l.f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

func (l *lockFile) release() { unix.Flock(int(l.f.Fd()), unix.LOCK_UN) }

func (l *lockFile) close() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}
