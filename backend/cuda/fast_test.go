package cuda_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"samebit/backend"
	"samebit/backend/backendtest"
	"samebit/backend/cpu"
	"samebit/backend/cuda"
	"samebit/backend/cuda/emu"
	"samebit/backend/cuda/kernels"
	"samebit/backend/ref"
	"samebit/nn"
	"samebit/state"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// watchedAt is a device with tensor cores that add in one of the ways, and its
// emulator.
func watchedAt(t testing.TB, sums emu.Sums, fast bool) (*cuda.Device, *emu.Device) {
	t.Helper()
	drv := emu.New(emu.Config{Capability: 80, Sums: sums})
	d, err := cuda.New(cuda.Config{Driver: drv, Name: "cuda:emu", Fast: fast})
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), ctx.Close()); err != nil {
			t.Error(err)
		}
	})
	return d, ctx.(*emu.Device)
}

func TestFastText(t *testing.T) {
	l := kernels.Fast()
	if len(l) < 13 {
		t.Fatalf("only %d modules: %v", len(l), l)
	}
	for _, m := range l {
		if err := emu.CheckFast(string(kernels.PTX(m))); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		if emu.Check(string(kernels.PTX(m))) == nil {
			t.Errorf("%s passes as exact", m)
		}
	}
	for _, m := range kernels.Modules() {
		if kernels.IsFast(m) {
			t.Errorf("%s is among the exact modules", m)
		}
	}
}

// toBF16 rounds to bfloat16, to nearest and ties to even, in another way than the
// kernels: by the width of the last bit that is kept.
func toBF16(v float32) float64 {
	if v == 0 {
		return 0
	}
	_, e := math.Frexp(float64(v)) // |v| < 2^e: the last of 8 bits is 2^(e-8)
	q := math.Ldexp(1, max(e-8, -133))
	return math.RoundToEven(float64(v)/q) * q
}

// linearCase is a product of random operands: in float64 of what the tensor cores
// see, of the operands as they are, and the sizes Σ|x·w| of both.
type linearCase struct {
	rows, n, k         int
	x                  []float32
	seen, exact        []float64
	seenSize, exactSum []float64
}

func newLinearCase(x, w []float32, rows, n, k int) *linearCase {
	c := &linearCase{rows: rows, n: n, k: k, x: x}
	for r := range rows {
		for o := range n {
			var seen, exact, ss, es float64
			for i := range k {
				a, b := toBF16(x[r*k+i]), toBF16(w[o*k+i])
				seen += a * b
				ss += math.Abs(a * b)
				p := float64(x[r*k+i]) * float64(w[o*k+i])
				exact += p
				es += math.Abs(p)
			}
			c.seen, c.exact = append(c.seen, seen), append(c.exact, exact)
			c.seenSize, c.exactSum = append(c.seenSize, ss), append(c.exactSum, es)
		}
	}
	return c
}

// run runs the case with gaps beside the rows of x and dst, and sees that those of
// dst stay as they were.
func (c *linearCase) run(r *rig, raw tensor.Tensor, gap int) (got []float32, err error) {
	r.t.Helper()
	w, err := r.dev.Pack(raw, backend.UseLinear)
	r.must(err)
	defer r.dev.Unpack(w)
	in, out := c.k+2*gap, c.n+2*gap
	x, y := make([]float32, c.rows*in), make([]float32, c.rows*out)
	for i := range x {
		x[i] = float32(math.NaN())
		if col := i%in - gap; col >= 0 && col < c.k {
			x[i] = c.x[i/in*c.k+col]
		}
	}
	const mark = 12345
	for i := range y {
		y[i] = mark
	}
	dst := r.f32(y, c.rows, out)
	r.s.Linear(dst.Cols(gap, gap+c.n), r.f32(x, c.rows, in).Cols(gap, gap+c.k), w)
	r.s.Read(tensor.AsBytes(y), dst)
	r.must(r.s.Sync())
	for i, v := range y {
		if col := i%out - gap; col >= 0 && col < c.n {
			got = append(got, v)
		} else if v != mark {
			return nil, fmt.Errorf("column %d beside the outputs was written", col)
		}
	}
	return got, nil
}

