// Package gradcheck knows the gradients of a few small functions from two
// sources that share no code with this module: the graphs of gorgonia and
// central differences in float64.
//
// A test of a reverse mode takes each [Case], runs its own ops at Case.In,
// pulls Case.Seed back through them and compares with the [Result] of
// [Case.Gorgonia] in float64 by [Result.Diff].
package gradcheck

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	gtensor "gorgonia.org/tensor"
)

// Tolerances for [Case.Diff], relative to the largest element of each part.
//
// Tol64 bounds what float64 gradients of gorgonia and central differences are
// apart: over 300 seeds at most 1.8e-10 (Block, a), where a large fifth
// derivative meets a small gradient; 1e-12 is common.
//
// Tol32 bounds what gradients in float32 are off: 64 units of 2⁻²⁴. No element
// takes more than about 40 roundings to make, most of which cancel: over 300
// seeds at most 1.1e-6, 18 units (Block, w).
const (
	Tol64 = 1e-9
	Tol32 = 0x1p-18
)

// Input is an operand that gradients are taken for, or a constant one. Data is
// row-major and exactly representable in float32, so that float32 and float64
// start at the same point.
type Input struct {
	Name  string
	Dim   []int
	Data  []float64
	Fixed bool // no gradient is taken: labels
}

// Case is one differentiable function of its inputs and the vector that its
// gradients are pulled back from: those of Σ_i Seed[i]·out[i].
type Case struct {
	Name    string
	Formula string // in the letters of the inputs
	In      []Input
	Seed    []float64 // as long as the result, in row-major order

	graph func(g *graph, in []*gorgonia.Node) *gorgonia.Node
	eval  func(in [][]float64) []float64
}

// Result is the value of a case and its gradients, those of fixed inputs nil.
type Result struct {
	Out  []float64
	Grad [][]float64
}

// At evaluates the function in float64 by plain loops. A nil in takes the data
// of the case.
func (c *Case) At(in [][]float64) []float64 {
	if in == nil {
		in = c.data()
	}
	return c.eval(in)
}

func (c *Case) data() [][]float64 {
	in := make([][]float64, len(c.In))
	for i := range in {
		in[i] = append([]float64(nil), c.In[i].Data...)
	}
	return in
}

// Central differentiates by central differences of fourth order in float64,
//
//	f'(x) ≈ (f(x-2h) - 8·f(x-h) + 8·f(x+h) - f(x+2h)) / 12h,   h = 2⁻⁹
//
// The formula errs by h⁴/30·f⁽⁵⁾(x) ≈ 5e-13·f⁽⁵⁾, rounding of f by about
// 2⁻⁵³/h ≈ 6e-14 for values and sums near 1.
func (c *Case) Central() Result {
	const h = 0x1p-9
	in := c.data()
	loss := func() (s float64) {
		for i, y := range c.eval(in) {
			s += c.Seed[i] * y
		}
		return s
	}
	r := Result{c.eval(in), make([][]float64, len(in))}
	for i, x := range in {
		if c.In[i].Fixed {
			continue
		}
		r.Grad[i] = make([]float64, len(x))
		for k, at := range x {
			var f [5]float64
			for s := range f {
				x[k] = at + float64(s-2)*h
				f[s] = loss()
			}
			x[k] = at
			r.Grad[i][k] = (f[0] - f[4] + 8*(f[3]-f[1])) / (12 * h)
		}
	}
	return r
}

// Distance is the largest difference of each part of two results relative to the
// largest magnitude in the part: the result first, then the gradients in the
// order of the inputs, 0 for those that neither has. NaN, and a part of another
// length, are infinitely far.
func (want Result) Distance(got Result) []float64 {
	d := []float64{distance(want.Out, got.Out)}
	for i, w := range want.Grad {
		var g []float64
		if i < len(got.Grad) {
			g = got.Grad[i]
		}
		d = append(d, distance(w, g))
	}
	return d
}

func distance(want, got []float64) float64 {
	if len(want) != len(got) {
		return math.Inf(1)
	}
	scale, worst := 0.0, 0.0
	for i, w := range want {
		d := math.Abs(got[i] - w)
		if d != d {
			return math.Inf(1)
		}
		scale, worst = max(scale, math.Abs(w)), max(worst, d)
	}
	if worst == 0 {
		return 0
	}
	return worst / scale
}

// Diff says which parts of got lie farther from want than tol, as [Result.Distance]
// measures, or "".
func (c *Case) Diff(want, got Result, tol float64) string {
	s := ""
	for i, d := range want.Distance(got) {
		part := "the result"
		if i > 0 {
			part = "the gradient of " + c.In[i-1].Name
		}
		if d > tol {
			s += fmt.Sprintf("%s: %s is off by %.3g of its largest element, tolerance %.3g\n", c.Name, part, d, tol)
		}
	}
	return s
}

// Gorgonia builds the case as a graph of dt, Float32 or Float64, differentiates
// it and runs it on gorgonia's tape machine.
func (c *Case) Gorgonia(dt gtensor.Dtype) (Result, error) {
	fail := func(err error) (Result, error) {
		return Result{}, fmt.Errorf("gradcheck: %s in gorgonia, %v: %w", c.Name, dt.Name(), err)
	}
	if dt != gtensor.Float32 && dt != gtensor.Float64 {
		return fail(errors.New("want Float32 or Float64"))
	}
	g := &graph{ExprGraph: gorgonia.NewGraph(), dt: dt}
	var in, wrt []*gorgonia.Node
	for _, x := range c.In {
		n := g.input(x.Name, x.Data, x.Dim...)
		in = append(in, n)
		if !x.Fixed {
			wrt = append(wrt, n)
		}
	}
	out := c.graph(g, in)
	if g.err != nil {
		return fail(g.err)
	}
	loss := g.sum(g.mul(out, g.input("seed", c.Seed, out.Shape()...)))
	if g.err != nil {
		return fail(g.err)
	}
	grads, err := gorgonia.Grad(loss, wrt...)
	if err != nil {
		return fail(err)
	}
	// A Read copies what it reads before the machine reuses the memory.
	values := make([]gorgonia.Value, 1+len(grads))
	gorgonia.Read(out, &values[0])
	for i, n := range grads {
		gorgonia.Read(n, &values[1+i])
	}
	vm := gorgonia.NewTapeMachine(g.ExprGraph)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return fail(err)
	}
	r := Result{Grad: make([][]float64, len(c.In))}
	if r.Out, err = list(values[0]); err != nil {
		return fail(err)
	}
	k := 1
	for i, x := range c.In {
		if x.Fixed {
			continue
		}
		if r.Grad[i], err = list(values[k]); err != nil {
			return fail(err)
		}
		k++
	}
	return r, nil
}
