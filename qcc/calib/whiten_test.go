package calib

import (
	"math"
	"math/rand/v2"
	"testing"

	"samebit/backend/cpu"
	"samebit/qcc"
)

// someKeys are keys whose coordinates hang together and have a mean.
func someKeys(r *rand.Rand, n, d int) [][]float32 {
	mix := make([]float64, d*d)
	for i := range mix {
		mix[i] = 0.3 * r.NormFloat64() / math.Sqrt(float64(d))
	}
	for i := range d { // no direction in which they hardly differ
		mix[i*d+i] += 1 + float64(i)/float64(d)
	}
	keys := make([][]float32, n)
	for t := range keys {
		z := make([]float64, d)
		for i := range z {
			z[i] = r.NormFloat64()
		}
		keys[t] = make([]float32, d)
		for i := range d {
			keys[t][i] = float32(2 + dot(mix[i*d:(i+1)*d], z))
		}
	}
	return keys
}

func wide(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// Eigenvectors are orthonormal and give the matrix back, also of few values.
func TestEigen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, d := range []int{1, 2, 3, 17, 40} {
		m, copied := square(d), square(d)
		for range 1 + d/2 { // not of full rank
			v := make([]float64, d)
			for i := range v {
				v[i] = r.NormFloat64()
			}
			for i := range d {
				for j := range d {
					m[i][j] += v[i] * v[j]
				}
			}
		}
		for i := range m {
			copy(copied[i], m[i])
		}
		values, vectors := eigen(copied)
		for i := range d {
			for j := range d {
				unit, back := 0.0, 0.0
				for k := range d {
					back += values[k] * vectors[k][i] * vectors[k][j]
				}
				if i == j {
					unit = 1
				}
				// d products of order d, each rounded once, sixteen sweeps of rotations
				if e := math.Abs(dot(vectors[i], vectors[j]) - unit); e > 1e-12 {
					t.Fatalf("width %d: vectors %d and %d: product off by %g", d, i, j, e)
				}
				if e := math.Abs(back - m[i][j]); e > 1e-11*float64(d) {
					t.Fatalf("width %d: element %d, %d is off by %g", d, i, j, e)
				}
			}
		}
	}
}

// applied is x + (x·V)·U.
func applied(x []float64, v, u []float32, n int) []float64 {
	d := len(x)
	y := append([]float64(nil), x...)
	for r := range n {
		z := 0.0
		for i := range d {
			z += x[i] * float64(v[i*n+r])
		}
		for i := range d {
			y[i] += z * float64(u[r*d+i])
		}
	}
	return y
}

// Whitened keys have variance 1 in every direction but that of the mean. Codes score
// keys as if the mean were none, with the spread that is asked for, and queries, moved
// by the map, by the places of the centres themselves.
func TestWhitenedCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const d, tokens, codes = 12, 600, 5
	for _, n := range []int{d, 4} {
		keys := someKeys(r, tokens, d)
		a := principal(keys, n)
		whites := make([][]float64, tokens)
		for i, k := range keys {
			whites[i] = wide(a.white(k))
		}
		for i := range n {
			for j := range i + 1 {
				sum := 0.0
				for _, w := range whites {
					sum += w[i] * w[j] / tokens
				}
				want := -a.common[i] * a.common[j]
				if i == j {
					want++
				}
				if math.Abs(sum-want) > 1e-5 { // float32 coordinates
					t.Errorf("rank %d: covariance %d, %d of whitened keys is %g, want %g", n, i, j, sum, want)
				}
			}
		}
		const spread = 1.5
		c := make([][]float32, codes)
		for m := range c {
			c[m] = make([]float32, d)
		}
		v, u := make([]float32, d*n), make([]float32, n*d)
		a.codes(c, keys, spread, v, u)
		var squares float64
		q := make([]float64, d)
		for i := range q {
			q[i] = r.NormFloat64()
		}
		moved := applied(q, v, u, n)
		ratio := 0.0
		for m := range c {
			code := wide(c[m])
			if x := dot(code, a.mean) / math.Sqrt(d); math.Abs(x) > 1e-4 { // codes are float32
				t.Errorf("rank %d: code %d scores the mean of all keys %g", n, m, x)
			}
			for _, k := range keys {
				s := dot(code, wide(k)) / math.Sqrt(d)
				squares += s * s / (tokens * codes)
			}
			// the centre's place is the code under the covariance, but for its length
			place := make([]float64, d)
			for i, e := range a.vectors {
				x := a.variance[i] * dot(e, code)
				for j := range place {
					place[j] += x * e[j]
				}
			}
			x := dot(moved, code) / dot(q, place)
			if m > 0 && math.Abs(x/ratio-1) > 1e-3 {
				t.Errorf("rank %d: code %d scores a query by %g times its place, others by %g", n, m, x, ratio)
			}
			ratio = x
		}
		if got := math.Sqrt(squares); math.Abs(got/spread-1) > 0.1 { // centres lie where keys are many
			t.Errorf("rank %d: scores spread by %g, want about %g", n, got, spread)
		}
	}
}

