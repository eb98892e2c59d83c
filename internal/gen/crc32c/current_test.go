package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCurrent: the committed assembly is what the generator writes.
func TestCurrent(t *testing.T) {
	dir := t.TempDir()
	names := []string{"fold_amd64.s", "fold_amd64.go"}
	at := func(i int) string { return filepath.Join(dir, names[i]) }
	cmd := exec.Command("go", "run", ".", "-pkg", "crc32c", "-out", at(0), "-stubs", at(1))
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, name := range names {
		if !bytes.Equal(body(t, at(i)), body(t, filepath.Join("../../crc32c", name))) {
			t.Errorf("%s is not what the generator writes: run go generate in internal/crc32c", name)
		}
	}
}

// body is a file without its first line, which quotes the command.
func body(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}