// check compares with the tolerances that docs/cuda.md 8 states.
//
// Sums: 16 products and the sum so far are added with at most 20 roundings or cuts
// (emu.TestMma), each below 2^-23 of S = Σ|x·w| over the rounded operands. The first
// step begins at zero, so nothing is lost before it.
//
// Operands: bfloat16 keeps 8 bits, so rounding to nearest moves a value by at most
// u = 2^-8 of it (not 2^-9: the half of the last bit of 1.0000000), x·w by at most
// 2u + u² and, with weights that are bfloat16 already, by u.
func (c *linearCase) check(got []float32, dt tensor.DType) error {
	const u = 0x1p-8
	moved := 2*u + u*u
	if dt == tensor.BF16 {
		moved = u
	}
	for i, v := range got {
		sums := 20 * 0x1p-23 * float64((c.k+15)/16) * c.seenSize[i]
		if e := math.Abs(float64(v) - c.seen[i]); !(e <= sums) {
			return fmt.Errorf("row %d, output %d is %v; the rounded operands give %v, at most %g away", i/c.n, i%c.n, v, c.seen[i], sums)
		}
		if e := math.Abs(float64(v) - c.exact[i]); !(e <= sums+moved*c.exactSum[i]) {
			return fmt.Errorf("row %d, output %d is %v; the operands give %v, at most %g away", i/c.n, i%c.n, v, c.exact[i], sums+moved*c.exactSum[i])
		}
	}
	return nil
}

// values are the exact float32 values of a weight: its product with the unit rows,
// by the reference.
func values(t *testing.T, raw tensor.Tensor) []float32 {
	t.Helper()
	r := newRig(t, ref.New())
	w, err := r.dev.Pack(raw, backend.UseLinear)
	r.must(err)
	n, k := w.Out(), w.In()
	one := make([]float32, k*k)
	for i := range k {
		one[i*k+i] = 1
	}
	y := r.f32(nil, k, n)
	r.s.Linear(y, r.f32(one, k, k), w)
	turned := make([]float32, k*n)
	r.s.Read(tensor.AsBytes(turned), y)
	r.must(r.s.Sync())
	v := make([]float32, n*k)
	for i := range v {
		v[i] = turned[i%k*n+i/k]
	}
	return v
}

// Products of many rows are within the stated tolerances, whatever the order and
// the rounding of the tensor cores, wherever operands lie; and nothing else is
// written.
func TestFastLinear(t *testing.T) {
	type size struct {
		rows, n, k int
		kernel     string
	}
	sizes := []size{{9, 65, 132, "fastSmall"}, {70, 33, 31, "fastSmall"}, {33, 1, 300, "fastSmall"}, {65, 70, 20, "fastLarge"}, {139, 140, 70, "fastLarge"}}
	for _, dt := range backendtest.Dtypes() {
		for i, z := range sizes {
			if dt != tensor.BF16 && i != 0 && i != 3 || testing.Short() && dt != tensor.BF16 && dt != tensor.Q4_K {
				continue
			}
			k := upTo(dt, z.k)
			t.Run(fmt.Sprintf("%v/%dx%dx%d", dt, z.rows, z.n, k), func(t *testing.T) {
				rnd := tensortest.NewRand(backendtest.Seed, t.Name())
				raw, err := tensor.New(tensor.Bytes(backendtest.Weights(rnd, tensortest.Ordinary, dt, z.n*k)), 0, dt, z.n, k)
				if err != nil {
					t.Fatal(err)
				}
				x := rnd.F32(tensortest.Ordinary, z.rows*k)
				c := newLinearCase(x, values(t, raw), z.rows, z.n, k)
				for s, gap := range []int{0, 1, 4, 7} { // of the rows of x and dst, before and after them
					dev, watch := watchedAt(t, emu.Sums(s), true)
					got, err := c.run(newRig(t, dev), raw, gap)
					if err == nil {
						err = c.check(got, dt)
					}
					if err != nil {
						t.Errorf("sums %d: %v", s, err)
					}
					if k := fmt.Sprintf("%s_%v", z.kernel, dt); watch.Counts()[k].Launches != 1 {
						t.Errorf("%s was not launched", k)
					}
				}
			})
		}
	}
}

// Without Fast a device with tensor cores runs the exact kernels.
func TestFastIsOff(t *testing.T) {
	dev, watch := watchedAt(t, emu.SumsCut, false)
	if i := dev.Info(); dev.Name() != "cuda:emu" || i.Inexact != "" || strings.Contains(i.Kernels, "fast") {
		t.Errorf("the device is called %s, %+v", dev.Name(), i)
	}
	l := linearForms()
	for i := range l {
		if strings.Contains(l[i].name, "BF16/") || strings.Contains(l[i].name, "Q4_0/70") {
			if d := backendtest.Differ(l[i].results(t, ref.New()), l[i].results(t, dev)); d != "" {
				t.Errorf("%s (-ref +cuda): %s", l[i].name, d)
			}
		}
	}
	for k := range watch.Counts() {
		if strings.HasPrefix(k, "fast") {
			t.Errorf("%s was launched", k)
		}
	}
	if watch.Counts()["gemmLarge_BF16"].Launches == 0 {
		t.Error("no product of many rows was run")
	}
}

