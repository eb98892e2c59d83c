package cache

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockFile is held by LockFileEx, which ends with the process.
type lockFile struct{ f *os.File }

func (l *lockFile) try(name string) (bool, error) {
	if l.f == nil {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return false, err
		}
		l.f = f
	}
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err := windows.LockFileEx(windows.Handle(l.f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

func (l *lockFile) release() {
	windows.UnlockFileEx(windows.Handle(l.f.Fd()), 0, 1, 0, &windows.Overlapped{})
}

func (l *lockFile) close() {
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}
