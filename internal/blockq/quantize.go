package blockq

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Quantize encodes src as blocks of t, one of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1,
// into the first t.RowBytes(len(src)) bytes of dst; the bytes are those of the
// gguf library. Steps are float32 and separately rounded except where noted;
// the quants use the scale before it is rounded to half. A NaN is encoded as
// the smallest code. It fails for other types, for a length that is not a
// multiple of 32 and for a short dst.
func Quantize(dst []byte, src []float32, t Type) error {
	switch t {
	case Q8_0, Q4_0, Q4_1, Q5_0, Q5_1:
	default:
		return fmt.Errorf("blockq: quantize to %v: no encoder (have Q8_0, Q4_0, Q4_1, Q5_0, Q5_1)", t)
	}
	if len(src)%32 != 0 {
		return fmt.Errorf("blockq: quantize %d values to %v: not a multiple of the block of 32", len(src), t)
	}
	if need := t.RowBytes(len(src)); len(dst) < need {
		return fmt.Errorf("blockq: quantize %d values to %v: dst holds %d bytes, %d are needed", len(src), t, len(dst), need)
	}
	n := t.BlockBytes()
	for ; len(src) > 0; src, dst = src[32:], dst[n:] {
		x, out := src[:32], dst[:n]
		switch t {
		case Q8_0:
			quantize8(out, x)
		case Q4_0, Q5_0:
			quantizeSym(out, x, t)
		default:
			quantizeMin(out, x, t)
		}
	}
	return nil
}

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// code clamps to [0, top] and truncates; NaN gives 0. Clamping first keeps the
// conversion to an integer in range, where every machine agrees.
func code(v, top float64) uint32 {
	switch {
	case v >= top:
		return uint32(top)
	case v > 0:
		return uint32(v)
	}
	return 0
}

// quantize8: d = max|x|/127, q = x/d rounded with halves away from zero.
func quantize8(out []byte, x []float32) {
	var top float32
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > top {
			top = a
		}
	}
	d := top / 127
	id := inverse(d)
	binary.LittleEndian.PutUint16(out, F32ToF16(d))
	for i, v := range x {
		r := math.Round(float64(float32(v * id)))
		q := int8(-127)
		switch {
		case r >= 127:
			q = 127
		case r > -127:
			q = int8(r)
		}
		out[2+i] = byte(q)
	}
}

// quantizeSym: d = X/-c for the value X of largest magnitude,
// q = trunc(x/d + c + 0.5) in float64.
func quantizeSym(out []byte, x []float32, t Type) {
	c := 8.0
	if t == Q5_0 {
		c = 16
	}
	var top, big float32
	for _, v := range x {
		if a := float32(math.Abs(float64(v))); a > top {
			top, big = a, v
		}
	}
	d := big / float32(-c)
	id := inverse(d)
	binary.LittleEndian.PutUint16(out, F32ToF16(d))
	var q [32]uint32
	for i, v := range x {
		q[i] = code(float64(float64(v)*float64(id))+c+0.5, 2*c-1)
	}
	nibbles(out[2:], &q, t == Q5_0)
}

// quantizeMin: m = min, d = (max-m)/n, q = trunc((x-m)/d + 0.5).
func quantizeMin(out []byte, x []float32, t Type) {
	n := float32(15)
	if t == Q5_1 {
		n = 31
	}
	lo, hi := x[0], x[0]
	for _, v := range x {
		if v < lo {
			lo = v
		}
		if v > hi {
			hi = v
		}
	}
	d := (hi - lo) / n
	id := inverse(d)
	binary.LittleEndian.PutUint16(out, F32ToF16(d))
	binary.LittleEndian.PutUint16(out[2:], F32ToF16(lo))
	var q [32]uint32
	for i, v := range x {
		q[i] = code(float64(float32(float32((v-lo)*id)+0.5)), float64(n))
	}
	nibbles(out[4:], &q, t == Q5_1)
}

// nibbles writes the fifth bits, where the format has them, and 16 bytes of
// value j (low) and value j+16 (high).
func nibbles(out []byte, q *[32]uint32, five bool) {
	if five {
		var h uint32
		for i, v := range q {
			h |= v >> 4 << i
		}
		binary.LittleEndian.PutUint32(out, h)
		out = out[4:]
	}
	for j := range 16 {
		out[j] = byte(q[j]&15 | q[j+16]&15<<4)
	}
}
