package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The committed kernels are what the generator writes.
func TestCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the generator")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "gen")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("go", "build", "-o", bin, ".")
	p := func(name string) string { return filepath.Join(dir, name) }
	run(bin, "-pkg", "deltagrad", "-out", p("deltagrad_avx2_amd64.s"), "-stubs", p("deltagrad_avx2_amd64.go"))
	run(bin, "-avx512", "-pkg", "deltagrad", "-out", p("deltagrad_avx512_amd64.s"), "-stubs", p("deltagrad_avx512_amd64.go"))
	for _, name := range []string{"deltagrad_avx2_amd64.s", "deltagrad_avx2_amd64.go", "deltagrad_avx512_amd64.s", "deltagrad_avx512_amd64.go"} {
		if !bytes.Equal(body(t, p(name)), body(t, filepath.Join("../../../backend/cpu/internal/deltagrad", name))) {
			t.Errorf("%s is not what the generator writes; run go generate ./backend/cpu/internal/deltagrad", name)
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
