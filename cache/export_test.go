package cache

import (
	"path/filepath"

	"samebit/internal/wholefile"
	"samebit/internal/wholefile/wholetest"
)

// OpenUnsynced is OpenDisk that does not wait for the device, for tests of
// anything but crashes.
func OpenUnsynced(dir string, max int64) (*Disk, error) {
	d := newFolder(dir)
	d.Folder = wholetest.Unsynced{OS: wholefile.OS(dir)}
	return openDisk(d, filepath.Join(dir, lockName), max)
}
