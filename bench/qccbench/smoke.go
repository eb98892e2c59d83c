package qccbench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// SmokeConfig is what [RunSmoke] runs, each length in a process of its own: what a device
// driver does to one says nothing about the next.
type SmokeConfig struct {
	RunID       string
	Device      string
	Threads     int
	Lengths     []int
	CompareFull bool  // time the full cache, too
	LongLengths []int // streamed with bounded memory alone; none: do not
	// Run runs this program with arguments and says what it printed, also to a log, and
	// with what code it ended. It fails if there was no process to wait for.
	Run  func(ctx context.Context, log string, args []string) (stdout []byte, code int, err error)
	Save func(SmokeResult) error // called before the first length and after each; may be nil
}

// SmokeResult is the audit of such a run.
type SmokeResult struct {
	Head
	Device  string     `json:"device"`
	Status  string     `json:"status"` // complete: every length ended with code 0 and a result; partial: not (yet)
	Lengths []SmokeRun `json:"lengths"`
}

// SmokeRun is one length.
type SmokeRun struct {
	Length  int             `json:"length"`
	Args    []string        `json:"args"` // of this program
	Log     string          `json:"log"`  // name of the file, beside the audit
	Ran     bool            `json:"ran"`
	Code    int             `json:"return_code"` // -1: it was killed, could not be started, or did not run yet
	Seconds float64         `json:"seconds"`
	Error   string          `json:"error,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"` // what it measured
}

// RunSmoke runs texts of random weights on a device, one process a length, and goes on
// when one fails. It fails itself if a number is none, an audit cannot be saved or it is
// cancelled; what was done until then is in the result.
func RunSmoke(ctx context.Context, c SmokeConfig) (SmokeResult, error) {
	r := SmokeResult{Head: head("gpu_smoke", c.RunID, nil), Device: c.Device, Status: "partial", Lengths: []SmokeRun{}}
	r.Synthetic, r.MatchedFullKV = true, c.CompareFull && len(c.LongLengths) == 0
	r.QCCOnly = !c.CompareFull
	all := slices.Concat(c.Lengths, c.LongLengths)
	if len(all) == 0 || slices.Min(all) < 2 || slices.Max(all) > 1<<24 {
		return r, fmt.Errorf("qccbench: texts of %v tokens: want at least one length, of 2 to 2^24", all)
	}
	for i, n := range all {
		args := []string{"bench", "qcc-long-context", "--run"}
		log := "long-" + strconv.Itoa(n) + ".log"
		if i < len(c.Lengths) {
			log = "length-" + strconv.Itoa(n) + ".log"
			if c.CompareFull {
				args = []string{"bench", "qcc-decode"}
			}
		}
		if slices.ContainsFunc(r.Lengths, func(x SmokeRun) bool { return x.Log == log }) {
			return r, fmt.Errorf("qccbench: length %d comes twice: want each once", n)
		}
		args = append(args, "--length", strconv.Itoa(n), "--device", c.Device, "--threads", strconv.Itoa(c.Threads), "--run-id", c.RunID)
		r.Lengths = append(r.Lengths, SmokeRun{Length: n, Args: args, Log: log, Code: -1})
	}
	save := func() error {
		if c.Save == nil {
			return nil
		}
		return c.Save(r)
	}
	if err := save(); err != nil {
		return r, err
	}
	good := 0
	for i := range r.Lengths {
		x := &r.Lengths[i]
		begin := time.Now()
		out, code, err := c.Run(ctx, x.Log, x.Args)
		x.Ran, x.Code, x.Seconds = err == nil, code, time.Since(begin).Seconds()
		switch out = bytes.TrimSpace(out); {
		case err != nil:
			x.Error = err.Error()
		case code != 0:
			x.Error = "it failed: see the log"
		case !json.Valid(out):
			x.Error = "it printed no result: see the log"
		default:
			x.Result = out
			good++
		}
		if good == len(r.Lengths) {
			r.Status = "complete"
		}
		if err := save(); err != nil {
			return r, err
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
	}
	return r, nil
}
