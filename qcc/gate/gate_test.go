package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

type testCase struct {
	Name     string
	Evidence json.RawMessage
	Passed   bool
	Failures []string
}

func cases(t testing.TB) []testCase {
	t.Helper()
	data, err := os.ReadFile("../../testdata/qcc/gate01_cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var f struct{ Expected struct{ Cases []testCase } }
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	return f.Expected.Cases
}

func TestCases(t *testing.T) {
	l := cases(t)
	if len(l) != 33 {
		t.Fatalf("%d cases, want 33", len(l))
	}
	for _, c := range l {
		r, err := Audit(c.Evidence)
		if err != nil || r.Passed != c.Passed || !slices.Equal(r.Failures, c.Failures) {
			t.Errorf("%s: %+v, %v; want passed %v, %v", c.Name, r, err, c.Passed, c.Failures)
		}
	}
}

// Every field that the gate reads decides: gone, of another type or with a value from
// beyond the threshold, the evidence fails, and the code says where.
func TestEveryFieldDecides(t *testing.T) {
	var good any
	if err := json.Unmarshal(cases(t)[0].Evidence, &good); err != nil {
		t.Fatal(err)
	}
	// Other sections take one of the two.
	free := func(path string) bool {
		quality := strings.HasPrefix(path, "quality.")
		return strings.HasSuffix(path, ".official") && !quality || strings.HasSuffix(path, ".protocol_locked") && quality ||
			strings.HasPrefix(path, "calibration.") && strings.HasSuffix(path, ".official") ||
			path == "generalization.matched_full_kv" || strings.Contains(path, "critical_buckets") && strings.HasSuffix(path, ".name")
	}
	fields := 0
	var walk func(path string, v any, set func(x any))
	walk = func(path string, v any, set func(x any)) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				old := v[k]
				p := strings.TrimPrefix(path+"."+k, ".")
				walk(p, old, func(x any) { v[k] = x })
				v[k] = old
			}
			return
		case []any:
			for i := range v {
				old := v[i]
				walk(fmt.Sprintf("%s[%d]", path, i), old, func(x any) { v[i] = x })
				v[i] = old
			}
			return
		}
		if free(path) {
			return
		}
		fields++
		for _, x := range []any{nil, "yes", []any{}, map[string]any{}, other(v)} {
			if s, ok := v.(string); ok && x == any("yes") { // another text may do
				if len(s) != 64 {
					continue
				}
			}
			set(x)
			text, err := json.Marshal(good)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := Audit(text); err != nil || r.Passed || len(r.Failures) == 0 {
				t.Errorf("%s = %v passes (%v)", path, x, err)
			}
		}
		set(v)
	}
	walk("", good, nil)
	if fields < 100 {
		t.Errorf("only %d fields were tried", fields)
	}
	text, _ := json.Marshal(good)
	if r, err := Audit(text); err != nil || !r.Passed {
		t.Errorf("the walk left %+v, %v", r, err)
	}
}

// other is a value of another type that a lenient reader would take for the same.
func other(v any) any {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case float64:
		return v != 0
	}
	return 1
}

func TestUnreadable(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "null", "1", "{} {}", `{"a": NaN}`, `{"run_id": "a", "run_id": "b"}`, `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", "{\"a\": 1,}"} {
		if r, err := Audit([]byte(text)); !errors.Is(err, ErrUnreadable) || r.Passed {
			t.Errorf("%.40q: %+v, %v", text, r, err)
		}
	}
	r, err := Audit([]byte(`{}`))
	if err != nil || r.Passed || len(r.Failures) != 12 {
		t.Errorf("no evidence: %+v, %v", r, err)
	}
	r, err = Audit([]byte(`{"run_id": "a", "model": {"model_id": "m", "pretrained": true, "real_checkpoint": true, "parameter_count": 1e999}}`))
	if err != nil || !slices.Contains(r.Failures, "model.parameter_count:number") {
		t.Errorf("a number beyond all: %+v, %v", r, err)
	}
}

func FuzzAudit(f *testing.F) {
	for _, c := range cases(f)[:4] {
		f.Add([]byte(c.Evidence))
	}
	f.Add([]byte(`{"quality": {"ruler": 3}, "scaling_law": {"points": [1, {}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Audit(data)
		if r.Passed != (err == nil && len(r.Failures) == 0) {
			t.Fatalf("%+v with %v", r, err)
		}
	})
}
