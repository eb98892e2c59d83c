package backendtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"samebit/backend"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// Goldens runs the vectors of the numerics contract, testdata/numerics of this
// repository at dir, through a device's ops: bit by bit.
func Goldens(t *testing.T, dev backend.Device, dir string) {
	g := readGoldens(t, dir)
	ops := map[string]func(*testing.T, *Env, *golden){
		"matmul_nt": goldenMatmul, "matmul_nt_bf16w": goldenMatmul, "rmsnorm": goldenNorm, "softmax": goldenSoftmax,
		"attention": goldenAttention, "delta_rule": goldenDelta, "conv4_silu": goldenConv, "rope": goldenRoPE, "dot": goldenDot,
		"matvec_q8_block32": goldenQ8, "silu": goldenSiLU, "sigmoid": goldenSigmoid,
	}
	seen := map[string]int{}
	for i := range g.Cases {
		c := &g.Cases[i]
		c.set, c.t = g, t
		run := ops[c.Op]
		if run == nil {
			continue // scalar functions, tested where they are defined
		}
		seen[c.Op]++
		if testing.Short() && c.Op == "dot" && seen[c.Op]%5 != 0 {
			continue
		}
		t.Run(fmt.Sprintf("%s/%d", c.Op, seen[c.Op]), func(t *testing.T) {
			e := newEnv(t, dev)
			defer e.close()
			c.t = t
			run(t, e, c)
		})
	}
	for op := range ops {
		if seen[op] == 0 {
			t.Errorf("there is no golden of %s in %s", op, dir)
		}
	}
}

type goldenSet struct {
	Arrays []struct {
		File, Dtype string
		Shape       []int
		Offset      int
	}
	Cases []golden
	files map[string][]byte
}

// golden is one case: operands by name.
type golden struct {
	Op      string
	Params  map[string]any
	In, Out map[string]int
	set     *goldenSet
	t       testing.TB
}

