// Package wholefile makes files appear, or change, as a whole: whatever happens, and
// wherever the process dies, a name stands for its old content or for the new one.
package wholefile

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

// Folder is what saving a file needs of a file system; tests put faults in between.
// Names are relative to it.
type Folder interface {
	Create(name string) (File, error) // new, empty, exclusive
	Rename(from, to string) error     // replaces to, atomically
	Remove(name string) error
	Sync() error // names are durable after it
	List() ([]string, error)
}

// File is a file being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// OS is a folder of the operating system, whose new files are their owner's alone.
type OS string

// Path is where a name lies.
func (d OS) Path(name string) string { return filepath.Join(string(d), name) }

func (d OS) Create(name string) (File, error) {
	return os.OpenFile(d.Path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (d OS) Rename(from, to string) error { return os.Rename(d.Path(from), d.Path(to)) }
func (d OS) Remove(name string) error     { return os.Remove(d.Path(name)) }

func (d OS) List() ([]string, error) {
	f, err := os.Open(string(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// public is a folder whose new files others may read too, as far as the umask lets them.
type public struct{ OS }

func (d public) Create(name string) (File, error) {
	return os.OpenFile(d.Path(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// Write is Replace for a file that a user names to read or to pass on. Errors name it.
func Write(path string, write func(io.Writer) error) error {
	if err := Replace(public{OS(filepath.Dir(path))}, filepath.Base(path), write); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// Names of unfinished files: hidden, and never those of a finished file, since a
// process that dies leaves one behind. The next save of the same file removes it.
const (
	tempPrefix = "."
	tempSuffix = ".writing"
)

// IsTemp reports whether file is an unfinished one of name.
func IsTemp(file, name string) bool {
	mid, ok := strings.CutPrefix(file, tempPrefix+name+".")
	mid, ends := strings.CutSuffix(mid, tempSuffix)
	return ok && ends && !strings.Contains(mid, ".")
}

// Replace makes the file name appear, or change, as a whole: whatever happens, and
// wherever the process dies, the name stands for its old content or for all that
// write wrote. When Replace returns nil, it also survives the death of the machine.
func Replace(d Folder, name string, write func(io.Writer) error) error {
	// What a dead process left. An unfinished file of a living one may go too; that
	// one notices and writes again, without removing anything, so that two that save
	// the same file at the same time both succeed.
	if list, err := d.List(); err == nil {
		for _, f := range list {
			if IsTemp(f, name) {
				d.Remove(f) // what stays is never read
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

func tryReplace(d Folder, name string, write func(io.Writer) error) error {
	return Put(d, tempPrefix+name+"."+rand.Text()+tempSuffix, name, write)
}

// Put is Replace for callers that name unfinished files, and remove those of the
// dead, themselves: temp must be new, and stands for nothing wherever it is left.
func Put(d Folder, temp, name string, write func(io.Writer) error) error {
	f, err := d.Create(temp)
	if err != nil {
		return err
	}
	err = write(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		if err = d.Rename(temp, name); errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errTaken, err)
		}
	}
	if err != nil {
		d.Remove(temp)
		return err
	}
	return d.Sync()
}
