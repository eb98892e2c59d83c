package qccbench

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSmoke(t *testing.T) {
	var logs []string
	var saved []string
	c := SmokeConfig{RunID: "r", Device: "cuda:7", Threads: 3, Lengths: []int{64, 96, 128}, LongLengths: []int{128, 4096},
		Save: func(r SmokeResult) error {
			n := 0
			for _, x := range r.Lengths {
				if x.Ran {
					n++
				}
			}
			saved = append(saved, r.Status+strings.Repeat(".", n))
			return nil
		}}
	fails := map[string]bool{}
	c.Run = func(_ context.Context, log string, args []string) ([]byte, int, error) {
		logs = append(logs, log+": "+strings.Join(args, " "))
		switch {
		case !fails[log]:
			return []byte("{\"length\":1}\n"), 0, nil
		case log == "length-64.log":
			return nil, 2, nil
		case log == "length-96.log":
			return nil, -1, errors.New("no program")
		}
		return []byte("no result"), 0, nil
	}
	r, err := RunSmoke(t.Context(), c)
	if err != nil || r.Status != "complete" || len(r.Lengths) != 5 || !r.Synthetic || !r.QCCOnly || r.MatchedFullKV || string(r.Lengths[4].Result) != `{"length":1}` {
		t.Errorf("%+v, %v", r, err)
	}
	if logs[0] != "length-64.log: bench qcc-long-context --run --length 64 --device cuda:7 --threads 3 --run-id r" || !strings.HasPrefix(logs[3], "long-128.log: bench qcc-long-context") {
		t.Errorf("%q", logs)
	}
	if want := []string{"partial", "partial.", "partial..", "partial...", "partial....", "complete....."}; !slices.Equal(saved, want) {
		t.Errorf("saved %q, want %q", saved, want)
	}
	// What fails is told and stops nothing.
	fails, c.CompareFull, logs = map[string]bool{"length-64.log": true, "length-96.log": true, "length-128.log": true}, true, nil
	r, err = RunSmoke(t.Context(), c)
	if err != nil || r.Status != "partial" || len(logs) != 5 || r.Lengths[0].Code != 2 || r.Lengths[1].Code != -1 || r.Lengths[1].Ran || r.Lengths[1].Error != "no program" || r.Lengths[2].Result != nil || r.Lengths[2].Error == "" || r.Lengths[3].Result == nil || r.QCCOnly {
		t.Errorf("%+v, %v", r, err)
	}
	if !strings.HasPrefix(logs[0], "length-64.log: bench qcc-decode") || !strings.HasPrefix(logs[4], "long-4096.log: bench qcc-long-context --run") {
		t.Errorf("%q", logs)
	}
	for what, set := range map[string]func(c *SmokeConfig){
		"want at least one length": func(c *SmokeConfig) { c.Lengths, c.LongLengths = nil, nil }, "of 2 to 2^24": func(c *SmokeConfig) { c.LongLengths = []int{1} },
		"want each once": func(c *SmokeConfig) { c.Lengths = []int{64, 64} }, "disk full": func(c *SmokeConfig) { c.Save = func(SmokeResult) error { return errors.New("disk full") } },
	} {
		bad := c
		set(&bad)
		if _, err := RunSmoke(t.Context(), bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := RunSmoke(ctx, c); !errors.Is(err, context.Canceled) || r.Status != "partial" || r.Lengths[1].Code != -1 {
		t.Errorf("cancelled: %+v, %v", r, err)
	}
}
