package calib

import (
	"fmt"
	"math"
	"slices"

	"samebit/internal/canon"
	"samebit/qcc"
)

// axes are the principal directions of one head's keys: what whitens them. All of it
// is float64, sums in rising order, every product rounded by itself.
type axes struct {
	mean     []float64   // [D]
	vectors  [][]float64 // [N][D] of length 1, those of the largest variances
	variance []float64   // [N], along each
	rest     float64     // mean variance along the other directions, or along all if there are none
	common   []float64   // [N]: the direction of the mean in whitened coordinates, of length 1 or 0
}

// leastVariance, a fraction of the mean one, is what no direction falls below: few
// keys say little about directions in which they hardly differ.
const leastVariance = 0.01

// principal finds the n first directions of keys [T][D].
func principal(keys [][]float32, n int) axes {
	d := len(keys[0])
	a := axes{mean: make([]float64, d)}
	for _, k := range keys {
		for i, v := range k {
			a.mean[i] += float64(v)
		}
	}
	for i := range a.mean {
		a.mean[i] /= float64(len(keys))
	}
	cov := square(d)
	for _, k := range keys {
		for i := range d {
			x := float64(k[i]) - a.mean[i]
			for j := range i + 1 {
				cov[i][j] += float64(x * (float64(k[j]) - a.mean[j]))
			}
		}
	}
	total := 0.0
	for i := range d {
		for j := range i + 1 {
			cov[i][j] /= float64(len(keys))
			cov[j][i] = cov[i][j]
		}
		total += cov[i][i]
	}
	values, vectors := eigen(cov)
	least := leastVariance * (total / float64(d))
	if !(least > 0) { // keys that are all alike
		least = 1
	}
	order := make([]int, d)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case values[i] > values[j]:
			return -1
		case values[i] < values[j]:
			return 1
		}
		return 0
	})
	tail := 0.0
	for at, i := range order {
		v := max(values[i], least)
		if at < n {
			a.vectors, a.variance = append(a.vectors, vectors[i]), append(a.variance, v)
		}
		if at >= n || n >= d {
			tail += v
		}
	}
	a.rest = tail / float64(d)
	if n < d {
		a.rest = tail / float64(d-n)
	}
	a.common = make([]float64, len(a.vectors))
	for i, e := range a.vectors {
		a.common[i] = dot(e, a.mean) / math.Sqrt(a.variance[i])
	}
	if l := math.Sqrt(dot(a.common, a.common)); l > 0 {
		for i := range a.common {
			a.common[i] /= l
		}
	}
	return a
}

// white is a key in whitened coordinates, apart from the mean of all and from the
// direction of that mean.
func (a *axes) white(key []float32) []float32 {
	y := make([]float64, len(a.vectors))
	for i, e := range a.vectors {
		sum := 0.0
		for j, v := range key {
			sum += float64(e[j] * (float64(v) - a.mean[j]))
		}
		y[i] = sum / math.Sqrt(a.variance[i])
	}
	along := dot(y, a.common)
	out := make([]float32, len(y))
	for i := range y {
		out[i] = float32(y[i] - float64(along*a.common[i]))
	}
	return out
}

// spreadOf is the default of Options.CodeSpread.
const spreadOf = 2

// codes writes codes [M][D] that score keys by centres of the whitened ones, and the
// map of queries, V [D][N] and U [N][D] row-major, that lets them score queries by the
// place of the same centres among the keys themselves. Without a map, V and U nil,
// queries are whitened like keys.
func (a *axes) codes(old, keys [][]float32, spread float64, v, u []float32) {
	if spread == 0 {
		spread = spreadOf
	}
	whites := make([][]float32, len(keys))
	units := make([][]float32, len(keys))
	for i, k := range keys {
		whites[i] = a.white(k)
		units[i] = slices.Clone(whites[i])
		unit(units[i])
	}
	centres := kMeans(units, min(len(old), len(keys)))
	width := float64(len(old[0]))
	for m, c := range old {
		centre := centres[m%len(centres)]
		for j := range c {
			sum := 0.0
			for i, e := range a.vectors {
				sum += float64(float64(centre[i])*e[j]) / math.Sqrt(a.variance[i])
			}
			c[j] = float32(spread * math.Sqrt(width) * sum)
		}
	}
	if v == nil {
		return
	}
	far := 0.0 // how far a key lies out in the direction of its centre
	for _, x := range whites {
		best := math.Inf(-1)
		for _, c := range centres {
			best = max(best, float64(canon.Dot(x, c)))
		}
		far += best
	}
	far /= float64(len(whites))
	gain := square(len(a.vectors))
	for i := range gain {
		gain[i][i] = far / (spread * math.Sqrt(width)) * a.variance[i]
	}
	a.asMap(v, u, gain)
}

