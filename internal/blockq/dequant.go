package blockq

import "encoding/binary"

// Dequant writes the float32 values of the blocks of src, in order.
//
// len(dst) must be a multiple of t.BlockValues() and src hold at least
// t.RowBytes(len(dst)) bytes of a valid type t. Every product is exact (at most
// 24 bits), so that only the final sum of the formats with a minimum rounds,
// and a multiply-add may be fused or not.
func Dequant(dst []float32, src []byte, t Type) {
	s := t.shape()
	for len(dst) > 0 {
		block(dst[:s.values], src[:s.bytes], t)
		dst, src = dst[s.values:], src[s.bytes:]
	}
}

func half(b []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(b)) }

func block(dst []float32, src []byte, t Type) {
	switch t {
	case Q8_0:
		d := half(src)
		for i, q := range src[2:34] {
			dst[i] = d * float32(int8(q))
		}
	case Q4_0, Q5_0, Q4_1, Q5_1:
		simple(dst, src, t)
	case Q2_K:
		q2k(dst, src)
	case Q3_K:
		q3k(dst, src)
	case Q4_K:
		d, dmin := half(src), half(src[2:])
		q45k(dst, src[4:16], nil, src[16:], d, dmin)
	case Q5_K:
		d, dmin := half(src), half(src[2:])
		q45k(dst, src[4:16], src[16:48], src[48:], d, dmin)
	case Q6_K:
		q6k(dst, src)
	}
}

// simple does the 4 and 5 bit formats of 32 values: d·(q-c), or d·q + m.
func simple(dst []float32, src []byte, t Type) {
	d, m, c := half(src), float32(0), int32(0)
	src = src[2:]
	withMin := t == Q4_1 || t == Q5_1
	if withMin {
		m = half(src)
		src = src[2:]
	}
	var fifth uint32
	switch t {
	case Q4_0:
		c = 8
	case Q5_0, Q5_1:
		fifth = binary.LittleEndian.Uint32(src)
		src = src[4:]
		if t == Q5_0 {
			c = 16
		}
	}
	for i := range 32 {
		q := int32(src[i&15] >> (i / 16 * 4) & 15)
		q |= int32(fifth>>i&1) << 4
		w := d * float32(q-c)
		if withMin {
			w = float32(w) + m
		}
		dst[i] = w
	}
}

func q2k(dst []float32, src []byte) {
	scales, qs := src[:16], src[16:80]
	d, dmin := half(src[80:]), half(src[82:])
	for v := range 256 {
		q := qs[v/128*32+v%32] >> (v % 128 / 32 * 2) & 3
		s := scales[v/16]
		dst[v] = float32(float32(d*float32(s&15))*float32(q)) - float32(dmin*float32(s>>4))
	}
}

// Scales3 unpacks the sixteen signed 6-bit scales of a Q3_K block.
func Scales3(sc *[16]int8, s []byte) {
	for k := range 16 {
		lo := s[k&7] >> (k / 8 * 4) & 15
		hi := s[8+k%4] >> (k / 4 * 2) & 3
		sc[k] = int8(lo|hi<<4) - 32
	}
}

func q3k(dst []float32, src []byte) {
	hmask, qs := src[:32], src[32:96]
	d := half(src[108:])
	var sc [16]int8
	Scales3(&sc, src[96:108])
	for v := range 256 {
		l, n, j := v%32, v/128, v%128/32
		q := int(qs[32*n+l] >> (2 * j) & 3)
		q += int(hmask[l]>>(4*n+j)&1)*4 - 4
		dst[v] = d * float32(sc[v/16]) * float32(q)
	}
}

// Scales45 unpacks the eight 6-bit scales and minima of a Q4_K or Q5_K block.
func Scales45(sc, mn *[8]uint8, s []byte) {
	for b := range 4 {
		sc[b] = s[b] & 63
		mn[b] = s[b+4] & 63
		sc[b+4] = s[b+8]&15 | s[b]>>6<<4
		mn[b+4] = s[b+8]>>4 | s[b+4]>>6<<4
	}
}

// q45k does Q4_K and, with the fifth bits qh, Q5_K.
func q45k(dst []float32, scales, qh, qs []byte, d, dmin float32) {
	var sc, mn [8]uint8
	Scales45(&sc, &mn, scales)
	for v := range 256 {
		b, l := v/32, v%32
		q := qs[v/64*32+l] >> (b % 2 * 4) & 15
		if qh != nil {
			q |= qh[l] >> b & 1 << 4
		}
		dst[v] = float32(float32(d*float32(sc[b]))*float32(q)) - float32(dmin*float32(mn[b]))
	}
}

func q6k(dst []float32, src []byte) {
	ql, qh, scales := src[:128], src[128:192], src[192:208]
	d := half(src[208:])
	for v := range 256 {
		n, j, l := v/128, v%128/32, v%32
		q := int(ql[64*n+32*(j&1)+l] >> (j / 2 * 4) & 15)
		q |= int(qh[32*n+l]>>(2*j)&3) << 4
		dst[v] = d * float32(int8(scales[v/16])) * float32(q-32)
	}
}
