package cache

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// folderLock lets one writer into a folder at a time, over all processes. Readers
// do not need it: files appear whole and are never changed.
type folderLock struct {
	mu   sync.Mutex // between goroutines
	name string
	file lockFile
}

// lock waits for the folder; the lock of a process that dies is free.
func (l *folderLock) lock(ctx context.Context) error {
	l.mu.Lock()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		ok, err := l.file.try(l.name)
		if err == nil && ok {
			return nil
		}
		if err == nil {
			t := time.NewTimer(wait)
			select {
			case <-t.C:
				continue
			case <-ctx.Done():
				t.Stop()
				err = ctx.Err()
			}
		}
		l.mu.Unlock()
		return fmt.Errorf("cache: locking %s: %w", l.name, err)
	}
}

func (l *folderLock) unlock() {
	l.file.release()
	l.mu.Unlock()
}
