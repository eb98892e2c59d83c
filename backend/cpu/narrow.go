package cpu

import (
	"encoding/binary"
	"sync/atomic"

	"samebit/backend/cpu/internal/panel"
	"samebit/tensor"
)

// Models are trained in bf16 and often distributed as float32. A float32 matrix
// whose values are all bf16 is packed as bf16: half the memory and, in decoding,
// half the bandwidth, for the same values and therefore the same bits.

// narrow reports whether every little-endian float32 of src has a bf16 value. The
// workers look at rows side by side and stop at the first that has not.
func (d *Device) narrow(src []byte, rows int) bool {
	if !isBF16(src[:min(len(src), 4096)&^7]) { // what most other matrices end at
		return false
	}
	t := &narrowing{src: src, per: (len(src)/rows*panel.Width + 7) &^ 7}
	d.pool.Run(t, (len(src)+t.per-1)/t.per)
	return !t.wide.Load()
}

type narrowing struct {
	src  []byte
	per  int
	wide atomic.Bool
}

func (n *narrowing) Do(_, chunk int) {
	if !n.wide.Load() && !isBF16(n.src[chunk*n.per:min((chunk+1)*n.per, len(n.src))]) {
		n.wide.Store(true)
	}
}

// isBF16 reports whether the low halves of all float32 are zero.
func isBF16(b []byte) bool {
	const low = 0x0000ffff_0000ffff
	var or uint64
	i := 0
	for ; i+32 <= len(b); i += 32 {
		c := b[i : i+32 : i+32]
		or |= binary.LittleEndian.Uint64(c) | binary.LittleEndian.Uint64(c[8:]) | binary.LittleEndian.Uint64(c[16:]) | binary.LittleEndian.Uint64(c[24:])
		if or&low != 0 {
			return false
		}
	}
	for ; i+4 <= len(b); i += 4 {
		or |= uint64(binary.LittleEndian.Uint32(b[i:]))
	}
	return or&low == 0
}

// halves writes the bf16 values of rows float32 rows that begin stride bytes apart.
func halves(dst, src []byte, stride, rows, k int) {
	for r := range rows {
		s, d := src[r*stride:r*stride+4*k], dst[2*r*k:2*(r+1)*k]
		for len(s) >= 16 {
			a, b := binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
			binary.LittleEndian.PutUint64(d, a>>16&0xffff|a>>48<<16|b>>16<<48>>16|b>>48<<48)
			s, d = s[16:], d[8:]
		}
		for ; len(s) > 0; s, d = s[4:], d[2:] {
			d[0], d[1] = s[2], s[3]
		}
	}
}

// narrowWeight changes what a float32 weight is packed as, if its values allow it.
func (d *Device) narrowWeight(w *weight, raw []byte) {
	if w.dt == tensor.F32 && d.narrow(raw, w.n) {
		w.codec, _ = codec(d.set, tensor.BF16)
		w.narrowed = true
	}
}
