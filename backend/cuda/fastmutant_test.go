package cuda_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"samebit/backend/backendtest"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
	"samebit/backend/cuda/kernels"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// fastTrials are, by kernel, what sees a wrong instruction of the fast mode; the
// products are those of bfloat16 weights.
func fastTrials(t *testing.T) map[string][]func(dev *cuda.Device, t testing.TB) error {
	by := map[string][]func(*cuda.Device, testing.TB) error{}
	for _, z := range []struct {
		kernel          string
		rows, n, k, gap int
	}{{"fastSmall_BF16", 43, 70, 140, 0}, {"fastSmall_BF16", 43, 70, 20, 3}, {"fastLarge_BF16", 139, 150, 140, 0}, {"fastLarge_BF16", 75, 75, 20, 3}, {"fastSmall_BF16", 43, 70, 140, 3}, {"fastLarge_BF16", 139, 150, 140, 3}} {
		rnd := tensortest.NewRand(backendtest.Seed, "mutants", z.kernel)
		raw, err := tensor.New(tensor.Bytes(backendtest.Weights(rnd, tensortest.Ordinary, tensor.BF16, z.n*z.k)), 0, tensor.BF16, z.n, z.k)
		if err != nil {
			t.Fatal(err)
		}
		c := newLinearCase(rnd.F32(tensortest.Ordinary, z.rows*z.k), values(t, raw), z.rows, z.n, z.k)
		by[z.kernel] = append(by[z.kernel], func(dev *cuda.Device, t testing.TB) error {
			got, err := c.run(newRig(t, dev), raw, z.gap)
			if err != nil {
				return err
			}
			return c.check(got, tensor.BF16)
		})
	}
	for _, z := range []struct {
		kernel string
		c      *attendCase
	}{
		{"fastTile64", newAttendCase(61, 35, 4, 2, 40, 0)}, {"fastTile64", newAttendCase(200, 20, 6, 1, 16, 5)}, {"fastTile64", newAttendCase(70, 40, 5, 1, 64, 70)}, {"fastTile64", newAttendCase(70, 20, 2, 1, 64, 0).louder(50)},
		{"fastTile128", newAttendCase(61, 35, 4, 2, 72, 0)}, {"fastTile128", newAttendCase(130, 20, 6, 1, 128, 5)}, {"fastTile128", newAttendCase(70, 40, 5, 1, 120, 70)}, {"fastTile128", newAttendCase(70, 20, 2, 1, 128, 0).louder(50)},
	} {
		by[z.kernel] = append(by[z.kernel], func(dev *cuda.Device, t testing.TB) error {
			return z.c.check(z.c.run(newRig(t, dev)), true)
		})
	}
	return by
}

// leastFast is the share of mutants, in percent, that must not pass.
const leastFast = 75

// TestFastMutants does for the fast mode what TestMutants does for exact kernels:
// it changes one instruction at a time and demands that the tolerances see it. What
// only bits show, another rounding or the last bit of a constant, is left out.
func TestFastMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	by := fastTrials(t)
	var all []emu.Mutant
	from := map[string]string{} // text of a kernel's module
	for _, m := range []string{"fast_BF16", "fastattention"} {
		text := string(kernels.PTX(m))
		for x := range emu.Mutants(text) {
			if !slices.ContainsFunc([]string{"rounded to", "parted into", "last bit"}, func(s string) bool { return strings.Contains(x.What, s) }) {
				all = append(all, x)
				from[x.Kernel] = text
			}
		}
	}
	rnd := tensortest.NewRand(backendtest.Seed, "fast mutants")
	killed, n := 0, min(max(*mutants/8, 1), len(all))
	for range n {
		m := all[rnd.Intn(len(all))]
		if err := killFast(m, from[m.Kernel], by[m.Kernel]); err != nil {
			killed++
		} else {
			t.Logf("survivor: %s, line %d, %s\n\twas %s\n\tnow %s", m.Kernel, m.Line, m.What, m.Was, m.Now)
		}
	}
	t.Logf("%d of %d mutants killed (%.1f %%), drawn from %d", killed, n, 100*float64(killed)/float64(n), len(all))
	if 100*killed < leastFast*n {
		t.Errorf("%d of %d mutants killed: want %d %%", killed, n, leastFast)
	}
}

// killFast runs the trials on a device with a mutant until one sees it.
func killFast(m emu.Mutant, from string, trials []func(*cuda.Device, testing.TB) error) error {
	drv := &changed{Driver: emu.New(emu.Config{Workers: 2, Steps: 1 << 22, Capability: 80}), from: from, kernel: m.Kernel, form: m.Alone()}
	dev, err := cuda.New(cuda.Config{Driver: drv, Fast: true})
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, run := range trials {
		s := &sink{}
		done := make(chan error)
		go func() {
			var err error
			defer func() {
				s.cleanup()
				if s.failed && err == nil {
					err = fmt.Errorf("failed")
				}
				done <- err
			}()
			err = run(dev, s)
		}()
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}
