package cpu

import (
	"encoding/binary"

	"samebit/backend/cpu/internal/gemm"
	"samebit/tensor"
)

// Models are trained in bf16 and often distributed as float32. A float32 matrix
// whose values are all bf16 is packed as bf16: half the memory and, in decoding,
// half the bandwidth, for the same values and therefore the same bits.

// packNarrow packs a float32 weight as bf16 and reports whether its values allow it;
// whether they do shows while the workers pack, so that the values are read once. If
// they do not, which most matrices show at once, the weight is as it was; p.read has
// then been called for everything or for nothing, and is nil in the first case.
func (d *Device) packNarrow(w *weight, p *packing) (bool, error) {
	if w.dt != tensor.F32 || !isBF16(p.src[:min(len(p.src), 4096)]) {
		return false, nil
	}
	wide := w.codec
	w.codec, _ = codec(d.set, tensor.BF16)
	p.narrow = gemm.Narrower(d.set)
	if err := d.lay(w, p); err != nil {
		return false, err
	}
	if w.narrowed = !p.wide.Load(); w.narrowed {
		return true, nil
	}
	d.slabs.put(w.mem)
	w.codec, p.narrow, p.read = wide, nil, nil
	return false, nil
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
