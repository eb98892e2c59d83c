package tensortest

import (
	"hash/fnv"
	"math"
)

// Rand is a small generator of test data with the same sequence everywhere
// (splitmix64). The zero value is ready.
type Rand struct{ state uint64 }

// NewRand seeds a generator with a number and words that say what it is for.
func NewRand(seed uint64, what ...string) *Rand {
	h := fnv.New64a()
	for _, w := range what {
		h.Write([]byte(w))
		h.Write([]byte{0})
	}
	return &Rand{seed ^ h.Sum64()}
}

// Uint64 returns the next 64 bits.
func (r *Rand) Uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Intn returns a number in [0, n).
func (r *Rand) Intn(n int) int { return int(r.Uint64()>>33) % n }

// Between returns a number in [lo, hi].
func (r *Rand) Between(lo, hi int) int { return lo + r.Intn(hi-lo+1) }

// Kind says what test data looks like.
type Kind string

const (
	Ordinary   Kind = "ordinary"   // sums of uniforms, within ±4
	Wide       Kind = "wide"       // exponents from -40 to 40
	Subnormal  Kind = "subnormal"  // products and sums that underflow
	Specials   Kind = "specials"   // ordinary values with NaN, infinities, ±0, largest and smallest numbers
	MinusZeros Kind = "minus zero" // zeros of both signs among tiny values
	Ties       Kind = "ties"       // few different values
)

// Kinds lists all of them.
func Kinds() []Kind { return []Kind{Ordinary, Wide, Subnormal, Specials, MinusZeros, Ties} }

var special = [...]uint32{
	0x7fc00000, 0xffc00001, 0x7f800000, 0xff800000, 0x00000000, 0x80000000, 0x7f7fffff, 0xff7fffff,
	0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0x42b17218, 0xc2cff1b5,
}

// F32 returns n values of a kind.
func (r *Rand) F32(k Kind, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = r.float(k)
	}
	return v
}

func (r *Rand) float(k Kind) float32 {
	u := r.Uint64()
	// A sum of four 16-bit integers is exact: no rounding that a compiler or an
	// architecture could do otherwise.
	s := int(u&0xffff) + int(u>>16&0xffff) + int(u>>32&0xffff) + int(u>>48) - 4*32768
	x := float32(s) * 0x1p-15 // within ±4
	switch k {
	case Wide:
		return x * math.Float32frombits(uint32(127-40+r.Intn(81))<<23)
	case Subnormal:
		return x * math.Float32frombits(uint32(127-80+r.Intn(20))<<23)
	case Specials:
		if r.Intn(16) == 0 {
			return math.Float32frombits(special[r.Intn(len(special))])
		}
	case MinusZeros:
		switch r.Intn(3) {
		case 0:
			return math.Float32frombits(1 << 31)
		case 1:
			return 0
		}
		return x * 0x1p-100
	case Ties:
		return float32(r.Intn(3) - 1)
	}
	return x
}

// I32 returns n numbers in [0, limit).
func (r *Rand) I32(n, limit int) []int32 {
	v := make([]int32, n)
	for i := range v {
		v[i] = int32(r.Intn(limit))
	}
	return v
}

// Bytes returns n bytes.
func (r *Rand) Bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint64() >> 40)
	}
	return b
}
