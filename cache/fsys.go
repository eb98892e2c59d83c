package cache

import (
	"io/fs"
	"os"
	"time"

	"samebit/checkpoint"
	"samebit/internal/wholefile"
)

// folder is what a Disk needs of a file system; tests put faults in between.
// Names are relative to it.
type folder interface {
	wholefile.Folder
	entries() ([]fs.DirEntry, error)
	stamp() (fs.FileInfo, error) // of the folder itself
	touch(name string, t time.Time) error
	open(name string) (*checkpoint.Set, error)
}

// osFolder is a folder of the operating system, saved to by way of Folder.
type osFolder struct {
	wholefile.Folder
	dir wholefile.OS
}

func newFolder(dir string) osFolder { return osFolder{wholefile.OS(dir), wholefile.OS(dir)} }

func (d osFolder) entries() ([]fs.DirEntry, error) { return os.ReadDir(string(d.dir)) }
func (d osFolder) stamp() (fs.FileInfo, error)     { return os.Stat(string(d.dir)) }

func (d osFolder) touch(name string, t time.Time) error {
	return os.Chtimes(d.dir.Path(name), time.Time{}, t)
}

func (d osFolder) open(name string) (*checkpoint.Set, error) {
	return checkpoint.Open(d.dir.Path(name))
}
