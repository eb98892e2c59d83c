package gemm

import (
	"fmt"
	"math"
	"unsafe"

	"samebit/backend/cpu/internal/isa"
	"samebit/backend/cpu/internal/panel"
)

// DType is a weight format without blocks.
type DType uint8

const (
	F32  DType = iota // panels [K][32] float32
	BF16              // panels [K][16] words of two bfloat16, outputs r and r+16
	F16               // panels [K][32] IEEE binary16
)

func (d DType) String() string {
	switch d {
	case F32:
		return "f32"
	case BF16:
		return "bf16"
	case F16:
		return "f16"
	}
	return fmt.Sprintf("gemm.DType(%d)", uint8(d))
}

// step returns the bytes that one input takes in a panel.
func (d DType) step() int {
	if d == F32 {
		return 4 * width
	}
	return 2 * width
}

// format holds the kernels of one DType for one instruction set; nil members
// are done in plain Go.
type format struct {
	gemv   []gemvKernel // most panels first, ending with one that does a single panel
	expand func(dst *float32, src *byte, n int)
	// pack writes inputs [0, n) of a panel of 32 rows, which begin stride bytes
	// apart; n is a multiple of packStep.
	pack     func(dst, src *byte, stride, n int)
	packStep int
	// packNow is pack for panels that are read at once, where pack stores past
	// the cache; nil: pack serves.
	packNow func(dst, src *byte, stride, n int)
	// narrow is pack of BF16 from float32 rows; it reports a value that is no bf16.
	narrow func(dst, src *byte, stride, n int) (wide bool)
}

// gemvKernel computes groups·panels outputs: y[32·p+lane] = DOT(x, weight).
// Panels lie panelBytes apart.
type gemvKernel struct {
	panels int
	run    func(y, x *float32, w *byte, panelBytes, k, groups int)
}

// Codec returns the panel format of dt with its kernels for an available
// instruction set. Panels packed by one set may be read by any other.
func Codec(s isa.Set, dt DType) panel.Codec {
	f := nativeFormat(s, dt)
	step := dt.step()
	c := panel.Codec{
		Name:  dt.String(),
		Bytes: func(k int) int { return align64(k * step) },
		Pack: func(dst, src []byte, stride, rows, k int) {
			n := 0
			if f.pack != nil && rows == width && k >= f.packStep {
				n = k - k%f.packStep
				_ = src[(width-1)*stride+k*step/width-1]
				f.pack(&dst[0], &src[0], stride, n)
			}
			packSlow(dt, dst, src, stride, rows, n, k)
		},
		Row: func(dst []float32, panel []byte, lane, k int) {
			row(dt, dst, panel, lane, k)
		},
		Gemv: func(y, x []float32, panels []byte, k int) { genericGemv(dt, y, x, panels, k) },
	}
	if f.gemv != nil {
		c.Gemv = func(y, x []float32, panels []byte, k int) { gemv(f.gemv, y, x, panels, k, align64(k*step)) }
	}
	if dt == F32 {
		return c
	}
	c.Expand = func(dst []float32, panel []byte, k, k0, n int) { dt.expand(dst, panel[k0*step:], n) }
	if f.expand != nil {
		c.Expand = func(dst []float32, panel []byte, k, k0, n int) {
			if n > 0 {
				_, _ = dst[n*width-1], panel[(k0+n)*step-1]
				f.expand(&dst[0], &panel[k0*step], n)
			}
		}
	}
	return c
}

func gemv(kernels []gemvKernel, y, x []float32, panels []byte, k, bytes int) {
	if k == 0 {
		clear(y)
		return
	}
	np := len(y) / width
	_, _ = x[k-1], panels[:np*bytes]
	p := 0
	for _, g := range kernels {
		if groups := (np - p) / g.panels; groups > 0 {
			g.run(&y[p*width], &x[0], &panels[p*bytes], bytes, k, groups)
			p += groups * g.panels
		}
	}
}

// packSlow packs inputs [k0, k) and everything of a panel with missing rows.
func packSlow(dt DType, dst, src []byte, stride, rows, k0, k int) {
	if dt == F32 {
		d := floats(dst)
		for i := k0; i < k; i++ {
			out := d[i*width : (i+1)*width]
			for r := range rows {
				o := r*stride + i*4
				out[r] = math.Float32frombits(uint32(src[o]) | uint32(src[o+1])<<8 | uint32(src[o+2])<<16 | uint32(src[o+3])<<24)
			}
			clear(out[rows:])
		}
		return
	}
	for i := k0; i < k; i++ {
		for r := range width {
			e := r
			if dt == BF16 {
				e = bf16At(r)
			}
			o := (i*width + e) * 2
			if r < rows {
				s := r*stride + i*2
				dst[o], dst[o+1] = src[s], src[s+1]
			} else {
				dst[o], dst[o+1] = 0, 0
			}
		}
	}
}

func row(dt DType, dst []float32, src []byte, lane, k int) {
	for i := range k {
		switch dt {
		case F32:
			dst[i] = floats(src)[i*width+lane]
		case BF16:
			dst[i] = math.Float32frombits(uint32(half(src, i, bf16At(lane))) << 16)
		case F16:
			dst[i] = f16(half(src, i, lane))
		}
	}
}

// floats views a 4-byte aligned panel as float32.
func floats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4)
}

// PackPanel fills one float32 panel dst[k][32] from a matrix in memory: output r
// has its inputs at src[r·ld + i], or at src[i·ld + r] if trans. rows <= 32;
// missing rows become zeros.
func PackPanel(s isa.Set, dst, src []float32, ld int, trans bool, rows, k int) {
	if k == 0 {
		return
	}
	if trans {
		packTransPanel(packRows, dst, src, ld, rows, k)
		return
	}
	PackerFor(s).Pack(dst, src, ld, rows, k)
}
