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
	return slices.Concat(denseCases(), productCases(), weightCases(), rowCases(), attentionCases(), momentCases(), deltaCases(), moeCases(), numberCases())
}

// CasesOf is Cases, and on a device that has pages of BF16 those that use pages again
// on such.
func CasesOf(dev backend.Device) []Case {
	if !dev.Info().BF16Pages {
		return Cases()
	}
	return append(Cases(), bf16PageCases()...)
}

// Run tests a device: every op against package ref, the laws of rows and chunks,
// and what must be refused. open is called once per group of tests and closes
// the device in a cleanup of its t.
func Run(t *testing.T, open func(t *testing.T) backend.Device) {
	t.Run("ops", func(t *testing.T) {
		dev := open(t)
		RunCases(t, dev, CasesOf(dev))
	})
	t.Run("page types", func(t *testing.T) { runPageTypes(t, open(t)) })
	t.Run("meaning", func(t *testing.T) { runMeaning(t, open(t)) })
	t.Run("laws", func(t *testing.T) {
		plans := 70
		if testing.Short() {
			plans = 4
		}
		Laws(t, open(t), 0, plans)
	})
	t.Run("errors", func(t *testing.T) { runErrors(t, open(t)) })
	t.Run("memory", func(t *testing.T) { runMemory(t, open(t)) })
	t.Run("closed", func(t *testing.T) { runClosed(t, open(t)) })
}

// RunCases compares a device with package ref, case by case, in an order drawn
// from Seed. All cases share a stream, so that its scratch memory holds what the
// cases before left, NaN among it.
func RunCases(t *testing.T, dev backend.Device, cases []Case) {
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := tensortest.NewRand(Seed, "order")
	order := slices.Clone(cases)
	for i := len(order) - 1; i > 0; i-- {
		j := r.Intn(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	if testing.Short() {
		order = order[:len(order)/3]
	}
	for i := range order {
		c := &order[i]
		t.Run(c.Op+"/"+c.Name, func(t *testing.T) {
			want, got := runCase(newEnv(t, ref.New()), c), runCase(&Env{T: t, Dev: dev, S: s, shared: true, pad: 3}, c)
			if d := diff(want, got); d != "" {
				t.Errorf("%s %s (%s), seed %d, (-ref +%s):\n%s", c.Op, c.Name, c.Why, Seed, dev.Name(), d)
			}
		})
	}
}

func runCase(e *Env, c *Case) []Result {
	e.T.Helper()
	defer e.close()
	c.Run(e, tensortest.NewRand(Seed, c.Op, c.Name))
	return e.Results()
}

// Play runs a case by itself on a device and returns what it wrote, for those who
// judge the suite, as by mutants.
func (c *Case) Play(t testing.TB, dev backend.Device) []Result {
	t.Helper()
	return runCase(newEnv(t, dev), c)
}

// Differ says where two runs of a case differ, NaN of all kinds being the same;
// "" means nowhere.
func Differ(want, got []Result) string { return diff(want, got) }

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