// Few rows keep their bits in fast mode; so does every other op.
func TestFastLeavesTheRest(t *testing.T) {
	dev, _ := watchedAt(t, emu.SumsCut, true)
	l := linearForms()
	list := []form{l[0], l[2], l[4], deltaForms()[0], rowForms()[0]}
	for _, f := range attentionForms() {
		if strings.HasPrefix(f.name, "Attention/2300+1/") {
			list = append(list, f)
		}
	}
	if len(list) != 6 {
		t.Errorf("%d forms", len(list))
	}
	for _, f := range list {
		if d := backendtest.Differ(f.results(t, ref.New()), f.results(t, dev)); d != "" {
			t.Errorf("%s (-ref +fast): %s", f.name, d)
		}
	}
}

func TestFastNeedsTensorCores(t *testing.T) {
	_, err := cuda.New(cuda.Config{Driver: emu.New(emu.Config{}), Fast: true})
	if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "8.0") {
		t.Errorf("opening a device of 7.5 in fast mode: %v", err)
	}
}

// What a model remembers on a fast device is never taken for what it remembers on
// an exact one: reports, snapshots, saved sequences and everything that is keyed by
// the model's ID keep them apart.
func TestFastIsNeverSilent(t *testing.T) {
	host, err := cpu.New(cpu.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	exactDev, _ := watchedAt(t, emu.SumsRising, false)
	fastDev, _ := watchedAt(t, emu.SumsRising, true)
	if i := fastDev.Info(); fastDev.Name() != "cuda:emu,fast" || i.Name != fastDev.Name() || !strings.Contains(i.Kernels, "fast (not bit-exact)") || i.Inexact == "" {
		t.Errorf("the fast device is called %s, %+v", fastDev.Name(), i)
	}
	const path = models + "/checkpoints/qwen3-tied-bf16"
	want, exact, fast := newPlayer(t, host, path), newPlayer(t, exactDev, path), newPlayer(t, fastDev, path)
	if want.dec.ID != exact.dec.ID || fast.dec.ID == exact.dec.ID {
		t.Errorf("IDs: cpu %v, cuda %v, fast %v", want.dec.ID, exact.dec.ID, fast.dec.ID)
	}
	want.play(30, 0)
	fast.play(30, 0)
	// The tolerance of a whole model is measured, not derived: the rows of this one,
	// 21 products deep, lie 0.4 to 1.5 % of the length of their logits away.
	var moved bool
	for i := range want.rows {
		var d, n float64
		for j, v := range want.rows[i] {
			e := float64(fast.rows[i][j]) - float64(v)
			d += e * e
			n += float64(v) * float64(v)
		}
		moved = moved || d > 0
		if !(d <= 0.03*0.03*n) {
			t.Errorf("row %d of the fast device is %g of its length away", i, math.Sqrt(d/n))
		}
	}
	if !moved {
		t.Error("the fast device gives the exact bits: it is not fast")
	}
	snap, err := fast.run.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	if st, err := want.dec.NewState(want.pool); err != nil {
		t.Error(err)
	} else {
		if err := state.Move(st, snap); !errors.Is(err, state.ErrForeign) {
			t.Errorf("moving a state from the fast device: %v", err)
		}
		st.Release()
	}
	var file bytes.Buffer
	if err := fast.run.Save(&file); err != nil {
		t.Fatal(err)
	}
	saved := file.Bytes()
	for name, run := range map[string]*nn.Runner{"cpu": want.run, "cuda": exact.run} {
		if err := run.Load(bytes.NewReader(saved)); !errors.Is(err, state.ErrForeign) {
			t.Errorf("%s loads what the fast device saved: %v", name, err)
		}
	}
	file = bytes.Buffer{}
	if err := want.run.Save(&file); err != nil {
		t.Fatal(err)
	}
	if err := fast.run.Load(&file); !errors.Is(err, state.ErrForeign) {
		t.Errorf("the fast device loads what is exact: %v", err)
	}
	if err := fast.run.Load(bytes.NewReader(saved)); err != nil {
		t.Errorf("the fast device does not load its own: %v", err)
	}
}
