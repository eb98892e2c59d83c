package cache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// faulty is a folder whose process dies at an operation.
type faulty struct {
	osFolder
	rng    *rand.Rand
	left   int  // operations until death; negative: never
	lost   bool // the machine dies too: what was not synced is in doubt
	dead   bool
	ops    int
	doubt  map[string]bool        // files whose content may be lost
	undo   map[string]([2]string) // renames that may be lost
	failOn error                  // if set, operations fail with it instead of dying
}

var errDead = errors.New("the process is dead")

func (d *faulty) op() error {
	d.ops++
	if d.dead {
		return errDead
	}
	if d.left == 0 {
		if d.failOn != nil {
			d.left = -1
			return d.failOn
		}
		d.dead = true
		return errDead
	}
	if d.left > 0 {
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
	d.undo[to] = [2]string{from, to}
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
	for _, r := range d.undo {
		if d.rng.IntN(2) == 0 {
			if err := os.Rename(d.path(r[1]), d.path(r[0])); err != nil {
				t.Fatal(err)
			}
		}
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
}

// A writer dies, or its machine does, at every operation of a Put that also has to
// make room.
func TestDeathWhileWriting(t *testing.T) {
	ctx := context.Background()
	for _, lost := range []bool{false, true} {
		for at, done := 0, false; !done; at++ {
			for seed := range uint64(4) {
				what := fmt.Sprintf("death at operation %d, machine too: %v, seed %d", at, lost, seed)
				dir := t.TempDir()
				good, err := OpenUnsynced(dir, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range []int{40, 50, 60} {
					if err := put(t, good, n); err != nil {
						t.Fatal(err)
					}
				}
				old := time.Now().Add(-time.Hour)
				e, _ := fakeEntry(40)
				good.dir.touch(fileName(e.Key, e.ID), old)
				room := good.Bytes()
				good.Close()

				f := &faulty{osFolder: osFolder(dir), rng: rand.New(rand.NewPCG(seed, uint64(at))), left: at, lost: lost, doubt: map[string]bool{}, undo: map[string][2]string{}}
				d, err := openDisk(f, filepath.Join(dir, lockName), room)
				if err != nil {
					t.Fatal(err)
				}
				e, s := fakeEntry(35) // the oldest has to go for it
				err = d.Put(ctx, e, s)
				if f.dead && err == nil {
					t.Fatalf("%s: Put succeeded", what)
				}
				done = !f.dead
				d.Close()
				f.settle(t)

				if d, err = OpenUnsynced(dir, room); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for _, n := range []int{50, 60} {
					if !intact(t, d, n) {
						t.Fatalf("%s: the entry of %d rows is lost", what, n)
					}
				}
				there := intact(t, d, 35)
				if !f.dead && !there {
					t.Fatalf("%s: what was put is lost", what)
				}
				if intact(t, d, 40) && there {
					t.Fatalf("%s: more than the folder's bound is there", what)
				}
				// The next writer cleans up and goes on.
				if err := put(t, d, 35); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				entries, others := names(t, dir)
				if !intact(t, d, 35) || len(others) != 0 || len(entries) > 3 {
					t.Fatalf("%s: afterwards %v and %v", what, entries, others)
				}
				d.Close()
			}
			if at > 100 {
				t.Fatal("a Put never ends")
			}
		}
	}
}

// An operation fails (a full device, say) and the process lives on.
func TestFailureWhileWriting(t *testing.T) {
	full := errors.New("no space left on device")
	for at := range 30 {
		dir := t.TempDir()
		f := &faulty{osFolder: osFolder(dir), rng: rand.New(rand.NewPCG(1, uint64(at))), left: at, failOn: full, doubt: map[string]bool{}, undo: map[string][2]string{}}
		d, err := openDisk(f, filepath.Join(dir, lockName), 0)
		if err != nil {
			t.Fatal(err)
		}
		err = put(t, d, 33)
		failed := f.left == -1
		if (err != nil) != failed || err != nil && !errors.Is(err, full) {
			t.Errorf("operation %d: %v", at, err)
		}
		if err != nil && intact(t, d, 33) && at < f.ops-1 {
			t.Errorf("operation %d failed and the entry is there", at)
		}
		if _, others := names(t, dir); failed && len(others) > 0 {
			t.Errorf("operation %d: %v is left", at, others)
		}
		if err := put(t, d, 33); err != nil || !intact(t, d, 33) {
			t.Errorf("operation %d: afterwards %v", at, err)
		}
		d.Close()
		if !failed {
			break
		}
	}
}
