package gradcheck

import (
	"testing"

	gtensor "gorgonia.org/tensor"

	"samebit/backend"
	"samebit/backend/cpu"
	"samebit/backend/ref"
	"samebit/grad"
	"samebit/tensor"
)

// taped runs the cases as ops on a tape. Matrices of the cases are [inputs, outputs],
// those of products [outputs, inputs].
type taped struct {
	testing.TB
	dev    backend.Device
	s      backend.Stream
	p      *grad.Params
	t      *grad.Tape
	leaves map[string]func() []float64 // gradients by name of the input
}

func (g *taped) must(err error) {
	g.Helper()
	if err != nil {
		g.Fatal(err)
	}
}

func narrow(v []float64) []float32 {
	w := make([]float32, len(v))
	for i, x := range v {
		w[i] = float32(x)
	}
	return w
}

func (g *taped) new(v []float64, dim ...int) tensor.Tensor {
	g.Helper()
	n := 1
	for _, d := range dim {
		n *= d
	}
	b, err := g.dev.Alloc(4 * n)
	g.must(err)
	g.Cleanup(func() { g.dev.Free(b) })
	t, err := tensor.New(b, 0, tensor.F32, dim...)
	g.must(err)
	if v != nil {
		g.s.Write(t, tensor.AsBytes(narrow(v)))
	}
	return t
}

func (g *taped) read(t tensor.Tensor) []float64 {
	g.Helper()
	v := make([]float32, t.Len())
	g.s.Read(tensor.AsBytes(v), t)
	g.must(g.s.Sync())
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}

// x is an activation.
func (g *taped) x(in Input) tensor.Tensor {
	t := g.new(in.Data, in.Dim...)
	g.leaves[in.Name] = func() []float64 { return g.read(g.t.Grad(t)) }
	return t
}

// vector is a trained one.
func (g *taped) vector(in Input) tensor.Tensor {
	t := g.new(in.Data, in.Dim...)
	p, err := g.p.AddTensor(in.Name, t, grad.Plain, narrow(in.Data))
	g.must(err)
	g.leaves[in.Name] = func() []float64 { return g.read(p.Grad) }
	return t
}

// matrix is a trained one, packed.
func (g *taped) matrix(in Input) backend.Weight {
	v := narrow(turn(in.Data, in.Dim[0]))
	t, err := tensor.FromF32(v, in.Dim[1], in.Dim[0])
	g.must(err)
	w, err := g.dev.Pack(t, backend.UseLinear)
	g.must(err)
	g.Cleanup(func() { g.dev.Unpack(w) })
	p, err := g.p.AddWeight(in.Name, w, v)
	g.must(err)
	g.leaves[in.Name] = func() []float64 { return turn(g.read(p.Grad), in.Dim[1]) }
	return w
}

// turn transposes n rows.
func turn(v []float64, n int) []float64 {
	m, t := len(v)/n, make([]float64, len(v))
	for i := range n {
		for j := range m {
			t[j*n+i] = v[i*m+j]
		}
	}
	return t
}

func (g *taped) silu(x tensor.Tensor) tensor.Tensor {
	ones := make([]float64, x.Len())
	for i := range ones {
		ones[i] = 1
	}
	y := g.new(nil, x.Shape()...)
	g.t.SwiGLU(y, x, g.new(ones, x.Shape()...))
	return y
}

func (g *taped) linear(x tensor.Tensor, w backend.Weight) tensor.Tensor {
	y := g.new(nil, x.Dim(0), w.Out())
	g.t.Linear(y, x, w)
	return y
}

func (g *taped) norm(x, w tensor.Tensor) tensor.Tensor {
	y := g.new(nil, x.Shape()...)
	g.t.RMSNorm(y, x, w, Eps)
	return y
}

// crossEntropy begins the gradients at rows weighted by the seed.
func (g *taped) crossEntropy(z tensor.Tensor, labels Input, seed []float64) []float64 {
	r, c := labels.Dim[0], labels.Dim[1]
	target := make([]int32, r)
	for i, y := range labels.Data {
		if y != 0 {
			target[i/c] = int32(i % c)
		}
	}
	ids, err := tensor.FromI32(target, r)
	g.must(err)
	loss := g.new(nil, r)
	g.t.CrossEntropy(loss, z, ids, g.new(seed, r), 1)
	out := g.read(loss)
	for i := range out {
		out[i] /= seed[i]
	}
	return out
}

// run is the case's result and its gradients.
func (g *taped) run(c *Case) Result {
	in := c.In
	g.t.Plan([]backend.Seg{{Rows: 1}, {Row: 1, Rows: in[0].Dim[0] - 1}})
	var out []float64
	seed := func(y tensor.Tensor) {
		out = g.read(y)
		g.t.Seed(y, g.new(c.Seed, y.Shape()...))
	}
	switch c.Name {
	case "MatMul":
		seed(g.linear(g.x(in[0]), g.matrix(in[1])))
	case "SiLU":
		seed(g.silu(g.x(in[0])))
	case "RMSNorm":
		seed(g.norm(g.x(in[0]), g.vector(in[1])))
	case "Softmax":
		z := g.x(in[0])
		y := g.new(nil, z.Shape()...)
		g.t.Softmax(y, z)
		seed(y)
	case "CrossEntropy":
		out = g.crossEntropy(g.x(in[0]), in[1], c.Seed)
	case "Block":
		h := g.silu(g.linear(g.norm(g.x(in[0]), g.vector(in[1])), g.matrix(in[2])))
		out = g.crossEntropy(g.linear(h, g.matrix(in[3])), in[4], c.Seed)
	default:
		g.Fatalf("no ops for case %s", c.Name)
	}
	g.must(g.t.Backward())
	r := Result{Out: out, Grad: make([][]float64, len(in))}
	for i := range in {
		if f := g.leaves[in[i].Name]; f != nil {
			r.Grad[i] = f()
		}
	}
	return r
}

// The tape agrees with gorgonia's gradients in float64 as far as float32 allows.
func TestTape(t *testing.T) {
	fast, err := cpu.New(cpu.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fast.Close() })
	for _, dev := range []backend.Device{ref.New(), fast} {
		each(t, func(t *testing.T, seed uint64, c *Case) {
			want, err := c.Gorgonia(gtensor.Float64)
			if err != nil {
				t.Fatal(err)
			}
			g := &taped{TB: t, dev: dev, leaves: map[string]func() []float64{}}
			g.s, err = dev.NewStream()
			g.must(err)
			g.p, err = grad.NewParams(g.s, dev)
			g.must(err)
			g.t, err = grad.NewTape(g.s, dev, g.p)
			g.must(err)
			if s := c.Diff(want, g.run(c), Tol32); s != "" {
				t.Errorf("seed %d, gorgonia against the tape on %s:\n%s", seed, dev.Name(), s)
			}
			g.t.Close()
			g.p.Close()
			g.must(g.s.Close())
		})
	}
}
