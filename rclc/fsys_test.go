package rclc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// faulty is a folder whose process dies at an operation.
type faulty struct {
	osFolder
	rng    *rand.Rand
	left   int   // operations until death; negative: never
	failOn error // if set, the operation fails with it instead, and the process lives on
	lost   bool  // the machine dies too: what was not synced is in doubt
	dead   bool
	doubt  map[string]bool   // files whose content may be lost
	undo   map[string][]byte // what renames that may be lost replaced; nil for nothing
}

var errDead = errors.New("the process is dead")

func newFaulty(dir string, seed uint64, left int) *faulty {
	return &faulty{osFolder: osFolder(dir), rng: rand.New(rand.NewPCG(seed, uint64(left))), left: left, doubt: map[string]bool{}, undo: map[string][]byte{}}
}

func (d *faulty) op() error {
	switch {
	case d.dead:
		return errDead
	case d.left == 0 && d.failOn != nil:
		d.left = -1
		return d.failOn
	case d.left == 0:
		d.dead = true
		return errDead
	case d.left > 0:
		d.left--
	}
	return nil
}

func (d *faulty) create(name string) (file, error) {
	if err := d.op(); err != nil {
		return nil, err
	}
	f, err := d.osFolder.create(name)
	if err != nil {
		return nil, err
	}
	d.doubt[name] = true
	return &faultyFile{f.(*os.File), d, name}, nil
}

type faultyFile struct {
	f    *os.File
	d    *faulty
	name string
}

// Write dies after a part of b.
func (f *faultyFile) Write(b []byte) (int, error) {
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

func (f *faultyFile) Sync() error {
	if err := f.d.op(); err != nil {
		return err
	}
	delete(f.d.doubt, f.name)
	return nil
}

func (f *faultyFile) Close() error {
	defer f.f.Close()
	return f.d.op()
}

func (d *faulty) rename(from, to string) error {
	if err := d.op(); err != nil {
		return err
	}
	was, err := os.ReadFile(d.path(to))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.undo[to] = was
	if d.doubt[from] {
		d.doubt[to] = true
	}
	return d.osFolder.rename(from, to)
}

func (d *faulty) remove(name string) error {
	if err := d.op(); err != nil {
		return err
	}
	return d.osFolder.remove(name)
}

func (d *faulty) list() ([]string, error) {
	if err := d.op(); err != nil {
		return nil, err
	}
	return d.osFolder.list()
}

func (d *faulty) sync() error {
	if err := d.op(); err != nil {
		return err
	}
	clear(d.undo)
	return nil
}

// settle leaves on the medium what a dead machine would.
func (d *faulty) settle(t *testing.T) {
	if !d.lost {
		return
	}
	for name := range d.doubt {
		b, err := os.ReadFile(d.path(name))
		if err != nil || len(b) == 0 {
			continue
		}
		if n := d.rng.IntN(len(b)); d.rng.IntN(2) == 0 {
			b = b[:n] // the end never arrived
		} else {
			clear(b[n:]) // or its blocks
		}
		if err := os.WriteFile(d.path(name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, was := range d.undo {
		if d.rng.IntN(2) == 0 {
			continue
		}
		var err error
		if was == nil {
			err = os.Remove(d.path(name))
		} else {
			err = os.WriteFile(d.path(name), was, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func names(t testing.TB, dir string) []string {
	t.Helper()
	list, err := osFolder(dir).list()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// atDeath runs save, which replaces the file "notes.rclc" of a folder, with a death
// at every one of its operations, of the process or of the machine. Before and
// after are the contents that the file may have.
func atDeath(t *testing.T, before, after func(dir string) error, save func(folder) error, check func(dir string) (old, whole bool)) {
	t.Helper()
	for _, lost := range []bool{false, true} {
		for at, alive := 0, false; !alive; at++ {
			for seed := range uint64(4) {
				what := fmt.Sprintf("death at operation %d, machine too: %v, seed %d", at, lost, seed)
				dir := t.TempDir()
				if err := before(dir); err != nil {
					t.Fatal(err)
				}
				f := newFaulty(dir, seed, at)
				f.lost = lost
				err := save(f)
				if alive = !f.dead; alive != (err == nil) && f.dead {
					t.Fatalf("%s: saving succeeded", what)
				}
				if alive && err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				f.settle(t)
				old, whole := check(dir)
				if !old && !whole {
					t.Fatalf("%s: the file is neither the old one nor the new one", what)
				}
				if alive && !whole {
					t.Fatalf("%s: what was saved is lost", what)
				}
				for _, n := range names(t, dir) {
					if n != "notes.rclc" && !isTemp(n, "notes.rclc") {
						t.Fatalf("%s: litter %q", what, n)
					}
				}
				// The next save removes what the dead one left.
				if err := after(dir); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				if _, whole := check(dir); !whole || len(names(t, dir)) != 1 {
					t.Fatalf("%s: afterwards there are %q, whole: %v", what, names(t, dir), whole)
				}
			}
			if at > 100 {
				t.Fatal("a save never ends")
			}
		}
	}
}

func writeIn(parts ...string) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, p := range parts {
			if _, err := io.WriteString(w, p); err != nil {
				return err
			}
		}
		return nil
	}
}

func TestReplaceSurvivesDeath(t *testing.T) {
	const name = "notes.rclc"
	save := func(d folder) error { return replace(d, name, writeIn("the ", "new ", "text")) }
	atDeath(t,
		func(dir string) error { return replace(osFolder(dir), name, writeIn("old")) },
		func(dir string) error { return save(osFolder(dir)) },
		save,
		func(dir string) (old, whole bool) {
			b, _ := os.ReadFile(filepath.Join(dir, name))
			return string(b) == "old", string(b) == "the new text"
		})
}

// An operation fails (a full device, say) and the process lives on: the old file
// stays, and nothing else.
func TestReplaceFails(t *testing.T) {
	full := errors.New("no space left on device")
	for at := 1; ; at++ { // operation 0 only looks for leftovers
		dir := t.TempDir()
		if err := replace(osFolder(dir), "a", writeIn("old")); err != nil {
			t.Fatal(err)
		}
		f := newFaulty(dir, 1, at)
		f.failOn = full
		err := replace(f, "a", writeIn("n", "ew"))
		b, _ := os.ReadFile(filepath.Join(dir, "a"))
		if err == nil {
			if at < 5 || string(b) != "new" {
				t.Fatalf("operation %d: succeeded with %q", at, b)
			}
			return
		}
		if !errors.Is(err, full) {
			t.Fatalf("operation %d: %v", at, err)
		}
		if last := string(b) == "new"; len(names(t, dir)) != 1 || !last && string(b) != "old" {
			t.Fatalf("operation %d: %q with %q", at, names(t, dir), b)
		}
	}
}

// Many save the same file at once: all succeed, and the file is one of theirs.
func TestReplaceTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if err := replace(osFolder(dir), "a", writeIn(string(bytes.Repeat([]byte{'a' + byte(i)}, 999)), "\n")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(filepath.Join(dir, "a"))
	if err != nil || len(b) != 1000 || bytes.Count(b, b[:1]) != 999 {
		t.Errorf("%v, %d bytes", err, len(b))
	}
	if n := names(t, dir); len(n) != 1 {
		t.Errorf("left %q", n)
	}
}
