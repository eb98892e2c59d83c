package cache

import "path/filepath"

// OpenUnsynced is OpenDisk that does not wait for the device, for tests of
// anything but crashes.
func OpenUnsynced(dir string, max int64) (*Disk, error) {
	return openDisk(unsynced{osFolder(dir)}, filepath.Join(dir, lockName), max)
}

type unsynced struct{ osFolder }

func (u unsynced) sync() error { return nil }
func (u unsynced) create(name string) (file, error) {
	f, err := u.osFolder.create(name)
	return unsyncedFile{f}, err
}

type unsyncedFile struct{ file }

func (unsyncedFile) Sync() error { return nil }
