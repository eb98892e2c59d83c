//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestInterruptStopsTheAnswer: Ctrl-C during an answer ends that answer; the
// program takes the next turn and ends well.
func TestInterruptStopsTheAnswer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// the plain loops are slow enough to be interrupted
	c := exec.CommandContext(ctx, "samebit", "chat", "-m", "../../testdata/models/gguf/qwen3-bf16.gguf", "-device", "ref", "-n", "400", "-temp", "0", "-ignore-end")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	c.Stderr = &stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var said []byte
	until := func(what string) {
		t.Helper()
		b := make([]byte, 1)
		for from := len(said); !bytes.Contains(said[from:], []byte(what)) || len(said) == from; {
			if _, err := out.Read(b); err != nil {
				t.Fatalf("%v before %q; said %q, %s", err, what, said, stderr.String())
			}
			said = append(said, b[0])
		}
	}
	for range 2 {
		io.WriteString(in, "Hello\n")
		until("") // the first byte of an answer
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		until("[stopped]\n")
	}
	in.Close()
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, stderr.String())
	}
	if len(said) > 2000 {
		t.Errorf("%d bytes were said in two stopped answers", len(said))
	}
}
