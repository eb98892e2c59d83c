package gradcheck

import (
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
)

// Eps is the ε of the RMSNorm cases.
const Eps = 1e-6

// The sizes of the cases: rows, width, inner width, classes. No two are equal
// and none divides another, so that a wrong axis cannot pass.
const (
	rows    = 4
	width   = 7
	inner   = 5
	classes = 9
)

// Cases returns the functions with inputs drawn from seed, the same everywhere:
// MatMul, SiLU, RMSNorm, Softmax, CrossEntropy, and Block, which chains them.
func Cases(seed uint64) []Case {
	var (
		x  = draw(seed, "x", 2, rows, width)
		w  = draw(seed, "w", 2, width)
		a  = draw(seed, "a", 0.5, width, inner)
		b  = draw(seed, "b", 0.5, inner, classes)
		z  = draw(seed, "z", 2, rows, classes)
		y  = labels(seed, rows, classes)
		sd = func(n int) []float64 { return draw(seed, "seed", 2, n).Data }
	)
	return []Case{
		{
			Name: "MatMul", Formula: "x·a", In: []Input{x, a}, Seed: sd(rows * inner),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node { return g.dot(in[0], in[1]) },
			eval:  func(in [][]float64) []float64 { return matmul(in[0], in[1], rows) },
		},
		{
			Name: "SiLU", Formula: "x/(1 + exp(-x))", In: []Input{x}, Seed: sd(rows * width),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node { return g.silu(in[0]) },
			eval:  func(in [][]float64) []float64 { return silu(in[0]) },
		},
		{
			Name: "RMSNorm", Formula: "x[r,i]·w[i]/√(mean_i(x[r,i]²) + ε)", In: []Input{x, w}, Seed: sd(rows * width),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node { return g.rmsNorm(in[0], in[1], width) },
			eval:  func(in [][]float64) []float64 { return rmsNorm(in[0], in[1]) },
		},
		{
			Name: "Softmax", Formula: "exp(z[r,i])/Σ_j exp(z[r,j])", In: []Input{z}, Seed: sd(rows * classes),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node { return g.softmax(in[0]) },
			eval:  func(in [][]float64) []float64 { return softmax(in[0], classes) },
		},
		{
			Name: "CrossEntropy", Formula: "-Σ_i y[r,i]·log softmax(z)[r,i]", In: []Input{z, y}, Seed: sd(rows),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node { return g.crossEntropy(in[0], in[1]) },
			eval:  func(in [][]float64) []float64 { return crossEntropy(in[0], in[1], classes) },
		},
		{
			Name: "Block", Formula: "crossEntropy(silu(rmsNorm(x, w)·a)·b, y)", In: []Input{x, w, a, b, y}, Seed: sd(rows),
			graph: func(g *graph, in []*gorgonia.Node) *gorgonia.Node {
				h := g.silu(g.dot(g.rmsNorm(in[0], in[1], width), in[2]))
				return g.crossEntropy(g.dot(h, in[3]), in[4])
			},
			eval: func(in [][]float64) []float64 {
				h := silu(matmul(rmsNorm(in[0], in[1]), in[2], rows))
				return crossEntropy(matmul(h, in[3], rows), in[4], classes)
			},
		},
	}
}

// source is a generator for one input of one seed.
func source(seed uint64, name string) *rand.PCG {
	k := uint64(0)
	for _, c := range []byte(name) {
		k = k<<8 | uint64(c)
	}
	return rand.NewPCG(seed, k)
}

// draw makes an input of 2¹⁷ equally likely values in [-most, most), most a power
// of two.
func draw(seed uint64, name string, most float64, dim ...int) Input {
	n := 1
	for _, d := range dim {
		n *= d
	}
	in := Input{Name: name, Dim: dim, Data: make([]float64, n)}
	r := source(seed, name)
	for i := range in.Data {
		in.Data[i] = most * float64(int(r.Uint64()>>47)-1<<16) / (1 << 16)
	}
	return in
}

// labels has one 1 in each row.
func labels(seed uint64, r, c int) Input {
	in := Input{Name: "y", Dim: []int{r, c}, Data: make([]float64, r*c), Fixed: true}
	s := source(seed, in.Name)
	for i := range r {
		in.Data[i*c+int(s.Uint64()>>33)%c] = 1
	}
	return in
}

func (g *graph) silu(x *gorgonia.Node) *gorgonia.Node {
	return g.mul(x, g.unary(gorgonia.Sigmoid, x))
}

func (g *graph) rmsNorm(x, w *gorgonia.Node, c int) *gorgonia.Node {
	mean := g.unary(func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Mean(x, 1) }, g.unary(gorgonia.Square, x))
	s := g.unary(gorgonia.Inverse, g.unary(gorgonia.Sqrt, g.plus(mean, Eps)))
	return g.scale(g.scale(x, s, 1), w, 0)
}

func (g *graph) softmax(z *gorgonia.Node) *gorgonia.Node {
	return g.unary(func(z *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.SoftMax(z, 1) }, z)
}

func (g *graph) crossEntropy(z, y *gorgonia.Node) *gorgonia.Node {
	return g.unary(gorgonia.Neg, g.sum(g.mul(y, g.unary(gorgonia.Log, g.softmax(z))), 1))
}

func matmul(x, w []float64, r int) []float64 {
	k := len(x) / r
	c := len(w) / k
	out := make([]float64, r*c)
	for i := range out {
		for j := range k {
			out[i] += x[i/c*k+j] * w[j*c+i%c]
		}
	}
	return out
}

func silu(x []float64) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = v / (1 + math.Exp(-v))
	}
	return out
}

func rmsNorm(x, w []float64) []float64 {
	out := make([]float64, 0, len(x))
	for ; len(x) > 0; x = x[len(w):] {
		sum := 0.0
		for _, v := range x[:len(w)] {
			sum += v * v
		}
		for i, v := range x[:len(w)] {
			out = append(out, v*w[i]/math.Sqrt(sum/float64(len(w))+Eps))
		}
	}
	return out
}

func softmax(z []float64, c int) []float64 {
	out := make([]float64, 0, len(z))
	for ; len(z) > 0; z = z[c:] {
		sum := 0.0
		for _, v := range z[:c] {
			sum += math.Exp(v)
		}
		for _, v := range z[:c] {
			out = append(out, math.Exp(v)/sum)
		}
	}
	return out
}

func crossEntropy(z, y []float64, c int) []float64 {
	out := make([]float64, len(z)/c)
	for i, p := range softmax(z, c) {
		if y[i] != 0 {
			out[i/c] -= y[i] * math.Log(p)
		}
	}
	return out
}
