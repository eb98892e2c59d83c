package cuda_test

import (
	"cmp"
	"errors"
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/driver"
	"samebit/backend/cuda/emu"
	"samebit/backend/cuda/kernels"
	"samebit/tensor/tensortest"
)

var (
	mutants     = flag.Int("mutants", 320, "how many changed kernels TestMutants runs")
	mutantSeed  = flag.Uint64("mutantseed", backendtest.Seed, "which ones")
	mutantsOnly = flag.String("mutantsof", "", "draw them of modules whose names begin so")
)

// trial is a case of the suite or a form: it runs on a device and gives results.
type trial struct {
	name string
	run  func(t testing.TB, dev backend.Device) []backendtest.Result
	want []backendtest.Result
	cost time.Duration
	ran  map[string]emu.Ran
}

// play runs a trial on a device that changes nothing, as watch sees it.
func (x *trial) play(t testing.TB, dev backend.Device, watch *emu.Device) {
	t.Helper()
	watch.ResetCounts()
	start := time.Now()
	x.want = x.run(t, dev)
	x.cost = time.Since(start)
	x.ran = watch.Ran()
}

// least is the share of mutants, in percent, that tests must see of kernels that are not
// of archives.
const least = 95

// mutantSteps ends mutants that run for ever; what is right takes less.
const mutantSteps = 1 << 22

// TestMutants changes one instruction of a kernel at a time and demands that the
// suite or the forms see it. A mutant that survives either computes the same for
// every input or shows what no test looks at (docs/cuda.md 5).
func TestMutants(t *testing.T) {
	sample, least := *mutants, least
	if testing.Short() { // few, by forms alone
		sample, least = min(sample, 12), 50
	}
	modules := slices.DeleteFunc(kernels.Modules(), isArchive)
	cases := append(backendtest.Cases(), backendtest.GradCases()...)
	killMutants(t, modules, trials(t, testing.Short(), cases, forms()), sample, least)
}

// held is what a driver's device has not got back.
func held(drv *emu.Driver) int {
	ctx, err := drv.Open(0)
	if err != nil {
		return 1
	}
	defer ctx.Close()
	return ctx.(*emu.Device).Held()
}

func isArchive(module string) bool { return strings.HasPrefix(module, "archive") }

// killMutants draws mutants of modules and demands that so many percent are seen.
func killMutants(t *testing.T, modules []string, byKernel map[string][]*trial, sample, least int) {
	t.Helper()
	var all []emu.Mutant
	for _, m := range modules {
		if !strings.HasPrefix(m, *mutantsOnly) {
			continue
		}
		for x := range emu.Mutants(string(kernels.PTX(m))) {
			if !testing.Short() || byKernel[x.Kernel] != nil {
				all = append(all, x)
			}
		}
	}
	rnd := tensortest.NewRand(*mutantSeed, "mutants")
	sample = min(sample, len(all))
	for i := range sample {
		j := i + rnd.Intn(len(all)-i)
		all[i], all[j] = all[j], all[i]
	}
	seen := make([]string, sample) // by which trial
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var drv *emu.Driver
			for i := int(next.Add(1)) - 1; i < sample; i = int(next.Add(1)) - 1 {
				if drv == nil || held(drv) > 0 { // compiled kernels are used again
					drv = emu.New(emu.Config{Workers: 1, Steps: mutantSteps})
				}
				m := all[i]
				reached := reaching(byKernel[m.Kernel], m)
				if seen[i] = kill(drv, m, reached); seen[i] == "" {
					name, _ := moduleOf(m.Kernel)
					t.Logf("survivor %d: %s, line %d of %s.ptx, %s, in %d of %d trials\n\twas %s\n\tnow %s", i+1, m.Kernel, m.Line, name, m.What, len(reached), len(byKernel[m.Kernel]), m.Was, strings.TrimSpace(m.Now))
				}
			}
		})
	}
	wg.Wait()
	killed := 0
	for i := range sample {
		if seen[i] != "" {
			killed++
		}
	}
	t.Logf("%d of %d mutants killed (%.1f %%), drawn from %d", killed, sample, 100*float64(killed)/float64(max(sample, 1)), len(all))
	if 100*killed < least*sample {
		t.Errorf("%d of %d mutants killed: want %d %%", killed, sample, least)
	}
}

// reaching are the trials that come to the changed instruction: the others give what
// they gave before.
func reaching(trials []*trial, m emu.Mutant) (l []*trial) {
	for _, x := range trials {
		if x.ran[m.Kernel].Line(m.Line) {
			l = append(l, x)
		}
	}
	return l
}

