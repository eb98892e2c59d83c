package qcc

import (
	"math/big"

	"samebit/internal/canon"
)

// schedule returns half-lives and factors, each rounded once from more bits
// (docs/numerics.md 6).
func (c Config) schedule() (half, decay []float64) {
	half, decay = make([]float64, c.Scales), make([]float64, c.Scales)
	if c.Decay != nil {
		copy(decay, c.Decay)
		for i, r := range c.Decay {
			if r > 0 && r < 1 {
				half[i] = round(quo(canon.BigLog(canon.Big(0.5)), canon.BigLog(canon.Big(r))))
			}
		}
		return half, decay
	}
	for s, h := range c.spaced(c.Scales) {
		half[s] = round(h)
		decay[s] = round(canon.BigPow(canon.Big(2), quo(canon.Big(-1), h)))
	}
	return half, decay
}

// spaced are n half-lives, log-spaced from the window to MaxPosition.
func (c Config) spaced(n int) []*big.Float {
	lo := max(1, c.Window)
	hi := max(lo, c.MaxPosition)
	ratio := quo(canon.Big(float64(hi)), canon.Big(float64(lo)))
	out := make([]*big.Float, n)
	for s := range out {
		h := canon.Big(float64(lo))
		if s > 0 && hi > lo {
			h.Mul(h, canon.BigPow(ratio, quo(canon.Big(float64(s)), canon.Big(float64(n-1)))))
		}
		out[s] = h
	}
	return out
}

func quo(a, b *big.Float) *big.Float { return new(big.Float).SetPrec(a.Prec()).Quo(a, b) }

func round(x *big.Float) float64 {
	v, _ := x.Float64()
	return v
}
