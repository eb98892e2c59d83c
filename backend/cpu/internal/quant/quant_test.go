package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
	"samebit/internal/blockq"
	"samebit/internal/canon"
)

// impl is one implementation of the codecs.
type impl struct {
	set  isa.Set
	wide bool // 512-bit vectors
}

func (i impl) codec(t blockq.Type) panel.Codec { return codec(i.set, t, i.wide) }

func (i impl) String() string {
	if i.wide {
		return i.set.String() + "-wide"
	}
	return i.set.String()
}

// impls are all that this machine can run, whichever of them Codec chooses here.
func impls() []impl {
	var all []impl
	for _, s := range isa.Available() {
		all = append(all, impl{set: s})
		if s == isa.AVX512 {
			all = append(all, impl{s, true})
		}
	}
	return all
}

// randomRows makes file rows of any bits, with halves that are finite and now
// and then subnormal, zero, negative or the largest.
func randomRows(rng *rand.Rand, t blockq.Type, rows, k int) []byte {
	n := t.BlockBytes()
	src := make([]byte, rows*t.RowBytes(k))
	rng.Read(src)
	half := func(b []byte) {
		h := uint16(rng.Intn(1 << 16))
		switch rng.Intn(8) {
		case 0:
			h &= 0x83ff // subnormal
		case 1:
			h &= 0x8000
		case 2:
			h = h&0x8000 | 0x7bff
		default:
			h = h&0x83ff | uint16(8+rng.Intn(10))<<10
		}
		binary.LittleEndian.PutUint16(b, h)
	}
	for b := 0; b < len(src); b += n {
		f := src[b : b+n]
		switch t {
		case blockq.Q2_K:
			half(f[80:])
			half(f[82:])
		case blockq.Q3_K, blockq.Q6_K:
			half(f[n-2:])
		case blockq.Q8_0, blockq.Q4_0, blockq.Q5_0:
			half(f)
		default:
			half(f)
			half(f[2:])
		}
	}
	return src
}

// dot is numerics.md 2.
func dot(x, w []float32) float32 {
	var total float32
	for b := 0; b < len(x); b += 128 {
		var acc float32
		for k := b; k < min(b+128, len(x)); k++ {
			acc = canon.FMA32(x[k], w[k], acc)
		}
		total += acc
	}
	return total
}

func bits(f float32) uint32 {
	if f != f {
		return 0x7fc00000
	}
	return math.Float32bits(f)
}

// guarded returns a slice of n floats between NaN guards and a check of them.
func guarded(n int) ([]float32, func() bool) {
	const guard = 0x7fc0beef
	buf := make([]float32, n+32)
	for i := range buf {
		buf[i] = math.Float32frombits(guard)
	}
	return buf[16 : 16+n : 16+n], func() bool {
		for i := range 16 {
			if math.Float32bits(buf[i]) != guard || math.Float32bits(buf[16+n+i]) != guard {
				return false
			}
		}
		return true
	}
}

func lengths(t blockq.Type) []int {
	if t.BlockValues() == 256 {
		return []int{256, 512, 768, 1280}
	}
	return []int{32, 64, 96, 128, 160, 256, 288, 576}
}

func TestCodecs(t *testing.T) {
	for _, s := range impls() {
		for _, ty := range blockq.Types() {
			t.Run(fmt.Sprintf("%v/%v", s, ty), func(t *testing.T) {
				for _, k := range lengths(ty) {
					rowCounts := []int{1, 31, 33, 70}
					if testing.Short() || s.set == isa.Generic {
						rowCounts = []int{37}
					}
					for _, rows := range rowCounts {
						check(t, s, ty, rows, k, int64(rows*10000+k))
					}
				}
			})
		}
	}
}

// Every number of rows; both ends of a panel.
func TestRowCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("about 70 small matrices for each set and format")
	}
	for _, s := range impls()[1:] {
		for _, ty := range blockq.Types() {
			for rows := 1; rows <= 70; rows++ {
				check(t, s, ty, rows, ty.BlockValues(), int64(rows))
			}
		}
	}
}

func TestAllocates(t *testing.T) {
	for _, s := range impls() {
		for _, ty := range blockq.Types() {
			const k = 256
			c := s.codec(ty)
			src := randomRows(rand.New(rand.NewSource(1)), ty, 32, k)
			p, x, y, w := make([]byte, c.Bytes(k)), make([]float32, k), make([]float32, 32), make([]float32, 128*32)
			n := testing.AllocsPerRun(3, func() {
				c.Pack(p, src, ty.RowBytes(k), 32, k)
				c.Row(x, p, 7, k)
				c.Expand(w, p, k, 128, 128)
				c.Gemv(y, x, p, k)
			})
			if n != 0 {
				t.Errorf("%v %v: %v allocations", s, ty, n)
			}
		}
	}
}

