package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// targets are the packages whose go:generate lines call this module.
var targets = []string{"../../../backend/cpu/internal/gemm", "../../../backend/cpu/internal/gemm/blas1"}

// TestCurrent runs every go:generate line into a temporary folder and compares
// the result with the committed files.
func TestCurrent(t *testing.T) {
	tmp := t.TempDir()
	for _, dir := range targets {
		src, err := os.ReadFile(filepath.Join(dir, "generate.go"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(src)) {
			_, command, ok := strings.Cut(line, " run ")
			if !ok || !strings.HasPrefix(line, "//go:generate ") {
				continue
			}
			args := strings.Fields(command)
			outputs := map[string]string{} // temporary -> committed
			for i, a := range args {
				if slices.Contains([]string{"-o", "-out", "-stubs"}, a) {
					to := filepath.Join(tmp, filepath.Base(args[i+1]))
					outputs[to] = filepath.Join("..", args[i+1])
					args[i+1] = to
				}
			}
			cmd := exec.Command("go", append([]string{"run"}, args...)...)
			cmd.Dir = ".."
			cmd.Env = append(os.Environ(), "GOWORK=off")
			if msg, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", command, err, msg)
			}
			for got, want := range outputs {
				if !bytes.Equal(body(t, got), body(t, want)) {
					t.Errorf("%s is not what its generator writes now: run go generate in %s", want, dir)
				}
			}
		}
	}
}

// body is a file without its first line, which holds the command.
func body(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}

// TestNoHighRegisters: registers 16 to 31 exist only with AVX-512, but the
// register allocator hands them out to any kernel that needs more than 16.
func TestNoHighRegisters(t *testing.T) {
	high := regexp.MustCompile(`\b[XY](1[6-9]|2[0-9]|3[01])\b|\b[ZK][0-9]`)
	for _, dir := range targets {
		files, err := filepath.Glob(filepath.Join(dir, "*_amd64.s"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no assembly in %s: %v", dir, err)
		}
		for _, name := range files {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			fn := ""
			for s := bufio.NewScanner(f); s.Scan(); {
				if strings.HasPrefix(s.Text(), "TEXT ") {
					fn = s.Text()
				}
				if !strings.Contains(fn, "AVX512") && high.MatchString(s.Text()) {
					t.Errorf("%s: %s\n\t%s", name, fn, s.Text())
				}
			}
			f.Close()
		}
	}
}
