package cpu_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
	"samebit/tensor"
)

func open(t testing.TB, cfg cpu.Config) *cpu.Device {
	t.Helper()
	d, err := cpu.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestCPU(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backend.Device { return open(t, cpu.Config{Threads: 2}) })
}

// soloDevice gives solo streams to whoever asks for streams.
type soloDevice struct{ *cpu.Device }

func (d soloDevice) NewStream() (backend.Stream, error) { return d.NewSoloStream() }

// A stream that keeps to its caller's processor gives the same bits, beside others too.
func TestSoloStreams(t *testing.T) {
	dev, plans := soloDevice{open(t, cpu.Config{Threads: 3})}, 2
	if testing.Short() {
		plans = 1
	}
	backendtest.RunCases(t, dev, backendtest.CasesOf(dev))
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() { backendtest.Laws(t, dev, 2000+10*g, plans) })
	}
	wg.Wait()
}

// some are the cases to try on kernels. The race detector slows those written in Go
// many times, and looks at how workers part an op, which is alike in all: with it, all
// but the fastest, on which the other tests run, take every fourth case.
func some(impl string, cases []backendtest.Case) []backendtest.Case {
	impls := cpu.Impls()
	if !raceEnabled || impl == impls[len(impls)-1] {
		return cases
	}
	var l []backendtest.Case
	for i := 0; i < len(cases); i += 4 {
		l = append(l, cases[i])
	}
	return l
}

// Kernels and threads must not change a bit: the whole table of ops runs on all
// of them.
func TestImplsAndThreads(t *testing.T) {
	impls, plans := cpu.Impls(), 2
	if testing.Short() {
		plans = 1
	}
	for _, impl := range []string{"generic", "neon", "avx2", "avx512"} {
		t.Run(impl, func(t *testing.T) {
			backendtest.Require(t, impl, slices.Contains(impls, impl))
			for _, threads := range []int{1, 2, 3, 8} {
				if testing.Short() && threads != 3 {
					continue
				}
				t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
					dev := open(t, cpu.Config{Threads: threads, Impl: impl})
					backendtest.RunCases(t, dev, some(impl, backendtest.CasesOf(dev)))
					backendtest.Laws(t, dev, 100*threads, plans)
				})
			}
		})
	}
}

// Streams of one device may run at the same time.
func TestConcurrentStreams(t *testing.T) {
	dev, plans := open(t, cpu.Config{Threads: 3}), 2
	if testing.Short() {
		plans = 1
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() { backendtest.Laws(t, dev, 1000+10*g, plans) })
	}
	wg.Wait()
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []cpu.Config{{Threads: -1}, {Threads: 1 << 20}, {Impl: "mmx"}} {
		if d, err := cpu.New(cfg); err == nil {
			d.Close()
			t.Errorf("%+v is accepted", cfg)
		}
	}
	if _, err := cpu.New(cpu.Config{Impl: "mmx"}); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("unknown kernels give %v, want ErrUnsupported", err)
	}
}

func TestNoMemory(t *testing.T) {
	if _, err := open(t, cpu.Config{}).Alloc(math.MaxInt >> 1); !errors.Is(err, backend.ErrNoMemory) {
		t.Errorf("Alloc of half the address space gives %v, want ErrNoMemory", err)
	}
}

// A weight that was given back fails instead of reading unmapped memory.
func TestUnpacked(t *testing.T) {
	d := open(t, cpu.Config{Threads: 1})
	x, _ := tensor.FromF32(make([]float32, 4), 2, 2)
	w, err := d.Pack(x, backend.UseLinear)
	if err != nil {
		t.Fatal(err)
	}
	d.Unpack(w)
	d.Unpack(w)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	s.Linear(x, x, w)
	if s.Sync() == nil {
		t.Error("a weight is usable after Unpack")
	}
}

// A plan makes room once; a decoded token allocates nothing after that.
func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, threads := range []int{1, 3} {
		for _, op := range backendtest.Decode(t, open(t, cpu.Config{Threads: threads})) {
			op.Run()
			if n := testing.AllocsPerRun(20, op.Run); n != 0 {
				t.Errorf("%s with %d threads allocates %v times", op.Name, threads, n)
			}
			if err := op.Err(); err != nil {
				t.Fatalf("%s: %v", op.Name, err)
			}
		}
	}
}

func TestGoldens(t *testing.T) {
	for _, impl := range cpu.Impls() {
		t.Run(impl, func(t *testing.T) {
			dev := open(t, cpu.Config{Threads: 2, Impl: impl})
			backendtest.Goldens(t, dev, "../../testdata/numerics")
			backendtest.Worked(t, dev)
		})
	}
}