// Whitening keys and the map of queries that goes with it leave the products of keys
// without a mean as they are.
func TestWhiteningMaps(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const d, tokens = 9, 400
	for _, n := range []int{d, 3} {
		keys := someKeys(r, tokens, d)
		for i := range d { // no mean: nothing is lost
			sum := float32(0)
			for _, k := range keys {
				sum += k[i]
			}
			for _, k := range keys {
				k[i] -= sum / tokens
			}
		}
		a := principal(keys, n)
		clear(a.common) // what is left of the mean are roundings
		var v, u [2][]float32
		for i := range v {
			v[i], u[i] = make([]float32, d*n), make([]float32, n*d)
			a.asMap(v[i], u[i], a.whitening(i == 1))
		}
		for range 20 {
			k, q := wide(keys[r.IntN(tokens)]), wide(keys[r.IntN(tokens)])
			want := dot(k, q)
			got := dot(applied(k, v[0], u[0], n), applied(q, v[1], u[1], n))
			if math.Abs(got-want) > 1e-4*(1+math.Abs(want)) { // maps are float32
				t.Errorf("rank %d: product %g, of whitened %g", n, want, got)
			}
		}
	}
}

// Whitened codes and gated-delta memories are calibrated with the same bits on any
// number of workers, in any micro-batches, and lower the loss.
func TestWhitenedCalibration(t *testing.T) {
	for what, change := range map[string]func(c *qcc.Config){
		"archive without a map": func(c *qcc.Config) {},
		"archive with a map":    func(c *qcc.Config) { c.AddressRank = 4 },
		"delta": func(c *qcc.Config) {
			*c = qcc.Config{Memory: qcc.MemoryDelta, Hidden: c.Hidden, Heads: c.Heads, KV: c.KV, Dim: c.Dim, RoPE: c.RoPE, Window: 8, MaxPosition: 512, AddressRank: 4, GateBias: 2}
		},
	} {
		var want string
		for i, cfg := range []cpu.Config{{Threads: 1}, {Threads: 3, Impl: portable()}} {
			dev := device(t, cfg)
			d := load(t, dev, dense)
			a := adapter(t, d, change)
			o := few(8)
			o.CodeInit, o.Weights, o.Interval = Whitened, LayerOptions().Weights, 4
			o.MicroRows = []int{0, 1}[i]
			var first, last float32
			o.Progress = func(s Step) {
				if s.Step <= 2 {
					first += s.Loss
				}
				if s.Step > s.Steps-2 {
					last += s.Loss
				}
			}
			data := Data{texts(1, d.Vocab, 2, 30), texts(2, d.Vocab, 1, 30)}
			got, rep, err := Run(t.Context(), dev, d, a, data, o)
			if err != nil {
				t.Fatal(what, err)
			}
			if !(last < first) || rep.WindowRows <= a.Config.Window || got.Manifest.Retrofit.CodeInit != string(Whitened) {
				t.Errorf("%s: losses went from %v to %v, report %+v", what, first, last, rep)
			}
			if want == "" {
				want = rep.Hash
			}
			if rep.Hash != want {
				t.Errorf("%s, %+v: hash %s, not %s", what, cfg, rep.Hash, want)
			}
			p, err := qcc.Patch(dev, d, got)
			if err != nil {
				t.Fatal(what, err)
			}
			p.Close()
		}
	}
}
