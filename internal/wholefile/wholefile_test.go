package wholefile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"samebit/internal/wholefile"
	"samebit/internal/wholefile/wholetest"
)

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
	const name = "notes"
	save := func(d wholefile.Folder) error { return wholefile.Replace(d, name, writeIn("the ", "new ", "text")) }
	wholetest.AtDeath(t, name,
		func(dir string) error { return wholefile.Replace(wholefile.OS(dir), name, writeIn("old")) },
		func(dir string) error { return save(wholefile.OS(dir)) },
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
		if err := wholefile.Replace(wholefile.OS(dir), "a", writeIn("old")); err != nil {
			t.Fatal(err)
		}
		f := wholetest.New(dir, 1, at)
		f.FailOn = full
		err := wholefile.Replace(f, "a", writeIn("n", "ew"))
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
		if last := string(b) == "new"; len(wholetest.Names(t, dir)) != 1 || !last && string(b) != "old" {
			t.Fatalf("operation %d: %q with %q", at, wholetest.Names(t, dir), b)
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
				if err := wholefile.Replace(wholefile.OS(dir), "a", writeIn(string(bytes.Repeat([]byte{'a' + byte(i)}, 999)), "\n")); err != nil {
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
	if n := wholetest.Names(t, dir); len(n) != 1 {
		t.Errorf("left %q", n)
	}
}

// A file that a user names may be read by others, errors name it, and nothing is left
// of one that failed.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plot.svg")
	if err := wholefile.Write(path, writeIn("<svg", "/>")); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(dir, "beside")
	if err := os.WriteFile(beside, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	got, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(beside)
	if err != nil {
		t.Fatal(err)
	}
	if got.Mode() != want.Mode() {
		t.Errorf("mode %v, a file of the system's making has %v", got.Mode(), want.Mode())
	}
	bad := errors.New("no ink")
	err = wholefile.Write(path, func(io.Writer) error { return bad })
	if !errors.Is(err, bad) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want %v of %s", err, bad, path)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "<svg/>" {
		t.Errorf("after a failed write the file holds %q, %v", text, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Errorf("%d files in the folder, %v, want 2", len(list), err)
	}
}
