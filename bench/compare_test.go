package bench

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sample is a run of one measurement of n tokens per repetition.
func sample(test string, n int, cpu float64, wall ...float64) Result {
	r := Result{Model: "m.gguf", Test: test, N: n, Threads: 2, Kernels: "avx2", Unit: "tokens/s", Wall: wall}
	for _, w := range wall {
		r.CPU = append(r.CPU, cpu*w)
	}
	r.finish(float64(n))
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12*math.Abs(b) }

func TestCompare(t *testing.T) {
	a := &Run{Results: []Result{sample("prefill", 128, 1, 2, 2, 2), sample("decode", 16, 2, 1.1, 1, 0.9, 1, 1), sample("batch", 4, 1, 1)}}
	b := &Run{Results: []Result{sample("decode", 16, 1, 0.5, 0.6, 0.5, 0.4, 0.5), sample("prefill", 128, 1, 4), sample("decode", 32, 1, 1)}}
	both, onlyA, onlyB, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(both) != 2 || both[0].What != "m.gguf prefill n 128 threads 2" || both[1].What != "m.gguf decode n 16 threads 2" {
		t.Fatalf("both have %+v", both)
	}
	if d := cmp.Diff([]string{"m.gguf batch n 4 threads 2", "m.gguf decode n 32 threads 2"}, append(onlyA, onlyB...)); d != "" {
		t.Errorf("what one run lacks (-want +got):\n%s", d)
	}
	p, d := both[0], both[1]
	if p.A != 64 || p.B != 32 || p.Wall != (Interval{Value: 0.5}) || p.N != [2]int{3, 1} {
		t.Errorf("half as fast, one repetition: %+v", p)
	}
	// B decodes in half the time on half the processors: 2 by the clock, 4 by processor
	// seconds; medians of draws lie within the fastest and the slowest repetitions.
	if !near(d.Wall.Value, 2) || !near(d.CPU.Value, 4) || d.A != 16 || d.B != 32 {
		t.Errorf("twice as fast: %+v", d)
	}
	for _, i := range []Interval{d.Wall, {d.CPU.Value / 2, d.CPU.Low / 2, d.CPU.High / 2}} {
		if !(0.9/0.6 <= i.Low && i.Low < 2 && 2 < i.High && i.High <= 1.1/0.4) {
			t.Errorf("interval %v", i)
		}
	}
	again, _, _, _ := Compare(a, b)
	if d := cmp.Diff(both, again); d != "" {
		t.Errorf("the same runs give another interval:\n%s", d)
	}
	// Against itself: no difference, and an interval around 1.
	self, _, _, err := Compare(a, a)
	if err != nil || len(self) != 3 || self[1].Wall.Value != 1 || !(self[1].Wall.Low <= 1 && 1 <= self[1].Wall.High) {
		t.Errorf("a run beside itself: %+v, %v", self, err)
	}
	// Loads of files of different sizes are compared by their rates.
	x, y := sample("load", 1, 1, 2), sample("load", 1, 1, 2)
	x.finish(4)
	y.finish(12)
	load, _, _, err := Compare(&Run{Results: []Result{x}}, &Run{Results: []Result{y}})
	if err != nil || !near(load[0].Wall.Value, 3) {
		t.Errorf("three times the bytes in the same time: %+v, %v", load, err)
	}
}

func TestCompareRefuses(t *testing.T) {
	x, y := sample("decode", 16, 1, 1), sample("decode", 17, 1, 1)
	other := x
	other.Unit = "GB/s"
	for _, c := range []struct {
		a, b []Result
		want string
	}{
		{[]Result{x}, []Result{y}, `no measurement in common: one has m.gguf decode n 16 threads 2, the other m.gguf decode n 17`},
		{[]Result{x, x}, []Result{x}, `"m.gguf decode n 16 threads 2" comes twice`},
		{[]Result{x}, []Result{y, x, y}, `"m.gguf decode n 17 threads 2" comes twice`},
		{[]Result{x}, []Result{other}, "is in tokens/s and in GB/s"},
		{[]Result{x}, nil, "a run without measurements"},
		{nil, []Result{x}, "a run without measurements"},
		{[]Result{x}, []Result{{Test: "decode", Unit: "tokens/s"}}, "measurement 1: decode: 0 repetitions"},
	} {
		if _, _, _, err := Compare(&Run{Results: c.a}, &Run{Results: c.b}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestRunFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.json")
	run := &Run{Origin: Origin{Format: 1, Version: "v1", OS: "linux", Arch: "amd64", Processor: "P <9>", Usable: 2, Args: []string{"bench", "-r", "3"}, Start: time.Unix(1700000000, 0).UTC()},
		Results: []Result{sample("prefill", 128, 1, 2, 3), sample("decode", 16, 2, 1)}}
	for range 2 { // also in the place of another
		if err := run.Save(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := OpenRun(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(run, got); d != "" {
		t.Errorf("a run comes back otherwise (-saved +read):\n%s", d)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := string(whole[:bytes.IndexByte(whole, '\n')+1])
	for _, c := range []struct{ text, want string }{
		{"", "no head"},
		{"{}\n", "no head"},
		{string(whole[len(head):]), "no head"},
		{"tokens/s 12\n", "not a file that samebit bench --json FILE writes: line 1: "},
		{strings.Replace(head, `"bench":1`, `"bench":2`, 1), "format 2, this program reads 1"},
		{head, "no measurements"},
		{head + "[]\n", "measurement 1: "},
		{head + "{}\n", "measurement 1: a measurement without a test"},
		{head + `{"test":"decode","unit":"tokens/s","median":1,"wall":[],"cpu":[]}` + "\n", "measurement 1: decode: 0 repetitions"},
		{head + `{"test":"decode","unit":"tokens/s","median":1,"wall":[1],"cpu":[1,2]}` + "\n", "1 repetitions by the clock and 2 by the processor"},
		{head + `{"test":"decode","unit":"tokens/s","median":0,"wall":[1],"cpu":[1]}` + "\n", "a median of 0 tokens/s"},
		{head + `{"test":"decode","unit":"tokens/s","median":1,"wall":[1,-2],"cpu":[1,1]}` + "\n", "repetition 2 took -2 s"},
	} {
		if _, err := ReadRun(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60q: error %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := OpenRun(path + "x"); err == nil || !strings.Contains(err.Error(), "run.jsonx") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := run.Save(filepath.Join(path, "run.json")); err == nil {
		t.Error("saved in a file instead of a folder")
	}
}