// trials lists, by kernel, what runs it, the cheapest first. Few are some forms.
func trials(t *testing.T, few bool, cases []backendtest.Case, list []form) map[string][]*trial {
	t.Helper()
	var all []*trial
	if few {
		cases = nil
	}
	for i := range cases {
		c := &cases[i]
		all = append(all, &trial{name: c.Op + "/" + c.Name, run: c.Play})
	}
	for i := range list {
		if few && (list[i].long || i%9 > 0) {
			continue
		}
		x := played[list[i].name]
		if x == nil {
			x = &trial{name: list[i].name, run: list[i].results}
		}
		all = append(all, x)
	}
	drv := emu.New(emu.Config{Workers: 2, Steps: mutantSteps})
	ctx, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	watch := ctx.(*emu.Device)
	dev, err := cuda.New(cuda.Config{Driver: drv})
	if err != nil {
		t.Fatal(err)
	}
	by := map[string][]*trial{}
	for _, x := range all {
		if x.ran == nil { // TestEmu and TestForms compare what it gives with package ref
			x.play(t, dev, watch)
		}
		for k := range x.ran {
			by[k] = append(by[k], x)
		}
	}
	for _, l := range by {
		slices.SortFunc(l, func(a, b *trial) int { return cmp.Compare(a.cost, b.cost) })
	}
	return by
}

// changed is a driver that has one kernel of a module in another form.
type changed struct {
	driver.Driver
	from         string // text of the module
	kernel, form string
}

type changedContext struct {
	driver.Context
	c          *changed
	from, form driver.Module
}

func (c *changed) Open(i int) (driver.Context, error) {
	ctx, err := c.Driver.Open(i)
	return &changedContext{Context: ctx, c: c}, err
}

func (c *changedContext) LoadModule(name string, ptx []byte) (driver.Module, error) {
	m, err := c.Context.LoadModule(name, ptx)
	if err != nil || string(ptx) != c.c.from {
		return m, err
	}
	c.from = m
	c.form, err = c.Context.LoadModule(name, []byte(c.c.form))
	return m, err
}

func (c *changedContext) Function(m driver.Module, name string) (driver.Function, error) {
	if m == c.from && name == c.c.kernel {
		m = c.form
	}
	return c.Context.Function(m, name)
}

func (c *changedContext) UnloadModule(m driver.Module) error {
	if m != c.from || c.form == 0 {
		return c.Context.UnloadModule(m)
	}
	return errors.Join(c.Context.UnloadModule(c.form), c.Context.UnloadModule(m))
}

func (c *changedContext) Forget(s driver.Stream, p driver.Ptr, bytes int) error {
	return c.Context.(driver.Forgetter).Forget(s, p, bytes)
}

// moduleOf is the text of the module that has a kernel.
func moduleOf(kernel string) (name, text string) {
	for _, name := range kernels.Modules() {
		if text := string(kernels.PTX(name)); strings.Contains(text, ".entry "+kernel+"(") {
			return name, text
		}
	}
	return "", ""
}

// kill runs the trials on a device with a mutant until one sees it, and says
// which; "" means that none did. Nothing of the device stays in the driver.
func kill(drv *emu.Driver, m emu.Mutant, trials []*trial) string {
	_, from := moduleOf(m.Kernel)
	dev, err := cuda.New(cuda.Config{Driver: &changed{Driver: drv, from: from, kernel: m.Kernel, form: m.Alone()}})
	if err != nil {
		return "opening the device"
	}
	defer dev.Close()
	for _, x := range trials {
		s := &sink{}
		done := make(chan []backendtest.Result)
		go func() {
			var got []backendtest.Result
			defer func() { s.cleanup(); done <- got }()
			got = x.run(s, dev)
		}()
		if got := <-done; s.failed || backendtest.Differ(x.want, got) != "" {
			return x.name
		}
	}
	return ""
}

// sink is a test that notes failures and goes on.
type sink struct {
	testing.TB
	failed bool
	after  []func()
}

func (s *sink) cleanup() {
	for _, f := range slices.Backward(s.after) {
		f()
	}
}
func (s *sink) Helper()               {}
func (s *sink) Name() string          { return "mutant" }
func (s *sink) Cleanup(f func())      { s.after = append(s.after, f) }
func (s *sink) Log(...any)            {}
func (s *sink) Logf(string, ...any)   {}
func (s *sink) Error(...any)          { s.failed = true }
func (s *sink) Errorf(string, ...any) { s.failed = true }
func (s *sink) Fatal(...any)          { s.failed = true; runtime.Goexit() }
func (s *sink) Fatalf(string, ...any) { s.failed = true; runtime.Goexit() }
