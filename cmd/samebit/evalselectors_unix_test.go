//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInterruptKeepsResults: a run that is interrupted ends at once, says so, and
// leaves whole results.
func TestInterruptKeepsResults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	path := filepath.Join(t.TempDir(), "results.jsonl")
	c := exec.CommandContext(ctx, "samebit", "eval-selectors", "-m", "../../testdata/models/gguf/qwen3-bf16.gguf", "--generate", "3000", "--documents", "1", "--tokens", "200", "--results", path)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var err error
	for asked := false; ; {
		select {
		case err = <-ended:
		case <-time.After(5 * time.Millisecond):
			if b, _ := os.ReadFile(path); !asked && len(b) > 0 {
				asked = true
				if err := c.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		break
	}
	var e *exec.ExitError
	if !errors.As(err, &e) || e.ExitCode() != 130 || stdout.Len() > 0 || stderr.String() != "samebit: interrupted\n" {
		t.Errorf("%v; %q; %q", err, stdout.String(), stderr.String())
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(string(b), "}\n") {
		t.Errorf("%q, %v", b, err)
	}
}
