package cache

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"samebit/checkpoint"
)

// folder is what a Disk needs of a file system; tests put faults in between.
// Names are relative to it.
type folder interface {
	create(name string) (file, error) // new, empty, exclusive
	rename(from, to string) error     // replaces to, atomically
	remove(name string) error
	sync() error // names are durable after it
	list() ([]fs.DirEntry, error)
	stamp() (fs.FileInfo, error) // of the folder itself
	touch(name string, t time.Time) error
	open(name string) (*checkpoint.Set, error)
}

type file interface {
	io.WriteCloser
	Sync() error
}

// osFolder is a folder of the operating system.
type osFolder string

func (d osFolder) path(name string) string { return filepath.Join(string(d), name) }

func (d osFolder) create(name string) (file, error) {
	return os.OpenFile(d.path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d osFolder) rename(from, to string) error { return os.Rename(d.path(from), d.path(to)) }
func (d osFolder) remove(name string) error     { return os.Remove(d.path(name)) }
func (d osFolder) list() ([]fs.DirEntry, error) { return os.ReadDir(string(d)) }
func (d osFolder) stamp() (fs.FileInfo, error)  { return os.Stat(string(d)) }

func (d osFolder) touch(name string, t time.Time) error {
	return os.Chtimes(d.path(name), time.Time{}, t)
}

func (d osFolder) open(name string) (*checkpoint.Set, error) { return checkpoint.Open(d.path(name)) }
