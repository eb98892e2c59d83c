package eval

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"samebit/token"
)

func tokenizer(t testing.TB) *token.Tokenizer {
	t.Helper()
	tok, err := token.Open("../../testdata/models/tokenizers/bpe-512")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestNormalise(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		" The  Amber!\n":    "the amber",
		"1,234":             "1234",
		"Été (à Paris)":     "été à paris",
		"a_b-c":             "a_bc",
		"ÄPFEL\tund\u00a0x": "äpfel und x",
	} {
		if got := Normalise(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
		if again := Normalise(Normalise(in)); again != Normalise(in) {
			t.Errorf("%q is not stable", in)
		}
	}
}

func TestAnswers(t *testing.T) {
	one := Case{Answers: []string{"team Basalt", "Basalt"}}
	two := Case{Answers: []string{"1234 and 99"}, Parts: []string{"1234", "99"}}
	for _, c := range []struct {
		c               Case
		answer          string
		equal, contains bool
		why             string
	}{
		{one, "Basalt.", true, true, "punctuation does not count"},
		{one, "It is team basalt, I think", false, true, "a sentence holds it"},
		{one, "Basalts", false, false, "words are whole"},
		{one, "", false, false, "nothing"},
		{two, "1234 and 99", true, true, ""},
		{two, "99, then 1234", false, true, "any order"},
		{two, "1234", false, false, "both are wanted"},
		{two, "12349 and 99", false, false, "numbers are whole"},
	} {
		if c.c.Correct(c.answer) != c.equal || c.c.Contains(c.answer) != c.contains {
			t.Errorf("%q (%s): equal %v, contains %v", c.answer, c.why, c.c.Correct(c.answer), c.c.Contains(c.answer))
		}
	}
}

func TestBootstrap(t *testing.T) {
	if got := Bootstrap(nil, 1); got != (Interval{}) {
		t.Errorf("of nothing: %v", got)
	}
	if got := Bootstrap([]float64{1, 1, 1}, 1); got != (Interval{N: 3, Mean: 1, Low: 1, High: 1}) {
		t.Errorf("of ones: %v", got)
	}
	var v []float64
	for i := range 400 {
		v = append(v, float64(i%4/3)) // a quarter of them is 1
	}
	got := Bootstrap(v, 7)
	if got != Bootstrap(v, 7) {
		t.Error("the same seed gives two intervals")
	}
	if x := []float64{1, 2.5, 7, 11, 13.1}; Bootstrap(x, 7) == Bootstrap(x, 8) {
		t.Error("the seed does not matter")
	}
	// The standard error is √(¼·¾/400) = 0.0217; 1.96 of them on each side.
	if got.N != 400 || got.Mean != 0.25 || math.Abs(got.Low-0.2075) > 0.008 || math.Abs(got.High-0.2925) > 0.008 {
		t.Errorf("of a quarter in 400: %+v", got)
	}
}

func TestGenerate(t *testing.T) {
	tok := tokenizer(t)
	cfg := GenerateConfig{Cases: 12, Documents: 4, Tokens: 700, TwoFacts: 3, Seed: 5}
	cases, err := Generate(tok, cfg)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Generate(tok, cfg)
	if !reflect.DeepEqual(cases, again) {
		t.Error("the same seed gives other cases")
	}
	cfg.Seed++
	if other, _ := Generate(tok, cfg); reflect.DeepEqual(cases[0], other[0]) {
		t.Error("the seed does not matter")
	}
	two := 0
	for i, c := range cases {
		if err := c.check(); err != nil {
			t.Errorf("case %d: %v", i, err)
		}
		want := 1
		if c.Kind == "two facts" {
			two++
			want = 2
		}
		if len(c.Evidence) != want || len(c.Documents) != 4 {
			t.Fatalf("case %d of %s has %d pieces of evidence in %d documents", i, c.Kind, len(c.Evidence), len(c.Documents))
		}
		ids := make([][]int32, len(c.Documents))
		all := strings.Join(c.Documents, "\n")
		for d, text := range c.Documents {
			ids[d] = tok.EncodePlain(nil, text)
			if n := len(ids[d]); n > 700 || n < 560 {
				t.Errorf("case %d: document %d has %d tokens", i, d, n)
			}
		}
		gold := c.gold(tok, ids)
		values := c.Parts
		if want == 1 {
			values = c.Answers
		}
		for _, e := range c.Evidence {
			fact := c.Documents[e.Document][e.Start:e.Stop]
			if !slices.ContainsFunc(values, func(v string) bool {
				return strings.HasSuffix(fact, " "+v+".") && strings.Count(all, " "+v+".") == 1
			}) {
				t.Errorf("case %d: the evidence %q does not give one of %q, or is not the only one that does", i, fact, values)
			}
			var kept []int32
			for p, g := range gold[e.Document] {
				if g {
					kept = append(kept, ids[e.Document][p])
				}
			}
			if text := tok.Text(kept); !strings.Contains(text, fact) {
				t.Errorf("case %d: the gold tokens are %q, want %q in them", i, text, fact)
			}
		}
	}
	if two != 3 {
		t.Errorf("%d cases ask for two facts, want 3", two)
	}
}

func TestGenerateWrong(t *testing.T) {
	tok := tokenizer(t)
	for _, c := range []struct {
		cfg  GenerateConfig
		want string
	}{
		{GenerateConfig{Cases: -1}, "-1 cases"},
		{GenerateConfig{Documents: 65}, "65 documents"},
		{GenerateConfig{Tokens: 63}, "63 tokens"},
		{GenerateConfig{Cases: 2, TwoFacts: 3}, "3 of 2"},
		{GenerateConfig{Documents: 1, TwoFacts: 1}, "need two documents"},
		{GenerateConfig{Tokens: 64}, "ask for longer"},
	} {
		if _, err := Generate(tok, c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
}

func TestReadCases(t *testing.T) {
	const ok = `{"documents":["a","b"],"question":"q","answers":["x"]}`
	got, err := ReadCases(strings.NewReader("\n" + ok + "\n  \n" + ok))
	if err != nil || len(got) != 2 || got[1].Documents[1] != "b" {
		t.Fatalf("%v, %v", got, err)
	}
	for _, c := range []struct{ in, want string }{
		{"", "no case"},
		{"\n\n", "no case"},
		{ok + "\n{", "line 2"},
		{"\n" + ok + ok, "line 2: more than one"},
		{`{"documents":[],"question":"q","answers":["x"]}`, "line 1: \"documents\" is empty"},
		{`{"documents":["a"," "],"question":"q","answers":["x"]}`, "document 1 is empty"},
		{`{"documents":["a"],"question":" ","answers":["x"]}`, "\"question\""},
		{`{"documents":["a"],"question":"q","answers":[]}`, "\"answers\""},
		{`{"documents":["a"],"question":"q","answers":["!"]}`, "no letter"},
		{`{"documents":["a"],"question":"q","answer":["x"]}`, "unknown field"},
		{`{"documents":["a"],"question":"q","answers":["x"],"evidence":[{"document":1,"start":0,"stop":1}]}`, "document 1 of 1"},
		{`{"documents":["a"],"question":"q","answers":["x"],"evidence":[{"document":0,"start":0,"stop":2}]}`, "bytes 0 to 2"},
	} {
		if _, err := ReadCases(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.in, err, c.want)
		}
	}
}

func FuzzReadCases(f *testing.F) {
	f.Add(`{"documents":["a","b"],"question":"q","answers":["x"],"evidence":[{"document":0,"start":0,"stop":1}]}`)
	f.Add("\n{}\n")
	f.Fuzz(func(t *testing.T, in string) {
		cases, err := ReadCases(strings.NewReader(in))
		if err != nil {
			return
		}
		for _, c := range cases {
			if err := c.check(); err != nil {
				t.Error(err)
			}
			b, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			again, err := ReadCases(bytes.NewReader(b))
			if err != nil {
				t.Fatalf("%s: %v", b, err)
			}
			if back, err := json.Marshal(again[0]); err != nil || !bytes.Equal(back, b) {
				t.Errorf("%s came back as %s, %v", b, back, err)
			}
		}
	})
}

func TestRead(t *testing.T) {
	got, err := Read(strings.NewReader("{\"case\":1,\"selector\":\"qsnap\",\"ratio\":4}\n\n{\"case\":2}\n{\"case\":3"))
	if err != nil || len(got) != 2 || got[0].Method != "qsnap" || got[1].Case != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Read(strings.NewReader("{}\nx\n{}\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}

func TestSpansAndRecall(t *testing.T) {
	if got := spans([]int{0, 1, 2, 5, 7, 8}); !reflect.DeepEqual(got, [][2]int{{0, 3}, {5, 6}, {7, 9}}) {
		t.Errorf("%v", got)
	}
	all, have := recall([][]bool{{false, true, true}, {true}}, [][][2]int{{{0, 2}}, {}})
	if all != 3 || have != 1 {
		t.Errorf("%d of %d", have, all)
	}
}
