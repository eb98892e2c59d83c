package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pairFile = `{"pair":1,"machine":{},"runs":[
{"model":"m","round":1,"threads":2,"engine":"limits","results":[{"test":"read","rate":30},{"test":"fma","rate":200}]},
{"model":"m","round":1,"threads":2,"engine":"samebit","kv":"f32","results":[
 {"test":"load","rate":1},{"test":"decode","n":8,"depth":2048,"nseq":1,"rate":10,"bytes":2000000000},{"test":"decode","n":8,"depth":0,"nseq":1,"rate":20,"bytes":1000000000}]},
{"model":"m","round":1,"threads":2,"engine":"llama.cpp","results":[
 {"test":"decode","n":8,"depth":0,"nseq":1,"setting":"default","rate":9},{"test":"decode","n":8,"depth":0,"nseq":1,"setting":"fa0-f16","rate":11},
 {"test":"decode","n":8,"depth":0,"nseq":1,"setting":"fa0-f32","rate":99}]},
{"model":"m","round":2,"threads":2,"engine":"llama.cpp","results":[
 {"test":"decode","n":8,"depth":0,"nseq":1,"setting":"fa0-f16","rate":12},{"test":"decode","n":8,"depth":0,"nseq":1,"setting":"default","rate":10}]},
{"model":"m","round":2,"threads":2,"engine":"samebit","kv":"bf16","results":[{"test":"decode","n":8,"depth":2048,"nseq":1,"rate":15}]},
{"model":"m","round":2,"threads":2,"engine":"samebit","kv":"f32","results":[{"test":"batch","n":8,"depth":64,"nseq":4,"rate":40,"bytes":1200000000,"flops":4000000000},{"test":"batch","n":8,"depth":64,"nseq":16,"rate":90,"bytes":1600000000,"flops":16000000000}]},
{"model":"m","round":1,"threads":1,"engine":"samebit","kv":"f32","results":[{"test":"decode","n":8,"depth":0,"nseq":1,"rate":5,"bytes":1000000000}]}]}`

func TestCurves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.json")
	if err := os.WriteFile(path, []byte(pairFile), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := OpenPairs(path)
	if err != nil {
		t.Fatal(err)
	}
	one := func(x int, rates ...float64) CurvePoint { return CurvePoint{x, rates} }
	want := []Curve{
		{"samebit", []CurvePoint{one(0, 20), one(2048, 10)}},
		{"samebit, bf16 cache", []CurvePoint{one(2048, 15)}},
		{"llama.cpp, default", []CurvePoint{one(0, 9, 10)}},
		{"llama.cpp, best setting", []CurvePoint{one(0, 11, 12)}}, // what ran once is no median
		{"bound by read bandwidth and FMA peak", []CurvePoint{one(0, 30), one(2048, 15)}},
	}
	if d := cmp.Diff(want, p.Curves("m", 2, "decode")); d != "" {
		t.Errorf("over depth (-want +got):\n%s", d)
	}
	want = []Curve{
		{"samebit", []CurvePoint{one(4, 40), one(16, 90)}},
		{"bound by read bandwidth and FMA peak", []CurvePoint{one(4, 100), one(16, 200)}}, // the one, and the other
	}
	if d := cmp.Diff(want, p.Curves("m", 2, "batch")); d != "" {
		t.Errorf("over sequences (-want +got):\n%s", d)
	}
	want = []Curve{{"samebit", []CurvePoint{one(0, 5)}}} // without the other runs' read bandwidth
	if d := cmp.Diff(want, p.Curves("m", 1, "decode")); d != "" {
		t.Errorf("one thread (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]int{2, 1}, p.Threads("m")); d != "" {
		t.Errorf("threads (-want +got):\n%s", d)
	}
	if got := p.Curves("other", 2, "decode"); got != nil {
		t.Errorf("a model that is not there: %v", got)
	}
	for text, want := range map[string]string{"{}": "is not a file", "x": "is not a file", `{"pair":2}`: "has format 2"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenPairs(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}
