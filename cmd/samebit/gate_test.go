package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

func TestGateExitCodes(t *testing.T) {
	data, err := os.ReadFile("../../testdata/qcc/gate01_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var traces struct {
		Expected struct {
			Cases []struct {
				Name     string
				Evidence json.RawMessage
				Passed   bool
			}
		}
	}
	if err := json.Unmarshal(data, &traces); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for i, c := range traces.Expected.Cases[:3] { // the rules are tested with package gate
		want := 1
		if c.Passed {
			want = 0
		}
		if got := run([]string{"gate", file("evidence.json", c.Evidence)}); got != want {
			t.Errorf("case %d, %s: exit code %d, want %d", i, c.Name, got, want)
		}
	}
	for what, args := range map[string][]string{
		"no JSON":   {"gate", file("text.json", []byte("{"))},
		"a list":    {"gate", "--json", file("list.json", []byte("[]"))},
		"no file":   {"gate", filepath.Join(dir, "none.json")},
		"a folder":  {"gate", dir},
		"nothing":   {"gate"},
		"two files": {"gate", "a", "b"},
	} {
		if got := run(args); got != 2 {
			t.Errorf("%s: exit code %d, want 2", what, got)
		}
	}
	if got := run([]string{"gate", "--json", file("empty.json", []byte("{}"))}); got != 1 {
		t.Errorf("no evidence: exit code %d, want 1", got)
	}
}