// asMap writes V [D][N] and U [N][D], row-major, of the map that multiplies the
// coordinates along the directions by the matrix by and leaves the others alone.
// Columns and rows beyond the directions stay.
func (a *axes) asMap(v, u []float32, by [][]float64) {
	d := len(a.mean)
	n := len(u) / d
	for i, e := range a.vectors {
		for j := range d {
			v[j*n+i] = float32(e[j])
			sum := 0.0
			for k, o := range a.vectors {
				x := by[k][i]
				if k == i {
					x--
				}
				sum += float64(x * o[j])
			}
			u[i*d+j] = float32(sum)
		}
	}
}

// whitening is the map of keys, or the one of queries that leaves the product of both
// as it is, but for the direction of the mean, which both lose.
func (a *axes) whitening(queries bool) [][]float64 {
	by := square(len(a.vectors))
	for i := range by {
		for j := range by {
			x := -float64(a.common[i] * a.common[j])
			if i == j {
				x++
			}
			scale := math.Sqrt(a.rest / a.variance[j])
			if queries {
				scale = 1 / scale
			}
			by[i][j] = float64(x * scale)
		}
	}
	return by
}

// whitened makes codes and maps of a layer from the keys of its key heads.
func (r *run) whitened(values map[string][]float32, block int, found [][][]float32) {
	c := &r.from.Config
	at := func(name string) []float32 { return values[fmt.Sprintf("layers.%d.%s", block, name)] }
	n := c.AddressRank
	if n == 0 || n > c.Dim {
		n = c.Dim
	}
	all := make([]axes, len(found))
	for h, keys := range found {
		all[h] = principal(keys, n)
	}
	size := c.AddressRank * c.Dim
	part := func(v []float32, h, size int) []float32 {
		if v == nil {
			return nil
		}
		return v[h*size : (h+1)*size]
	}
	readV, readU := at("read_v"), at("read_u")
	if c.Memory == qcc.MemoryDelta {
		if c.AddressRank == 0 {
			return
		}
		for h := range all {
			all[h].asMap(part(at("write_v"), h, size), part(at("write_u"), h, size), all[h].whitening(false))
		}
		for h := range c.Heads {
			a := &all[h/(c.Heads/len(all))]
			a.asMap(part(readV, h, size), part(readU, h, size), a.whitening(true))
		}
		return
	}
	codes := at("codes")
	per := c.Codes * c.Dim
	archives := len(codes) / per
	for h := range archives {
		old := make([][]float32, c.Codes)
		for m := range old {
			old[m] = part(codes, h*c.Codes+m, c.Dim)
		}
		key := h / (archives / len(all))
		all[key].codes(old, found[key], r.o.CodeSpread, part(readV, h, size), part(readU, h, size))
	}
}

func square(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}

func dot(x, y []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += float64(x[i] * y[i])
	}
	return sum
}

// sweeps are more than cyclic Jacobi needs for the widths of heads.
const sweeps = 16

// eigen returns eigenvalues and vectors (rows) of a symmetric matrix, which it
// destroys, by cyclic Jacobi rotations. It is our own since bits must not depend on the
// processor: libraries add products in orders that do.
func eigen(m [][]float64) (values []float64, vectors [][]float64) {
	n := len(m)
	vectors = square(n)
	for i := range vectors {
		vectors[i][i] = 1
	}
	for range sweeps {
		still := true
		for p := range n {
			for q := p + 1; q < n; q++ {
				if math.Abs(m[p][q]) <= 0x1p-53*math.Sqrt(math.Abs(float64(m[p][p]*m[q][q]))) {
					continue
				}
				still = false
				theta := (m[q][q] - m[p][p]) / float64(2*m[p][q])
				t := 1 / (math.Abs(theta) + math.Sqrt(float64(theta*theta)+1))
				if theta < 0 {
					t = -t
				}
				c := 1 / math.Sqrt(float64(t*t)+1)
				s := float64(t * c)
				turn := func(x, y *float64) {
					a, b := *x, *y
					*x, *y = float64(c*a)-float64(s*b), float64(s*a)+float64(c*b)
				}
				for k := range n {
					turn(&m[k][p], &m[k][q])
				}
				for k := range n {
					turn(&m[p][k], &m[q][k])
					turn(&vectors[p][k], &vectors[q][k])
				}
			}
		}
		if still {
			break
		}
	}
	values = make([]float64, n)
	for i := range values {
		values[i] = m[i][i]
	}
	return values, vectors
}
