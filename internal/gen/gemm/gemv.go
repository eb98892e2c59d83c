package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format is how the weights of one input lie in a panel.
type format struct {
	name  string
	step  int // bytes per input
	ahead int // bytes to prefetch ahead; 0: leave it to the hardware
}

// Prefetching makes products of one row from memory 1.06 to 1.2 times as fast (BF16 with
// AVX-512 1.02 to 1.07) on Emerald Rapids, whose hardware begins anew with each page of
// 4 KiB, and no slower from L2. Any distance from 512 to 4096 does; PREFETCHT1 gains
// little and PREFETCHNTA costs two thirds. F32 gains nothing and is 4 to 8 % slower from L2.
var formats = []format{{"F32", 128, 0}, {"BF16", 64, 1024}, {"F16", 64, 1024}}

func gemvs() {
	for _, v := range isas {
		for _, f := range formats {
			for _, p := range []int{1, 2, 3, 4} {
				if v.lanes == 8 && p == 4 {
					continue // 16 accumulators: no register is left
				}
				gemv(v, f, p)
			}
		}
	}
	for _, v := range isas {
		for _, f := range formats[1:] {
			expand(v, f)
		}
	}
}

// mask returns a register of 0xffff0000 words for the BF16 kernels.
func (v isa) mask() reg.VecVirtual {
	m, g := v.vec(), GP32()
	MOVL(U32(0xffff0000), g)
	x := XMM()
	VMOVD(g, x)
	VPBROADCASTD(x, m)
	return m
}

// and masks a into d.
func (v isa) and(m, a, d Op) {
	if v.lanes == 16 {
		VPANDD(m, a, d)
	} else {
		VPAND(m, a, d)
	}
}

// weights calls use for each vector of 32 weights at mem, widened to float32:
// vector i holds lanes i·v.lanes … of the panel. F32 weights are passed in memory.
func (v isa) weights(f format, mem func(off int) Mem, mask reg.VecVirtual, lo, hi reg.VecVirtual, use func(i int, w Op)) {
	n := width / v.lanes
	switch f.name {
	case "F32":
		for i := range n {
			use(i, mem(i*v.bytes()))
		}
	case "BF16":
		for i := range n / 2 {
			VMOVUPS(mem(i*v.bytes()), hi)
			VPSLLD(Imm(16), hi, lo)
			v.and(mask, hi, hi)
			use(i, lo)
			use(i+n/2, hi)
		}
	case "F16":
		for i := range n {
			w := lo
			if i%2 == 1 {
				w = hi
			}
			VCVTPH2PS(mem(i*v.bytes()/2), w)
			use(i, w)
		}
	}
}

// gemv generates a kernel that keeps p panels in flight: p·32/lanes chains hide
// the latency of FMA and p streams that of memory.
func gemv(v isa, f format, p int) {
	name := fmt.Sprintf("gemv%sx%d%s", f.name, p, v.name)
	TEXT(name, NOSPLIT, "func(y, x *float32, w *byte, panelBytes, k, groups int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s computes groups of %d panels; see gemvKernel.", name, p))
	y, w, pb, groups := ptr("y"), ptr("w"), ptr("panelBytes"), ptr("groups")
	nv := width / v.lanes
	acc := v.vecs(p * nv)
	x := v.vec()
	var mask, lo, hi reg.VecVirtual
	if f.name != "F32" {
		lo, hi = v.vec(), v.vec()
	}
	if f.name == "BF16" {
		mask = v.mask()
	}
	wp, xp, left, cnt := GP64(), GP64(), GP64(), GP64()
	var pb3 reg.GPVirtual
	if p > 3 {
		pb3 = GP64()
		LEAQ(Mem{Base: pb, Index: pb, Scale: 2}, pb3)
	}
	mem := func(q, off int) Mem {
		switch q {
		case 0:
			return Mem{Base: wp, Disp: off}
		case 1:
			return Mem{Base: wp, Index: pb, Scale: 1, Disp: off}
		case 2:
			return Mem{Base: wp, Index: pb, Scale: 2, Disp: off}
		}
		return Mem{Base: wp, Index: pb3, Scale: 1, Disp: off}
	}
	step := func(u int) {
		VBROADCASTSS(at(xp, u*4), x)
		for q := range p {
			if f.ahead > 0 {
				for l := 0; l < f.step; l += 64 {
					PREFETCHT0(mem(q, u*f.step+l+f.ahead))
				}
			}
			v.weights(f, func(off int) Mem { return mem(q, u*f.step+off) }, mask, lo, hi, func(i int, w Op) {
				VFMADD231PS(w, x, acc[q*nv+i])
			})
		}
	}

	Label("group")
	Comment("y = +0")
	v.zero(acc[0])
	for i := range p * nv {
		VMOVUPS(acc[0], at(y, i*v.bytes()))
	}
	MOVQ(w, wp)
	Load(Param("x"), xp)
	Load(Param("k"), left)
	Label("block")
	v.zero(acc...)
	MOVQ(U32(kb), cnt)
	CMPQ(left, cnt)
	CMOVQLT(left, cnt)
	SUBQ(cnt, left)
	SUBQ(Imm(4), cnt)
	JLT(LabelRef("tail"))
	Label("four")
	for u := range 4 {
		step(u)
	}
	ADDQ(Imm(16), xp)
	ADDQ(U32(4*f.step), wp)
	SUBQ(Imm(4), cnt)
	JGE(LabelRef("four"))
	Label("tail")
	ADDQ(Imm(4), cnt)
	JZ(LabelRef("add"))
	Label("one")
	step(0)
	ADDQ(Imm(4), xp)
	ADDQ(U32(uint32(f.step)), wp)
	DECQ(cnt)
	JNZ(LabelRef("one"))
	Label("add")
	Comment("y = y + acc")
	for i := range p * nv {
		VADDPS(at(y, i*v.bytes()), acc[i], acc[i])
		VMOVUPS(acc[i], at(y, i*v.bytes()))
	}
	TESTQ(left, left)
	JNZ(LabelRef("block"))
	for range p {
		ADDQ(pb, w)
	}
	ADDQ(U32(uint32(p*width*4)), y)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}

// expand generates a kernel that widens n inputs. It prefetches nothing, as the tiles have
// fetched the slice that follows: a prefetch of the next inputs of the same panel, which come
// a group of panels later, cost products of 128 rows 1 to 5 % and of 512 rows 1 to 2 %.
func expand(v isa, f format) {
	name := fmt.Sprintf("expand%s%s", f.name, v.name)
	TEXT(name, NOSPLIT, "func(dst *float32, src *byte, n int)")
	Pragma("noescape")
	Doc(fmt.Sprintf("%s writes n > 0 inputs of a %s panel as float32.", name, f.name))
	dst, src, n := ptr("dst"), ptr("src"), ptr("n")
	lo, hi := v.vec(), v.vec()
	var mask reg.VecVirtual
	if f.name == "BF16" {
		mask = v.mask()
	}
	Label("loop")
	v.weights(f, func(off int) Mem { return at(src, off) }, mask, lo, hi, func(i int, w Op) {
		VMOVUPS(w, at(dst, i*v.bytes()))
	})
	ADDQ(U32(uint32(f.step)), src)
	ADDQ(U32(width*4), dst)
	DECQ(n)
	JNZ(LabelRef("loop"))
	VZEROUPPER()
	RET()
}
