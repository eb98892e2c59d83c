package backend

import (
	"fmt"
	"math"
	"math/big"

	"samebit/internal/canon"
)

// RoPE is a rotary table (numerics.md 6): the frequency of each pair of
// components and a factor on cosines and sines. It is immutable and may be
// shared; devices derive what they need from it.
type RoPE struct {
	Inv    []float32 // inverse frequencies; the rotary width is 2·len(Inv)
	Factor float32   // multiplies cos and sin; 1 for none
}

// Scaling changes the frequencies for contexts longer than a model was trained
// on. Type is "default", "linear", "llama3" or "yarn"; the other fields mirror
// the keys of rope_parameters, 0 meaning the key is absent.
type Scaling struct {
	Type            string
	Factor          float64
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64 // llama3
	Original        float64 // original_max_position_embeddings
	BetaFast        float64 // yarn, default 32
	BetaSlow        float64 // yarn, default 1
	NoTruncate      bool    // yarn, "truncate": false
	AttentionFactor float64 // yarn
	MScale          float64 // yarn
	MScaleAllDim    float64 // yarn
}

// maxFreq keeps the angle of every position far inside what canon.SinCos reduces
// exactly; models have frequencies up to 1.
const maxFreq = 1 << 20

// NewRoPE makes the table of a rotary width (even, at most 2^16) from the base
// theta. A divisor table, as GGUF files carry it, divides each frequency once.
func NewRoPE(theta float64, width int, s Scaling, divisors []float32) (*RoPE, error) {
	if width < 2 || width%2 != 0 || width > 1<<16 {
		return nil, fmt.Errorf("backend: rotary width %d: want an even number from 2 to 65536", width)
	}
	if !(theta > 0) || math.IsInf(theta, 0) {
		return nil, fmt.Errorf("backend: rotary base %v: want a positive number", theta)
	}
	r := &RoPE{Inv: make([]float32, width/2), Factor: 1}
	for i := range r.Inv {
		r.Inv[i] = canon.InvFreq(theta, i, width)
	}
	if divisors != nil {
		if len(divisors) != len(r.Inv) {
			return nil, fmt.Errorf("backend: %d rotary divisors for a rotary width of %d: want %d", len(divisors), width, width/2)
		}
		for i, d := range divisors {
			if !(d > 0) || d > math.MaxFloat32 {
				return nil, fmt.Errorf("backend: rotary divisor %d is %v: want a positive number", i, d)
			}
			r.Inv[i] /= d
		}
	}
	for i, f := range r.Inv {
		if !(f > 0) || f > maxFreq {
			return nil, fmt.Errorf("backend: rotary base %v gives frequency %v for pair %d of width %d: want above 0 and at most 2^20", theta, f, i, width)
		}
	}
	switch s.Type {
	case "", "default":
		return r, nil
	}
	for _, v := range [...]float64{s.LowFreqFactor, s.HighFreqFactor, s.Original, s.BetaFast, s.BetaSlow, s.AttentionFactor, s.MScale, s.MScaleAllDim} {
		if math.IsNaN(v) || v < 0 || v > math.MaxFloat32 {
			return nil, fmt.Errorf("backend: rotary scaling %q with %v: parameters must be positive numbers", s.Type, v)
		}
	}
	if !(s.Factor >= 1) || math.IsInf(s.Factor, 0) {
		return nil, fmt.Errorf("backend: rotary scaling %q with factor %v: want at least 1", s.Type, s.Factor)
	}
	switch s.Type {
	case "linear":
		for i, f := range r.Inv {
			r.Inv[i] = canon.Round32(bf().Quo(canon.Big(float64(f)), canon.Big(s.Factor)))
		}
	case "llama3":
		if err := r.llama3(s); err != nil {
			return nil, err
		}
	case "yarn":
		if err := r.yarn(theta, width, s); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("backend: rotary scaling %q is not supported (have default, linear, llama3, yarn)", s.Type)
	}
	return r, nil
}

func bf() *big.Float { return new(big.Float).SetPrec(256) }

