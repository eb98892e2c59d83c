package cache

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"samebit/internal/wholefile/wholetest"
)

// faulty is a folder whose process dies at an operation of a save.
func faulty(dir string, seed uint64, at int) (osFolder, *wholetest.Faulty) {
	d, f := newFolder(dir), wholetest.New(dir, seed, at)
	d.Folder = f
	return d, f
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

				folder, f := faulty(dir, seed, at)
				f.Lost = lost
				d, err := openDisk(folder, filepath.Join(dir, lockName), room)
				if err != nil {
					t.Fatal(err)
				}
				e, s := fakeEntry(35) // the oldest has to go for it
				err = d.Put(ctx, e, s)
				if f.Dead() && err == nil {
					t.Fatalf("%s: Put succeeded", what)
				}
				done = !f.Dead()
				d.Close()
				f.Settle(t)

				if d, err = OpenUnsynced(dir, room); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				for _, n := range []int{50, 60} {
					if !intact(t, d, n) {
						t.Fatalf("%s: the entry of %d rows is lost", what, n)
					}
				}
				there := intact(t, d, 35)
				if !f.Dead() && !there {
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
		folder, f := faulty(dir, 1, at)
		f.FailOn = full
		d, err := openDisk(folder, filepath.Join(dir, lockName), 0)
		if err != nil {
			t.Fatal(err)
		}
		err = put(t, d, 33)
		failed := f.Failed()
		if (err != nil) != failed || err != nil && !errors.Is(err, full) {
			t.Errorf("operation %d: %v", at, err)
		}
		if err != nil && intact(t, d, 33) && at < f.Ops()-1 {
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
