package jinja

import (
	"encoding/json"
	"os"
	"testing"
)

type oracle struct {
	Vars  map[string]json.RawMessage
	Cases [][2]*string // template, text (nil: an error)
}

func readOracle(t testing.TB) (o oracle) {
	t.Helper()
	raw, err := os.ReadFile("testdata/oracle.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOracle compares with jinja2 itself; testdata/oracle.py made the file.
func TestOracle(t *testing.T) {
	f := readOracle(t)
	vars := map[string]any{}
	for k, v := range f.Vars {
		vars[k] = v
	}
	for _, c := range f.Cases {
		tpl, err := Parse("oracle", *c[0])
		got := ""
		if err == nil {
			got, err = tpl.Render(vars)
		}
		switch want := c[1]; {
		case want == nil && err == nil:
			t.Errorf("%q gave %q, want an error", *c[0], got)
		case want != nil && err != nil:
			t.Errorf("%q: %v", *c[0], err)
		case want != nil && got != *want:
			t.Errorf("%q\n got %q\nwant %q", *c[0], got, *want)
		}
	}
	t.Logf("%d cases", len(f.Cases))
}
