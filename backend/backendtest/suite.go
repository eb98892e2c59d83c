package backendtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/ref"
	"samebit/tensor/tensortest"
)

// Seed is that of all random data and plans of the suite.
const Seed = 20260101

// Case is one use of ops. Run makes its operands, always the same from r, and
// calls the ops; the suite compares what the outputs hold afterwards.
type Case struct {
	Op, Name, Why string
	Run           func(e *Env, r *tensortest.Rand)
}

// Cases is the table of all ops.
func Cases() []Case {
	return slices.Concat(denseCases(), weightCases(), rowCases(), attentionCases(), deltaCases(), moeCases(), numberCases())
}

// Run tests a device: every op against package ref, the laws of rows and chunks,
// and what must be refused. open is called once per group of tests and closes
// the device in a cleanup of its t.
func Run(t *testing.T, open func(t *testing.T) backend.Device) {
	t.Run("ops", func(t *testing.T) { RunCases(t, open(t), Cases()) })
	t.Run("laws", func(t *testing.T) { runLaws(t, open(t)) })
	t.Run("errors", func(t *testing.T) { runErrors(t, open(t)) })
	t.Run("memory", func(t *testing.T) { runMemory(t, open(t)) })
	t.Run("closed", func(t *testing.T) { runClosed(t, open(t)) })
}

// RunCases compares a device with package ref, case by case.
func RunCases(t *testing.T, dev backend.Device, cases []Case) {
	for i := range cases {
		c := &cases[i]
		if testing.Short() && i%3 != 0 {
			continue
		}
		t.Run(c.Op+"/"+c.Name, func(t *testing.T) {
			want, got := runCase(t, ref.New(), c), runCase(t, dev, c)
			if d := diff(want, got); d != "" {
				t.Errorf("%s %s (%s), seed %d, (-ref +%s):\n%s", c.Op, c.Name, c.Why, Seed, dev.Name(), d)
			}
		})
	}
}

func runCase(t *testing.T, dev backend.Device, c *Case) []Result {
	t.Helper()
	e := newEnv(t, dev)
	defer e.close()
	c.Run(e, tensortest.NewRand(Seed, c.Op, c.Name))
	return e.Results()
}

// Require skips a test whose feature is missing, but fails it when the
// environment variable SAMEBIT_REQUIRE names the feature in its comma-separated
// list: a machine that must have the feature cannot pass by skipping.
func Require(t *testing.T, feature string, have bool) {
	t.Helper()
	if have {
		return
	}
	if required(os.Getenv("SAMEBIT_REQUIRE"), feature) {
		t.Fatalf("%s is missing here, and SAMEBIT_REQUIRE demands it", feature)
	}
	t.Skipf("%s is missing here", feature)
}

func required(list, feature string) bool {
	for f := range strings.SplitSeq(list, ",") {
		if strings.EqualFold(strings.TrimSpace(f), feature) {
			return true
		}
	}
	return false
}

func name(format string, args ...any) string { return fmt.Sprintf(format, args...) }