// Matrices of no inputs give zeros.
func TestNoInputs(t *testing.T) {
	for _, s := range impls() {
		c := s.codec(blockq.Q4_0)
		y := []float32{31: 5}
		c.Gemv(y, nil, nil, 0)
		c.Expand(nil, nil, 0, 0, 0)
		if y[31] != 0 {
			t.Errorf("%v: y = %v", s, y)
		}
	}
}

func check(t *testing.T, s impl, ty blockq.Type, rows, k int, seed int64) {
	t.Helper()
	rng := rand.New(rand.NewSource(seed))
	where := fmt.Sprintf("%v %v rows %d k %d seed %d", s, ty, rows, k, seed)
	src := randomRows(rng, ty, rows, k)
	c := s.codec(ty)
	stride := ty.RowBytes(k)
	size, n := c.Bytes(k), panel.Count(rows)
	if size%64 != 0 {
		t.Fatalf("%s: panel of %d bytes", where, size)
	}
	packed := make([]byte, n*size)
	rng.Read(packed) // Pack must overwrite all
	for p := range n {
		c.Pack(packed[p*size:][:size], src[p*32*stride:], stride, min(32, rows-32*p), k)
	}
	w := make([]float32, n*32*k)
	blockq.Dequant(w[:rows*k], src, ty)

	x := make([]float32, k)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	x[rng.Intn(k)] = 0x1p-140
	for _, special := range []float64{math.NaN(), math.Inf(-1), 0} {
		y, intact := guarded(n * 32)
		c.Gemv(y, x, packed, k)
		if !intact() {
			t.Fatalf("%s: Gemv wrote outside y", where)
		}
		for r := range y {
			if want := dot(x, w[r*k:][:k]); bits(y[r]) != bits(want) {
				t.Fatalf("%s: Gemv[%d] = %x, want %x", where, r, y[r], want)
			}
		}
		x[k/2] = float32(special) // for the next turn
	}
	for p := range n {
		pk := packed[p*size:][:size]
		for rows := 2; rows <= c.MaxTile; rows++ {
			checkTile(t, where, &c, pk, w[p*32*k:][:32*k], rows, rng)
		}
		for k0 := 0; k0 < k; k0 += 128 {
			m := min(128, k-k0)
			dst, intact := guarded(m * 32)
			c.Expand(dst, pk, k, k0, m)
			if !intact() {
				t.Fatalf("%s: Expand wrote outside dst", where)
			}
			for i, v := range dst {
				want := w[(p*32+i%32)*k+k0+i/32]
				if bits(v) != bits(want) && (v != 0 || want != 0) {
					t.Fatalf("%s: Expand of input %d row %d = %x, want %x", where, k0+i/32, i%32, v, want)
				}
			}
		}
		for lane := range min(32, rows-32*p) {
			dst, intact := guarded(k)
			c.Row(dst, pk, lane, k)
			if !intact() {
				t.Fatalf("%s: Row wrote outside dst", where)
			}
			for i, v := range dst {
				if want := w[(p*32+lane)*k+i]; bits(v) != bits(want) {
					t.Fatalf("%s: Row %d[%d] = %x, want %x", where, lane, i, v, want)
				}
			}
		}
	}
}

// checkTile compares a panel's product with some rows of inputs, block by block.
func checkTile(t *testing.T, where string, c *panel.Codec, p []byte, w []float32, rows int, rng *rand.Rand) {
	t.Helper()
	k := len(w) / 32
	x := make([]float32, rows*k) // [rows][k]
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	const ld = 35 // of the sums
	sums, intact := guarded((rows-1)*ld + 32)
	zero := make([]float32, 32)
	for k0 := 0; k0 < k; k0 += 128 {
		n := min(128, k-k0)
		a := make([]float32, n*rows)
		for i := range a {
			a[i] = x[i%rows*k+k0+i/rows]
		}
		src, stride := &sums[0], ld*4
		if k0 == 0 {
			src, stride = &zero[0], 0
		}
		c.Tile(rows, &sums[0], ld*4, src, stride, &a[0], p, k0, n)
	}
	if !intact() {
		t.Fatalf("%s: Tile wrote outside dst", where)
	}
	for i, v := range sums {
		r, lane := i/ld, i%ld
		if lane >= 32 {
			if v == v {
				t.Fatalf("%s: Tile wrote between rows", where)
			}
		} else if want := dot(x[r*k:][:k], w[lane*k:][:k]); bits(v) != bits(want) {
			t.Fatalf("%s: Tile of %d rows: [%d, %d] = %x, want %x", where, rows, r, lane, v, want)
		}
	}
}