func readGoldens(t *testing.T, dir string) *goldenSet {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	g := &goldenSet{files: map[string][]byte{}}
	if err := json.Unmarshal(raw, g); err != nil {
		t.Fatal(err)
	}
	for _, a := range g.Arrays {
		if g.files[a.File] == nil {
			if g.files[a.File], err = os.ReadFile(filepath.Join(dir, a.File)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return g
}

func (c *golden) num(name string) int {
	v, ok := c.Params[name].(float64)
	if !ok {
		c.t.Fatalf("%s: no parameter %q", c.Op, name)
	}
	return int(v)
}

// raw is the bytes and the number of values of an operand.
func (c *golden) raw(name string) ([]byte, int) {
	i, ok := c.In[name]
	if !ok {
		if i, ok = c.Out[name]; !ok {
			c.t.Fatalf("%s: no operand %q", c.Op, name)
		}
	}
	a := c.set.Arrays[i]
	n := product(a.Shape)
	size := map[string]int{"f32": 4, "i32": 4, "bf16": 2, "i8": 1}[a.Dtype]
	return c.set.files[a.File][a.Offset : a.Offset+n*size], n
}

func (c *golden) f32(name string) []float32 {
	b, n := c.raw(name)
	v := make([]float32, n)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

func (c *golden) i32(name string) []int32 {
	b, n := c.raw(name)
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// check compares all outputs of the case so far, in order, with what is wanted.
func (e *Env) check(t *testing.T, want ...[]float32) {
	t.Helper()
	for i, r := range e.Results() {
		if d := tensortest.DiffBits(want[i], r.F32); d != "" {
			t.Errorf("%s (-golden +%s): %s", r.Name, e.Dev.Name(), d)
		}
	}
}

func goldenMatmul(t *testing.T, e *Env, c *golden) {
	m, n, k := c.num("m"), c.num("n"), c.num("k")
	dt := tensor.F32
	if c.Op == "matmul_nt_bf16w" {
		dt = tensor.BF16
	}
	raw, _ := c.raw("b")
	w := e.PackBytes(raw, dt, n, k)
	a, want := c.f32("a"), c.f32("c")
	x := e.In(a, m, k)
	e.S.Linear(e.Out("Linear", m, n), x, w)
	e.S.LinearRows(e.Out("LinearRows", m, n), x, w, e.Ints(count32(n), n))
	wants := [][]float32{want, want}
	if dt == tensor.F32 {
		e.S.Project(e.Out("Project", m, n), x, e.In(c.f32("b"), n, k))
		wants = append(wants, want)
	}
	for r := range m { // each row by itself
		e.S.Linear(e.Out(name("Linear of row %d", r), 1, n), x.Rows(r, r+1), w)
		wants = append(wants, want[r*n:(r+1)*n])
	}
	e.check(t, wants...)
}

func goldenDot(t *testing.T, e *Env, c *golden) {
	k := c.num("k")
	w := e.PackBytes(bytesOf(c.f32("y")), tensor.F32, 1, k)
	e.S.Linear(e.Out("Linear", 1, 1), e.In(c.f32("x"), 1, k), w)
	e.check(t, c.f32("r"))
}

// goldenQ8 multiplies by the float32 values that the rule gives: the format has
// float32 scales, which no file type has.
func goldenQ8(t *testing.T, e *Env, c *golden) {
	n, k := c.num("n"), c.num("k")
	q, _ := c.raw("q")
	scale, v := c.f32("scale"), make([]float32, n*k)
	for i := range v {
		v[i] = scale[i/32] * float32(int8(q[i]))
	}
	e.S.Linear(e.Out("Linear", 1, n), e.In(c.f32("x"), 1, k), e.PackBytes(bytesOf(v), tensor.F32, n, k))
	e.check(t, c.f32("y"))
}

func goldenNorm(t *testing.T, e *Env, c *golden) {
	s, _ := c.Params["eps_bits"].(string)
	bits, err := strconv.ParseUint(s, 16, 32)
	e.must(err)
	eps := math.Float32frombits(uint32(bits))
	x := c.f32("x")
	k := len(x)
	e.S.RMSNorm(e.Out("RMSNorm", 1, k), e.In(x, 1, k), e.In(c.f32("w"), k), eps)
	e.S.L2Norm(e.Out("L2Norm", 1, 1, k), e.In(x, 1, 1, k), eps, 1)
	e.check(t, c.f32("y"), c.f32("l2norm"))
}

func goldenSoftmax(t *testing.T, e *Env, c *golden) {
	x := c.f32("x")
	k := len(x)
	in := e.In(x, 1, k)
	e.S.Softmax(e.Out("Softmax", 1, k), in)
	e.S.ArgMax(e.OutInts("ArgMax", 1), in)
	r := e.Results()
	if d := tensortest.DiffBits(c.f32("p"), r[0].F32); d != "" {
		t.Errorf("Softmax (-golden +%s): %s", e.Dev.Name(), d)
	}
	if d := tensortest.DiffI32(c.i32("argmax"), r[1].I32); d != "" {
		t.Errorf("ArgMax (-golden +%s): %s", e.Dev.Name(), d)
	}
}

func goldenSiLU(t *testing.T, e *Env, c *golden) {
	x := c.f32("x")
	one := make([]float32, len(x))
	for i := range one {
		one[i] = 1 // silu(x)·1 has the bits of silu(x)
	}
	e.S.SwiGLU(e.Out("SwiGLU", 1, len(x)), e.In(x, 1, len(x)), e.In(one, 1, len(x)))
	e.check(t, c.f32("y"))
}

func goldenSigmoid(t *testing.T, e *Env, c *golden) {
	x := c.f32("x")
	one := make([]float32, len(x))
	for i := range one {
		one[i] = 1
	}
	e.S.SigmoidMul(e.Out("SigmoidMul", 1, len(x)), e.In(one, 1, len(x)), e.In(x, 1, len(x)))
	e.check(t, c.f32("y"))
}

// goldenAttention cuts the queries in every way that two passes allow.
func goldenAttention(t *testing.T, e *Env, c *golden) {
	d, group, nq, past, window := c.num("d"), c.num("group"), c.num("nq"), c.num("past"), c.num("window")
	q, k, v, scale := c.f32("q"), c.f32("k"), c.f32("v"), c.f32("scale")[0]
	var wants [][]float32
	for cut := range nq {
		pages := e.pages(1, 1, d, past+nq)
		put := func(from, to int) {
			n := to - from
			p := e.S.Plan([]backend.Seg{{Rows: n, Slot: from, Pos: from, KV: pages}})
			e.S.PutKV(p, 0, e.In(k[from*d:to*d], n, 1, d), e.In(v[from*d:to*d], n, 1, d))
			if from < past {
				return
			}
			x := e.In(q[(from-past)*group*d:(to-past)*group*d], n, group, d)
			e.S.Attention(e.Out(name("queries %d to %d", from-past, to-past), n, group, d), x, p, 0, scale, window)
			wants = append(wants, c.f32("o")[(from-past)*group*d:(to-past)*group*d])
		}
		if past > 0 {
			put(0, past)
		}
		if cut > 0 {
			put(past, past+cut)
		}
		put(past+cut, past+nq)
	}
	e.check(t, wants...)
}

func goldenDelta(t *testing.T, e *Env, c *golden) {
	dk, dv, T := c.num("dk"), c.num("dv"), c.num("t")
	q, k, v, g, beta := c.f32("q"), c.f32("k"), c.f32("v"), c.f32("decay"), c.f32("beta")
	var wants [][]float32
	for _, step := range []int{T, 1, 2} {
		in := e.Flat(c.f32("s0"), 1, 1, dk, dv)
		for r := 0; r < T; r += step {
			n := min(step, T-r)
			var out tensor.Tensor
			if r+n == T {
				out = e.State(name("state of steps of %d", step), nil, 1, 1, dk, dv)
				wants = append(wants, c.f32("s"))
			} else {
				out = e.Flat(make([]float32, dk*dv), 1, 1, dk, dv)
			}
			p := e.S.Plan([]backend.Seg{{Rows: n, Slot: r, Pos: r, DeltaIn: in, DeltaOut: out}})
			e.S.GatedDelta(e.Out(name("rows from %d in steps of %d", r, step), n, 1, dv), e.In(q[r*dk:(r+n)*dk], n, 1, dk), e.In(k[r*dk:(r+n)*dk], n, 1, dk),
				e.In(v[r*dv:(r+n)*dv], n, 1, dv), e.In(g[r:r+n], n, 1), e.In(beta[r:r+n], n, 1), p, 0)
			wants = append(wants, c.f32("o")[r*dv:(r+n)*dv])
			in = out
		}
	}
	e.check(t, wants...)
}

// goldenConv: every case is a channel of its own, its four inputs three of
// history and one row.
func goldenConv(t *testing.T, e *Env, c *golden) {
	hist, w, want := c.f32("hist"), c.f32("w"), c.f32("y")
	n := len(want)
	turn := func(v []float32) []float32 { // [n, 4] to [4, n]
		r := make([]float32, len(v))
		for i := range n {
			for j := range 4 {
				r[j*n+i] = v[i*4+j]
			}
		}
		return r
	}
	h := turn(hist)
	p := e.S.Plan([]backend.Seg{{Rows: 1, ConvIn: e.Flat(h[:3*n], 1, 3, n), ConvOut: e.State("new history", nil, 1, 3, n)}})
	e.S.Conv(e.Out("Conv", 1, n), e.In(h[3*n:], 1, n), e.Flat(turn(w), 4, n), p, 0)
	e.check(t, h[n:], want)
}

func goldenRoPE(t *testing.T, e *Env, c *golden) {
	d, at := c.num("d"), c.num("applied_at_pos_index")
	rope, err := backend.NewRoPE(float64(c.num("theta")), d, backend.Scaling{}, nil)
	e.must(err)
	if s := tensortest.DiffBits(c.f32("inv_freq"), rope.Inv); s != "" {
		t.Errorf("frequencies: %s", s)
	}
	cos, sin := make([]float32, d/2), make([]float32, d/2)
	pos := c.i32("pos")
	for i, p := range pos {
		rope.Angles(cos, sin, int(p))
		if s := tensortest.DiffBits(c.f32("cos")[i*d/2:(i+1)*d/2], cos); s != "" {
			t.Errorf("cosines at position %d: %s", p, s)
		}
		if s := tensortest.DiffBits(c.f32("sin")[i*d/2:(i+1)*d/2], sin); s != "" {
			t.Errorf("sines at position %d: %s", p, s)
		}
	}
	p := e.S.Plan([]backend.Seg{{Rows: 1, Pos: int(pos[at])}})
	e.S.NormRoPE(e.Out("NormRoPE", 1, 1, d), e.In(c.f32("x"), 1, 1, d), tensor.Tensor{}, 0, rope, p)
	e.check(t, c.f32("y"))
}
