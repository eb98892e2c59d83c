package wholefile_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
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
