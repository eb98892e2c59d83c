// Package wholetest lets processes and machines die while they save a file.
package wholetest

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"samebit/internal/wholefile"
)

// Faulty is a folder whose process dies at an operation.
type Faulty struct {
	wholefile.OS
	rng    *rand.Rand
	left   int   // operations until death; negative: never
	FailOn error // if set, the operation fails with it instead, and the process lives on
	Lost   bool  // the machine dies too: what was not synced is in doubt
	dead   bool
	doubt  map[string]bool   // files whose content may be lost
	undo   map[string]rename // renames that may be lost, by what they made
	ops    int
}

// rename is where a name came from, and what it replaced; nil for nothing.
type rename struct {
	from string
	was  []byte
}

var errDead = errors.New("the process is dead")

// New returns a folder that dies at operation left; a negative one never does.
func New(dir string, seed uint64, left int) *Faulty {
	return &Faulty{OS: wholefile.OS(dir), rng: rand.New(rand.NewPCG(seed, uint64(left))), left: left, doubt: map[string]bool{}, undo: map[string]rename{}}
}

// Dead reports whether the process died.
func (d *Faulty) Dead() bool { return d.dead }

// Failed reports whether an operation failed with FailOn.
func (d *Faulty) Failed() bool { return d.FailOn != nil && d.left < 0 }

// Ops is the number of operations so far.
func (d *Faulty) Ops() int { return d.ops }

func (d *Faulty) op() error {
	d.ops++
	switch {
	case d.dead:
		return errDead
	case d.left == 0 && d.FailOn != nil:
		d.left = -1
		return d.FailOn
	case d.left == 0:
		d.dead = true
		return errDead
	case d.left > 0:
		d.left--
	}
	return nil
}

func (d *Faulty) Create(name string) (wholefile.File, error) {
	if err := d.op(); err != nil {
		return nil, err
	}
	f, err := d.OS.Create(name)
	if err != nil {
		return nil, err
	}
	d.doubt[name] = true
	return &file{f.(*os.File), d, name}, nil
}

type file struct {
	f    *os.File
	d    *Faulty
	name string
}

// Write dies after a part of b.
func (f *file) Write(b []byte) (int, error) {
	was := f.d.dead
	if err := f.d.op(); err != nil {
		n := 0
		if !was {
			n, _ = f.f.Write(b[:f.d.rng.IntN(len(b)+1)])
		}
		return n, err
	}
	return f.f.Write(b)
}

func (f *file) Sync() error {
	if err := f.d.op(); err != nil {
		return err
	}
	delete(f.d.doubt, f.name)
	return nil
}

func (f *file) Close() error {
	defer f.f.Close()
	return f.d.op()
}

func (d *Faulty) Rename(from, to string) error {
	if err := d.op(); err != nil {
		return err
	}
	was, err := os.ReadFile(d.Path(to))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.undo[to] = rename{from, was}
	if d.doubt[from] {
		d.doubt[to] = true
	}
	return d.OS.Rename(from, to)
}

func (d *Faulty) Remove(name string) error {
	if err := d.op(); err != nil {
		return err
	}
	return d.OS.Remove(name)
}

func (d *Faulty) List() ([]string, error) {
	if err := d.op(); err != nil {
		return nil, err
	}
	return d.OS.List()
}

func (d *Faulty) Sync() error {
	if err := d.op(); err != nil {
		return err
	}
	clear(d.undo)
	return nil
}

// Settle leaves on the medium what a dead machine would.
func (d *Faulty) Settle(t *testing.T) {
	if !d.Lost {
		return
	}
	for to, r := range d.undo {
		if d.rng.IntN(2) == 0 {
			continue
		}
		err := os.Rename(d.Path(to), d.Path(r.from))
		if err == nil && r.was != nil {
			err = os.WriteFile(d.Path(to), r.was, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		delete(d.doubt, to)
	}
	for name := range d.doubt {
		b, err := os.ReadFile(d.Path(name))
		if err != nil || len(b) == 0 {
			continue
		}
		if n := d.rng.IntN(len(b)); d.rng.IntN(2) == 0 {
			b = b[:n] // the end never arrived
		} else {
			clear(b[n:]) // or its blocks
		}
		if err := os.WriteFile(d.Path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Names are the files of a folder.
func Names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := wholefile.OS(dir).List()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// AtDeath runs save, which replaces the file name of a folder, with a death
// at every one of its operations, of the process or of the machine. Before and
// after are the contents that the file may have.
func AtDeath(t *testing.T, name string, before, after func(dir string) error, save func(wholefile.Folder) error, check func(dir string) (old, whole bool)) {
	t.Helper()
	for _, lost := range []bool{false, true} {
		for at, alive := 0, false; !alive; at++ {
			for seed := range uint64(4) {
				what := fmt.Sprintf("death at operation %d, machine too: %v, seed %d", at, lost, seed)
				dir := t.TempDir()
				if err := before(dir); err != nil {
					t.Fatal(err)
				}
				f := New(dir, seed, at)
				f.Lost = lost
				err := save(f)
				if alive = !f.dead; alive != (err == nil) && f.dead {
					t.Fatalf("%s: saving succeeded", what)
				}
				if alive && err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				f.Settle(t)
				old, whole := check(dir)
				if !old && !whole {
					t.Fatalf("%s: the file is neither the old one nor the new one", what)
				}
				if alive && !whole {
					t.Fatalf("%s: what was saved is lost", what)
				}
				for _, n := range Names(t, dir) {
					if n != name && !wholefile.IsTemp(n, name) {
						t.Fatalf("%s: litter %q", what, n)
					}
				}
				// The next save removes what the dead one left.
				if err := after(dir); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if _, whole := check(dir); !whole || len(Names(t, dir)) != 1 {
					t.Fatalf("%s: afterwards there are %q, whole: %v", what, Names(t, dir), whole)
				}
			}
			if at > 100 {
				t.Fatal("a save never ends")
			}
		}
	}
}

// Unsynced is a folder that spares tests of anything but deaths the waiting.
type Unsynced struct{ wholefile.OS }

func (d Unsynced) Create(name string) (wholefile.File, error) {
	f, err := d.OS.Create(name)
	return unsynced{f}, err
}
func (Unsynced) Sync() error { return nil }

type unsynced struct{ wholefile.File }

func (unsynced) Sync() error { return nil }