func (r *RoPE) llama3(s Scaling) error {
	if !(s.LowFreqFactor > 0) || !(s.HighFreqFactor > s.LowFreqFactor) || !(s.Original > 0) {
		return fmt.Errorf("backend: llama3 rotary scaling with low %v, high %v, original length %v: want 0 < low < high and a positive length",
			s.LowFreqFactor, s.HighFreqFactor, s.Original)
	}
	one, factor, orig := canon.Big(1), canon.Big(s.Factor), canon.Big(s.Original)
	low, high := canon.Big(s.LowFreqFactor), canon.Big(s.HighFreqFactor)
	twoPi := bf().Mul(canon.Big(2), canon.BigPi())
	for i, v := range r.Inv {
		f := canon.Big(float64(v))
		lambda := bf().Quo(twoPi, f)
		switch {
		case lambda.Cmp(bf().Quo(orig, high)) < 0:
		case lambda.Cmp(bf().Quo(orig, low)) > 0:
			r.Inv[i] = canon.Round32(bf().Quo(f, factor))
		default:
			t := bf().Sub(bf().Quo(orig, lambda), low)
			t.Quo(t, bf().Sub(high, low))
			u := bf().Quo(bf().Sub(one, t), factor)
			r.Inv[i] = canon.Round32(bf().Mul(f, u.Add(u, t)))
		}
	}
	return nil
}

func (r *RoPE) yarn(theta float64, width int, s Scaling) error {
	if !(s.Original > 0) {
		return fmt.Errorf("backend: yarn rotary scaling with original length %v: want a positive length", s.Original)
	}
	if theta <= 1 {
		return fmt.Errorf("backend: yarn rotary scaling of base %v: want a base above 1", theta)
	}
	fast, slow := s.BetaFast, s.BetaSlow
	if fast == 0 {
		fast = 32
	}
	if slow == 0 {
		slow = 1
	}
	lnBase2 := bf().Mul(canon.Big(2), canon.BigLog(canon.Big(theta)))
	twoPi := bf().Mul(canon.Big(2), canon.BigPi())
	dim := func(n float64) *big.Float { // the component that turns n times over the original length
		t := canon.BigLog(bf().Quo(canon.Big(s.Original), bf().Mul(twoPi, canon.Big(n))))
		return t.Quo(t.Mul(t, canon.Big(float64(width))), lnBase2)
	}
	lo, hi := dim(fast), dim(slow)
	if !s.NoTruncate {
		lo, hi = floor(lo), ceil(hi)
	}
	if lo.Sign() < 0 {
		lo = canon.Big(0)
	}
	if last := canon.Big(float64(width - 1)); hi.Cmp(last) > 0 {
		hi = last
	}
	if lo.Cmp(hi) == 0 {
		hi = bf().Add(hi, canon.Big(0.001))
	}
	one, factor := canon.Big(1), canon.Big(s.Factor)
	for i, v := range r.Inv {
		f := canon.Big(float64(v))
		ramp := bf().Quo(bf().Sub(canon.Big(float64(i)), lo), bf().Sub(hi, lo))
		switch {
		case ramp.Sign() <= 0:
			continue
		case ramp.Cmp(one) >= 0:
			r.Inv[i] = canon.Round32(bf().Quo(f, factor))
		default:
			a := bf().Mul(bf().Quo(f, factor), ramp)
			r.Inv[i] = canon.Round32(a.Add(a, bf().Mul(f, bf().Sub(one, ramp))))
		}
	}
	mscale := func(m float64) *big.Float {
		if s.Factor <= 1 {
			return canon.Big(1)
		}
		t := bf().Quo(canon.Big(m), canon.Big(10))
		t.Mul(t, canon.BigLog(factor))
		return t.Add(t, one)
	}
	switch {
	case s.AttentionFactor != 0:
		r.Factor = float32(s.AttentionFactor)
	case s.MScale != 0 && s.MScaleAllDim != 0:
		r.Factor = canon.Round32(bf().Quo(mscale(s.MScale), mscale(s.MScaleAllDim)))
	default:
		r.Factor = canon.Round32(mscale(1))
	}
	return nil
}

func floor(x *big.Float) *big.Float {
	i, _ := x.Int(nil)
	f := bf().SetInt(i)
	if f.Cmp(x) > 0 {
		f.Sub(f, canon.Big(1))
	}
	return f
}

func ceil(x *big.Float) *big.Float {
	f := floor(x)
	if f.Cmp(x) < 0 {
		f.Add(f, canon.Big(1))
	}
	return f
}

// Angles writes the cosine and sine of each pair at a position below 2^24,
// times Factor.
func (r *RoPE) Angles(cos, sin []float32, pos int) {
	p := float32(pos)
	for i, f := range r.Inv {
		s, c := canon.SinCos(p * f)
		if r.Factor != 1 {
			s, c = s*r.Factor, c*r.Factor
		}
		cos[i], sin[i] = c, s
	}
}
