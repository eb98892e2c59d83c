package cpu

import (
	"encoding/binary"

	"samebit/backend/cpu/internal/gemm"
	"samebit/tensor"
)

// Models are trained in bf16 and often distributed as float32. A float32 matrix
// whose values are all bf16 is packed as bf16: half the memory and, in decoding,
// half the bandwidth, for the same values and therefore the same bits.

// tryNarrow has a float32 weight packed as bf16 if it begins like one. Whether all its
// values allow it shows while the workers pack, so that they are read once; see narrowed.
func (p *packing) tryNarrow() {
	w := p.w
	if w.dt == tensor.F32 && isBF16(p.src[:min(len(p.src), 4096)]) {
		w.codec, _ = codec(w.dev.set, tensor.BF16)
		p.narrow = gemm.Narrower(w.dev.set)
	}
}

// narrowed reports whether the values allowed what tryNarrow chose. If not, the weight is
// as it was before; p.read has then been called for everything and is nil.
func (p *packing) narrowed() bool {
	w := p.w
	if w.narrowed = !p.wide.Load(); !w.narrowed {
		w.free()
		w.codec, _ = codec(w.dev.set, w.dt)
		p.narrow, p.read = nil, nil
	}
	return w.narrowed
}

// isBF16 reports whether the low halves of all little-endian float32 are zero.
func isBF16(b []byte) bool {
	for ; len(b) > 0; b = b[4:] {
		if binary.LittleEndian.Uint16(b) != 0 {
			return false
		}
	}
	return true
}
