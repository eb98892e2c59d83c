package gonumblas

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"gonum.org/v1/gonum/blas"

	"samebit/backend/cpu"
)

// variant is one way to compute the same bits.
type variant struct {
	name string
	b    *Implementation
}

var variants []variant

func TestMain(m *testing.M) {
	var devices []*cpu.Device
	for _, impl := range cpu.Impls() {
		for _, threads := range []int{1, 2, 3, 8} {
			dev, err := cpu.New(cpu.Config{Threads: threads, Impl: impl})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			devices = append(devices, dev)
			variants = append(variants, variant{fmt.Sprintf("%s/%d threads", impl, threads), New(dev)})
		}
	}
	code := m.Run()
	for _, dev := range devices {
		dev.Close()
	}
	os.Exit(code)
}

// fastest is the variant that programs get on one thread.
func fastest() variant { return variants[len(variants)-4] }

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || (a != a && b != b)
}

func sameAll(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s: element %d is %x (%g), want %x (%g)", what, i, math.Float32bits(got[i]), got[i], math.Float32bits(want[i]), want[i])
		}
	}
}

var nan = float32(math.NaN())

// random returns n normal numbers with some zeros of both signs and subnormals.
func random(r *rand.Rand, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		switch r.IntN(40) {
		case 0:
			v[i] = 0
		case 1:
			v[i] = float32(math.Copysign(0, -1))
		case 2:
			v[i] = math.Float32frombits(r.Uint32() & 0x807fffff)
		default:
			v[i] = float32(r.NormFloat64())
		}
	}
	return v
}

// matrix is rows×cols numbers between NaN: in the gaps of ld, before and behind.
type matrix struct {
	rows, cols, ld, off int
	all                 []float32
}

func newMatrix(r *rand.Rand, rows, cols int) *matrix {
	m := &matrix{rows: rows, cols: cols, ld: max(1, cols+r.IntN(3)*r.IntN(20)), off: r.IntN(9)}
	m.all = make([]float32, m.off+rows*m.ld+7)
	for i := range m.all {
		m.all[i] = nan
	}
	for i := range rows {
		copy(m.row(i), random(r, cols))
	}
	return m
}

// data begins with the first element and ends with the last (gonum wants the
// rows above the last to be there even if they have no columns).
func (m *matrix) data() []float32 {
	n := max(0, (m.rows-1)*m.ld+m.cols)
	return m.all[m.off : m.off+n : m.off+n]
}

func (m *matrix) row(i int) []float32 {
	o := m.off + i*m.ld
	return m.all[o : o+m.cols]
}

func (m *matrix) at(i, j int, trans bool) float32 {
	if trans {
		i, j = j, i
	}
	return m.all[m.off+i*m.ld+j]
}

func (m *matrix) clone() *matrix {
	c := *m
	c.all = append([]float32(nil), m.all...)
	return &c
}

// transpose is the same matrix stored the other way.
func (m *matrix) transpose(r *rand.Rand) *matrix {
	t := newMatrix(r, m.cols, m.rows)
	for i := range m.rows {
		for j := range m.cols {
			t.row(j)[i] = m.row(i)[j]
		}
	}
	return t
}

// guards reports an element outside the matrix that is not NaN any more.
func (m *matrix) guards(t *testing.T, what string) {
	t.Helper()
	for i, v := range m.all {
		o := i - m.off
		inside := o >= 0 && o/m.ld < m.rows && o%m.ld < m.cols
		if !inside && v == v {
			t.Fatalf("%s: wrote %g outside the matrix, at %d", what, v, o)
		}
	}
}

// newVector returns a vector of n numbers with NaN between them.
func newVector(r *rand.Rand, n, inc int) []float32 {
	step := max(inc, -inc)
	v := make([]float32, max(0, (n-1)*step+1)+5)
	for i := range v {
		v[i] = nan
	}
	for i, x := range random(r, n) {
		v[i*step] = x
	}
	return v
}

// element returns the index of element i of a BLAS vector.
func element(i, n, inc int) int {
	if inc < 0 {
		return (i - n + 1) * inc
	}
	return i * inc
}

func flag(trans bool) blas.Transpose {
	if trans {
		return blas.Trans
	}
	return blas.NoTrans
}

var scalars = []float32{0, 1, -1, 0.3}

const eps = 0x1p-24 // relative error of one rounding

// dotBound bounds the error of DOT of k terms whose magnitudes sum to s: a term
// passes at most min(k, 128) roundings of its chain and ⌈k/128⌉ of the total;
// every rounding may also lose half the smallest subnormal.
func dotBound(k int, s float64) float64 {
	steps := float64(min(k, 128) + (k+127)/128)
	return s*steps*eps*1.001 + steps*0x1p-149
}

// scaledBound adds the roundings of alpha·dot and of beta·c + that.
func scaledBound(dot, alpha, absDot, beta, c float64) float64 {
	a := math.Abs(alpha)
	return a*dot + 2*eps*1.001*(a*(absDot+dot)) + eps*1.001*math.Abs(beta*c) + 0x1p-148
}
