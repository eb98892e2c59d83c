package rclc

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/lockstep"
	"samebit/backend/ref"
)

// array is an input of testdata/rclc.
type array struct {
	Shape  []int     `json:"shape"`
	Values []float32 `json:"values"`
	Base64 string    `json:"f32"`
}

func (a *array) f32(t testing.TB) []float32 {
	t.Helper()
	if a.Base64 == "" {
		return a.Values
	}
	raw, err := base64.StdEncoding.DecodeString(a.Base64)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(raw)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

// golden reads a file of testdata/rclc.
func golden(t testing.TB, name string, v any) {
	t.Helper()
	raw, err := os.ReadFile("../testdata/rclc/" + name + ".json")
	if err == nil {
		err = json.Unmarshal(raw, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// near compares with a foreign oracle: |got - want| <= atol + rtol·|want|.
func near(t testing.TB, what string, got []float32, want []float64, rtol, atol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s has %d values, want %d", what, len(got), len(want))
		return
	}
	for i, w := range want {
		if d := math.Abs(float64(got[i]) - w); !(d <= atol+rtol*math.Abs(w)) {
			t.Errorf("%s: value %d is %v, want %v (off by %.3g)", what, i, got[i], w, d)
			return
		}
	}
}

// wantCode checks an error against a case's code; it reports whether to go on.
func wantCode(t testing.TB, id string, err error, code string) bool {
	t.Helper()
	if got := Code(err); got != code || (err == nil) != (code == "") {
		t.Errorf("%s: error %v with code %q, want %q", id, err, got, code)
		return false
	}
	return err == nil
}

// devices are all that the scores must agree on, the reference first.
func devices(t testing.TB) []backend.Device {
	t.Helper()
	l := []backend.Device{ref.New()}
	for _, impl := range cpu.Impls() {
		for _, threads := range []int{1, 3, 8} {
			if impl == "generic" && threads == 3 {
				continue
			}
			d, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
			if err != nil {
				t.Fatal(err)
			}
			l = append(l, d)
		}
	}
	fast, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	both := lockstep.New(ref.New(), fast)
	t.Cleanup(func() {
		for _, d := range l {
			d.Close()
		}
	})
	return append(l, both)
}

func TestGoldenBudgets(t *testing.T) {
	var f struct {
		Cases []struct {
			ID            string
			T             int `json:"sender_positions"`
			Inherited     int
			Ratio, Budget *int
			Reserve       int
			Expected      struct {
				Budget int `json:"resolved_budget"`
			}
			Error string
		}
	}
	golden(t, "budgets", &f)
	for _, c := range f.Cases {
		var cfg Config
		err := cfg.SetSize(c.Ratio, c.Budget)
		got := 0
		if err == nil {
			got, err = Cap(c.T, c.Inherited, c.Reserve, cfg.Ratio, cfg.Budget)
		}
		if wantCode(t, c.ID, err, c.Error) && got != c.Expected.Budget {
			t.Errorf("%s: a budget of %d, want %d", c.ID, got, c.Expected.Budget)
		}
	}
	if len(f.Cases) != 21 {
		t.Errorf("%d cases", len(f.Cases))
	}
	for _, c := range []Config{{Ratio: 2, Budget: 3}, {Ratio: -1}, {Budget: -1}} {
		if c.check() == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestGoldenFit(t *testing.T) {
	var f struct {
		Cases []struct {
			ID                      string
			Caps, Floors, Available []int
			Expected                struct{ Counts []int }
			Error                   string
		}
	}
	golden(t, "fit", &f)
	for _, c := range f.Cases {
		got, err := Fit(c.Caps, c.Floors, c.Available)
		if wantCode(t, c.ID, err, c.Error) && !slices.Equal(got, c.Expected.Counts) {
			t.Errorf("%s: counts %v, want %v", c.ID, got, c.Expected.Counts)
		}
	}
	if len(f.Cases) != 11 {
		t.Errorf("%d cases", len(f.Cases))
	}
}

func TestGoldenSelection(t *testing.T) {
	var f struct {
		Cases []struct {
			ID       string
			Returned any
			T        int `json:"sender_positions"`
			Budget   int
			Expected struct{ Selected []int }
			Error    string
		}
	}
	golden(t, "selection", &f)
	for i, c := range f.Cases {
		if c.ID == "se11" { // 1.0, which JSON does not tell from 1; any fraction is refused
			c.Returned = []any{1.5}
		}
		l, err := ParsePositions(c.Returned)
		if err == nil {
			l, err = checkPositions(l, c.T, c.Budget)
		}
		if wantCode(t, c.ID, err, c.Error) && !slices.Equal(l, c.Expected.Selected) {
			t.Errorf("%s: selected %v, want %v", c.ID, l, f.Cases[i].Expected.Selected)
		}
	}
	if len(f.Cases) != 15 {
		t.Errorf("%d cases", len(f.Cases))
	}
}

func TestGoldenSpans(t *testing.T) {
	var f struct {
		Cases []struct {
			ID        string
			Scores    []float32
			Budget    int
			Span      int `json:"span_size"`
			Protected []int
			Latent    int  `json:"latent_steps"`
			Pin       bool `json:"pin_first"`
			Expected  struct{ Selected []int }
			Error     string
		}
	}
	golden(t, "spans", &f)
	for _, c := range f.Cases {
		var got []int
		var err error
		if c.Pin {
			got, err = pick(c.Scores, c.Latent, c.Budget, c.Span)
		} else {
			got, err = SelectSpans(c.Scores, c.Budget, c.Protected, c.Span)
		}
		if wantCode(t, c.ID, err, c.Error) && !slices.Equal(got, c.Expected.Selected) {
			t.Errorf("%s: selected %v, want %v", c.ID, got, c.Expected.Selected)
		}
	}
	if len(f.Cases) != 17 {
		t.Errorf("%d cases", len(f.Cases))
	}
}

func TestGoldenSupport(t *testing.T) {
	var f struct {
		Cases []struct {
			ID            string
			Votes, Energy []float32
			Row           []float32 `json:"row_energy"`
			Expected      struct{ Scores []float64 }
			Error         string
		}
	}
	golden(t, "support", &f)
	for _, c := range f.Cases {
		got, err := support(c.Votes, c.Energy, c.Row)
		if wantCode(t, c.ID, err, c.Error) {
			near(t, c.ID, got, c.Expected.Scores, 2e-6, 1e-30)
		}
	}
	if len(f.Cases) != 6 {
		t.Errorf("%d cases", len(f.Cases))
	}
}
