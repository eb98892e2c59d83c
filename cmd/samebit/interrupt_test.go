//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// TestInterruptSavesTheTraining: Ctrl-C ends a training with what was done saved,
// says how to go on, and going on gives the weights of a training left alone.
func TestInterruptSavesTheTraining(t *testing.T) {
	const config = `{"name": "small", "seed": 5, "vocabulary": {"size": 300, "samples": 20},
		"model": {"model_type": "qwen3", "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2,
		"num_key_value_heads": 1, "head_dim": 16, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "max_position_embeddings": 512, "rope_theta": 10000.0},
		"stages": [{"steps": 60, "rows": 300, "least": 40, "most": 100, "answers": 3}],
		"optimiser": {"rate": 0.003, "floor": 0.1, "warmup": 2, "decay": 0.01, "clip": 1}, "text": 0.2,
		"validation": {"every": 5, "samples": 5, "lengths": [64]}, "save": 1000}`
	dir := t.TempDir()
	path := filepath.Join(dir, "small.json")
	if err := os.WriteFile(path, []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	train := func(out string) *exec.Cmd {
		return exec.CommandContext(ctx, "samebit", "train", path, "-o", filepath.Join(dir, out))
	}
	alone, err := train("alone").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := train("stopped")
	var out bytes.Buffer
	c.Stdout = &out
	progress, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(progress)
	if _, err := said.ReadString('\n'); err != nil { // of the first validation
		t.Fatal(err)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(said)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 130 || !bytes.Contains(rest, []byte("of 60; to go on: samebit train "+path)) || out.Len() > 0 {
		t.Fatalf("%v, said %q and %q", err, rest, out.String())
	}
	again, err := train("stopped").Output()
	if err != nil {
		t.Fatal(err)
	}
	weights := func(report []byte) []byte { return report[bytes.Index(report, []byte("\nweights ")):] }
	if !bytes.Equal(weights(alone), weights(again)) {
		t.Errorf("alone%swent on%s", weights(alone), weights(again))
	}
}
