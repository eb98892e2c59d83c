package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"samebit/checkpoint"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"samebit": main})
}

// TestScripts runs testdata/script: whole command lines, as a user types them.
func TestScripts(t *testing.T) {
	models, err := filepath.Abs("../../testdata/models")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			e.Setenv("MODELS", models)
			e.Setenv("TINY", filepath.Join(models, "gguf", "qwen3-bf16.gguf"))
			e.Setenv("XDG_CACHE_HOME", filepath.Join(e.WorkDir, "cache")) // without the fetched model
			e.Setenv("BELL", "\x07[1m")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"gguf": gguf, "head": head, "copydir": copydir, "exits": exits, "repeated": repeated, "samefield": sameField, "sameresults": sameResults,
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
	})
}

// gguf rewrites a file: gguf SRC DST key=string | tokens=N …
func gguf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: gguf SRC DST key=value")
	}
	set, err := checkpoint.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	defer set.Close()
	change := map[string]string{}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		change[k] = v
	}
	var meta []checkpoint.KV
	for _, k := range set.Meta.Keys() {
		v, err := set.Meta.Value(k)
		ts.Check(err)
		if s, ok := change[k]; ok {
			v = any(s)
		}
		if s, ok := change["tokens"]; ok && k == "tokenizer.ggml.tokens" {
			n, err := strconv.Atoi(s)
			ts.Check(err)
			l := append([]string(nil), v.([]string)...)
			for len(l) < n {
				l = append(l, "extra"+strconv.Itoa(len(l)))
			}
			v = l
		}
		if _, ok := change["tokens"]; ok && k == "tokenizer.ggml.token_type" {
			continue
		}
		meta = append(meta, checkpoint.KV{Key: k, Value: v})
		delete(change, k)
	}
	for k, v := range change {
		if strings.Contains(k, ".") { // one that was not there
			meta = append(meta, checkpoint.KV{Key: k, Value: v})
		}
	}
	var tensors []checkpoint.Entry
	for _, i := range set.Infos() {
		e, err := set.Tensor(i.Name)
		ts.Check(err)
		tensors = append(tensors, e)
	}
	var b bytes.Buffer
	ts.Check(checkpoint.WriteGGUF(&b, tensors, meta))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b.Bytes(), 0o666))
}

// head copies the first bytes of a file: head SRC DST N
func head(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: head SRC DST N")
	}
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b[:min(n, len(b))], 0o666))
}

// copydir copies the files of a folder: copydir SRC DST
func copydir(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: copydir SRC DST")
	}
	ts.Check(os.CopyFS(ts.MkAbs(args[1]), os.DirFS(ts.MkAbs(args[0]))))
}

// exits runs a program that must end with a code: exits CODE PROGRAM ARGS
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS")
	}
	var e *exec.ExitError
	code := 0
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &e) {
		code = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// repeated says that a file is another one N times: repeated FILE PART N
func repeated(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: repeated FILE PART N")
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	if got, want := ts.ReadFile(args[0]), strings.Repeat(ts.ReadFile(args[1]), n); got != want {
		ts.Fatalf("%s is %q, want %q", args[0], got, want)
	}
}

// sameField says that two files of JSON have the same value of a field, wherever it is: samefield A B NAME
func sameField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: samefield A B NAME")
	}
	find := regexp.MustCompile(`"` + args[2] + `":("[^"]*"|\[[^\]]*\]|[^,}]*)`)
	a, b := find.FindAllString(ts.ReadFile(args[0]), -1), find.FindAllString(ts.ReadFile(args[1]), -1)
	if len(a) == 0 {
		ts.Fatalf("%s has no field %q", args[0], args[2])
	}
	if slices.Equal(a, b) == neg {
		ts.Fatalf("%s: %q and %q", args[2], a, b)
	}
}

// sameResults says that two runs of eval-selectors gave the same but for times: sameresults A B
func sameResults(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sameresults A B")
	}
	times := regexp.MustCompile(`"(transfer|generation)_seconds":[^,}]*`)
	clean := func(name string) string { return times.ReplaceAllString(ts.ReadFile(name), "") }
	if a, b := clean(args[0]), clean(args[1]); a != b || a == "" {
		ts.Fatalf("%s:\n%s\n%s:\n%s", args[0], a, args[1], b)
	}
}
