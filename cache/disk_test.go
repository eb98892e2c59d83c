package cache

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"samebit/checkpoint"
	"samebit/state"
	"samebit/tensor"
)

// collect is an appender that keeps what it adopts.
type collect struct {
	fakeSeq
	got []float32
}

func (q *collect) Adopt(rows []state.Row, get func(string) (tensor.Tensor, error)) error {
	t, err := get("fake")
	if err != nil {
		return err
	}
	v, ok := t.F32()
	if !ok || t.Dims() != 1 || t.Dim(0) != len(rows) {
		return state.ErrForeign
	}
	q.n, q.got = len(rows), slices.Clone(v)
	return nil
}

// fakeEntry is an entry of n rows with n values.
func fakeEntry(n int) (Entry, *fakeSnap) {
	return NewEntry(Key{Route: 1}, count(n, n)), &fakeSnap{w: &world{}, group: &fakeGroup{}, n: n, refs: 1}
}

// intact says whether the entry of n rows is there; anything but all of it or
// nothing fails the test.
func intact(t *testing.T, d *Disk, n int) bool {
	t.Helper()
	e, _ := fakeEntry(n)
	var q collect
	err := d.Get(context.Background(), e, &q)
	if err == nil {
		for i, v := range q.got {
			if v != float32(i) {
				t.Fatalf("entry of %d rows: value %d is %v: a damaged entry was served", n, i, v)
			}
		}
		return true
	}
	if !errors.Is(err, ErrNotFound) {
		t.Fatalf("entry of %d rows: %v", n, err)
	}
	return false
}

func put(t *testing.T, d *Disk, n int) error {
	t.Helper()
	e, s := fakeEntry(n)
	return d.Put(context.Background(), e, s)
}

func names(t *testing.T, dir string) (entries, others []string) {
	t.Helper()
	l, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range l {
		if strings.HasSuffix(f.Name(), entrySuffix) {
			entries = append(entries, f.Name())
		} else if f.Name() != lockName {
			others = append(others, f.Name())
		}
	}
	return entries, others
}

// Every byte of a file matters, and no change of one is served.
func TestEveryByteIsGuarded(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenUnsynced(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := put(t, d, 20); err != nil {
		t.Fatal(err)
	}
	e, _ := fakeEntry(20)
	path := filepath.Join(dir, fileName(e.Key, e.ID))
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	served := 0
	for i := range good {
		for _, x := range []byte{1, 0x20, 0x80} {
			b := slices.Clone(good)
			b[i] ^= x
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if intact(t, d, 20) { // fails if what it serves is wrong
				served++
			}
		}
	}
	for n := range good {
		if err := os.WriteFile(path, good[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if intact(t, d, 20) {
			t.Fatalf("%d of %d bytes were served", n, len(good))
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%d of %d bytes stay: %v", n, len(good), err)
		}
	}
	if served > 3*8 { // spaces that pad the header may become other white space
		t.Errorf("%d changed files were served", served)
	}
}

// Files of another version or under a wrong name are removed when they are met.
func TestForeignFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenUnsynced(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e, s := fakeEntry(20)
	p, err := pack(e, s)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(){
		"version": func() { p.meta["version"] = "0" },
		"format":  func() { p.meta["format"] = "samebit.sequence" },
		"model":   func() { p.meta["model"] = strings.Repeat("ab", 32) },
	} {
		old := p.meta["version"] + p.meta["format"] + p.meta["model"]
		v, f, m := p.meta["version"], p.meta["format"], p.meta["model"]
		change()
		if old == p.meta["version"]+p.meta["format"]+p.meta["model"] {
			t.Fatal("nothing changed")
		}
		path := filepath.Join(dir, fileName(e.Key, e.ID))
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.write(file); err != nil {
			t.Fatal(err)
		}
		file.Close()
		if intact(t, d, 20) {
			t.Errorf("%s: served", name)
		}
		if err := d.List(context.Background(), e.Key, func(EntryID) bool { return false }, func(Entry) bool { t.Errorf("%s: listed", name); return true }); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the file stays", name)
		}
		p.meta["version"], p.meta["format"], p.meta["model"] = v, f, m
	}
	// What is not an entry is left alone.
	for _, name := range []string{"notes.txt", "x" + entrySuffix, keyPrefix(e.Key) + "zz" + entrySuffix} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := put(t, d, 20); err != nil || !intact(t, d, 20) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "notes.txt")); err != nil {
		t.Error(err)
	}
}

// The folder stays within its bound and keeps what was used last.
func TestFolderBound(t *testing.T) {
	dir := t.TempDir()
	d, err := OpenUnsynced(dir, 8<<10)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	now := time.Now().Add(-time.Hour)
	d.now = func() time.Time { now = now.Add(time.Second); return now }
	for n := 1; n <= 60; n++ {
		if err := put(t, d, n); err != nil {
			t.Fatal(err)
		}
		e, _ := fakeEntry(n)
		d.dir.touch(fileName(e.Key, e.ID), d.now())
		if n >= 3 && !intact(t, d, 3) {
			t.Fatalf("after %d entries the one that is always used is gone", n)
		}
		var sum int64
		entries, _ := names(t, dir)
		for _, f := range entries {
			fi, err := os.Stat(filepath.Join(dir, f))
			if err != nil {
				t.Fatal(err)
			}
			sum += fi.Size()
		}
		if sum > 8<<10 || sum != d.Bytes() {
			t.Fatalf("%d bytes in a folder for %d, Bytes says %d", sum, 8<<10, d.Bytes())
		}
	}
	if err := put(t, d, 4000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an entry larger than the folder: %v", err)
	}
	if !intact(t, d, 3) {
		t.Error("it drove out others")
	}
}

func FuzzReadEntry(f *testing.F) {
	for _, n := range []int{1, 20} {
		e, s := fakeEntry(n)
		if n == 20 {
			e.Rows[3] = state.Row{Token: -1, Vec: []float32{1, 2}}
		}
		p, err := pack(NewEntry(e.Key, e.Rows), s)
		if err != nil {
			f.Fatal(err)
		}
		var b strings.Builder
		if err := p.write(&b); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b.String()))
		p.meta["rows"] = "21"
		b.Reset()
		if err := checkpoint.Write(&b, p.list, p.meta); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(b.String()))
	}
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := EntryRows(data)
		if err != nil {
			return
		}
		if len(e.Rows) == 0 || NewEntry(e.Key, e.Rows).ID != e.ID {
			t.Errorf("%d rows, id %v", len(e.Rows), e.ID)
		}
		var q collect
		if err := ReadEntry(data, e, &q); err == nil && q.n != len(e.Rows) {
			t.Errorf("%d rows were adopted of %d", q.n, len(e.Rows))
		}
	})
}
