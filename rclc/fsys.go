package rclc

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// folder is what saving a file needs of a file system; tests put faults in between.
// Names are relative to it.
type folder interface {
	create(name string) (file, error) // new, empty, exclusive
	rename(from, to string) error     // replaces to, atomically
	remove(name string) error
	sync() error // names are durable after it
	list() ([]string, error)
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

func (d osFolder) list() ([]string, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Names of unfinished files: hidden, and never those of a snapshot, since a
// process that dies leaves one behind. The next save of the same file removes it.
const (
	tempPrefix = "."
	tempSuffix = ".writing"
)

func isTemp(file, name string) bool {
	mid, ok := strings.CutPrefix(file, tempPrefix+name+".")
	mid, ends := strings.CutSuffix(mid, tempSuffix)
	return ok && ends && !strings.Contains(mid, ".")
}

// replace makes the file name appear, or change, as a whole: whatever happens, and
// wherever the process dies, the name stands for its old content or for all that
// write wrote. When replace returns nil, it also survives the death of the machine.
func replace(d folder, name string, write func(io.Writer) error) error {
	// What a dead process left. An unfinished file of a living one may go too; that
	// one notices and writes again, without removing anything, so that two that save
	// the same file at the same time both succeed.
	if list, err := d.list(); err == nil {
		for _, f := range list {
			if isTemp(f, name) {
				d.remove(f) // what stays is never read
			}
		}
	}
	var err error
	for range 100 {
		if err = tryReplace(d, name, write); !errors.Is(err, errTaken) {
			return err
		}
	}
	return fmt.Errorf("other processes keep saving the same file: %w", err)
}

// errTaken is the cause when the unfinished file is gone before its renaming.
var errTaken = errors.New("the unfinished file was removed")

func tryReplace(d folder, name string, write func(io.Writer) error) error {
	temp := tempPrefix + name + "." + rand.Text() + tempSuffix
	f, err := d.create(temp)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = d.rename(temp, name); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errTaken, err)
		}
	}
	if err != nil {
		d.remove(temp)
		return err
	}
	return d.sync()
}
