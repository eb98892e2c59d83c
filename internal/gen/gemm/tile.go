package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// tiles generates the tile kernels: up to 3 rows by 32 columns and up to 6 by 16 in 12
// of the 16 AVX2 registers, up to 14 rows by 32 columns in 28 of the 32 of AVX-512. Few
// rows by 16 columns would have too few chains to hide the latency of FMA.
func tiles(f format) {
	for r := 1; r <= 6; r++ {
		tile(avx2, f, r)
	}
	for r := 1; r <= 14; r++ {
		tile(avx512, f, r)
	}
}

// fetching says which inputs prefetch: all, or one line in four.
type fetching int

const (
	none fetching = iota
	sparse
	dense
)

// manyRows are the least rows, by lanes, of tiles that may prefetch sparsely.
var manyRows = map[int]int{8: 4, 16: 12}

// wide says how many rows of 32 columns the registers hold.
func wide(v isa) int {
	if v.lanes == 16 {
		return 14
	}
	return 3
}

// tile generates a tile kernel on the panels of one format. 16-bit weights are
// widened in registers.
func tile(v isa, f format, rows int) {
	name := fmt.Sprintf("tile%d%s", rows, v.name)
	if f.name != "F32" {
		name = fmt.Sprintf("tile%s%d%s", f.name, rows, v.name)
	}
	TEXT(name, NOSPLIT,
		"func(dst *float32, dstStride int, src *float32, srcStride int, a *float32, aStride int, b *float32, n, tiles int, next uintptr, nextStep, apart int)")
	Pragma("noescape")
	doc := fmt.Sprintf("%s is a tileFunc for tiles of %d rows", name, rows)
	vecs := 2
	if rows <= wide(v) {
		vecs = width / v.lanes
		doc += " by 32 columns"
	} else if f.name == "BF16" {
		doc += " by columns 0-7 and 16-23 after dst"
	} else {
		doc += " by 16 columns"
	}
	column := func(i int) int { // of vector i
		if f.name == "BF16" {
			return i%(vecs/2)*v.lanes + i/(vecs/2)*width/2
		}
		return i * v.lanes
	}
	if f.name != "F32" {
		doc += "; b are " + f.name + " weights"
	}
	Doc(doc + ".")
	dst, dstStride, src, srcStride := ptr("dst"), ptr("dstStride"), ptr("src"), ptr("srcStride")
	a, aStride, b, next, tiles := ptr("a"), ptr("aStride"), ptr("b"), ptr("next"), ptr("tiles")
	nextStep := ptr("nextStep")
	apart := ptr("apart")
	many := f.name == "F32" && rows >= manyRows[v.lanes] // may be one of so many tiles that few prefetches do
	acc := v.vecs(vecs * rows)
	ap, bp, cnt := GP64(), GP64(), GP64()

	// The weights of an input meet all rows before (vecs 2) or one after the other, as
	// registers are left for.
	var w, x []reg.VecVirtual
	var mask reg.VecVirtual
	if vecs == 2 {
		w, x = v.vecs(2), v.vecs(1)
	} else {
		w, x = v.vecs(1), v.vecs(rows)
	}
	if f.name == "BF16" && vecs == 2 {
		mask = v.mask()
	}

	// AVX-512 takes most operands from memory: fewer instructions, which counts most where
	// another thread shares the core. On Emerald Rapids tiles are then 1.05 to 1.15 times as
	// fast, and on a quiet core no slower. With the inputs of all rows from memory the load
	// ports would bind.

	// Two streams of prefetches on pages of their own bring more than one: on Emerald Rapids
	// two to eight rows from memory are 1.05 to 1.17 times as fast (AVX2 with 16-bit weights
	// up to four), 16 rows of F32 with AVX-512 1.2 times. Four streams gain half of that.
	step := func(u int, fetch fetching) {
		o := u * f.step
		line := at(next, 0)
		if u%2 == 1 {
			line = Mem{Base: next, Index: apart, Scale: 1}
		}
		if fetch == dense || fetch == sparse && u == 0 {
			PREFETCHT1(line)
		}
		// The inputs of the next tile come from the last cache where those of a chunk do not
		// stay in the second: with 512 rows of 2,048 inputs prefetching is 1.06 times as fast.
		if disp := u * rows * 4; fetch == sparse && disp%64 < rows*4 {
			PREFETCHT1(Mem{Base: ap, Index: aStride, Scale: 1, Disp: disp})
		}
		if fetch == dense && f.step*vecs*v.lanes/width > 64 {
			line.Disp = 64
			PREFETCHT1(line)
		}
		forward := func() {
			if fetch == dense && u%2 == 1 || fetch == sparse && u == 1 {
				ADDQ(nextStep, next)
			}
		}
		if vecs == 2 {
			switch f.name {
			case "F32":
				VMOVUPS(at(bp, o), w[0])
				VMOVUPS(at(bp, o+v.bytes()), w[1])
			case "BF16":
				if v.lanes == 16 {
					VPSLLD(Imm(16), at(bp, o), w[0])
					v.and(at(bp, o), mask, w[1])
					break
				}
				VMOVUPS(at(bp, o), w[1])
				VPSLLD(Imm(16), w[1], w[0])
				v.and(mask, w[1], w[1])
			case "F16":
				VCVTPH2PS(at(bp, o), w[0])
				VCVTPH2PS(at(bp, o+v.bytes()/2), w[1])
			}
			forward()
			for r := range rows {
				if v.lanes == 16 && r%4 > 0 {
					VFMADD231PS_BCST(at(ap, (u*rows+r)*4), w[0], acc[2*r])
					VFMADD231PS_BCST(at(ap, (u*rows+r)*4), w[1], acc[2*r+1])
					continue
				}
				VBROADCASTSS(at(ap, (u*rows+r)*4), x[0])
				VFMADD231PS(w[0], x[0], acc[2*r])
				VFMADD231PS(w[1], x[0], acc[2*r+1])
			}
			return
		}
		forward()
		for r := range rows {
			VBROADCASTSS(at(ap, (u*rows+r)*4), x[r])
		}
		for i := range vecs {
			switch f.name {
			case "F32":
				VMOVUPS(at(bp, o+i*v.bytes()), w[0])
			case "BF16":
				VMOVUPS(at(bp, o+i%(vecs/2)*v.bytes()), w[0])
				if i < vecs/2 {
					VPSLLD(Imm(16), w[0], w[0])
				} else {
					VPAND(upper(), w[0], w[0])
				}
			case "F16":
				VCVTPH2PS(at(bp, o+i*v.bytes()/2), w[0])
			}
			for r := range rows {
				VFMADD231PS(w[0], x[r], acc[vecs*r+i])
			}
		}
	}
	advance := func(u int) {
		ADDQ(U32(uint32(u*rows*4)), ap)
		ADDQ(U32(uint32(u*f.step)), bp)
	}

	Label("tile")
	v.zero(acc...)
	MOVQ(a, ap)
	MOVQ(b, bp)
	Load(Param("n"), cnt)
	SUBQ(Imm(4), cnt)
	JLT(LabelRef("tail"))
	loop := func(label string, fetch fetching) {
		Label(label)
		for u := range 4 {
			step(u, fetch)
		}
		advance(4)
		SUBQ(Imm(4), cnt)
		JGE(LabelRef(label))
	}
	if many {
		TESTQ(apart, apart)
		JZ(LabelRef("sparse"))
	}
	loop("four", dense)
	if many {
		JMP(LabelRef("tail"))
		loop("sparse", sparse)
	}
	Label("tail")
	ADDQ(Imm(4), cnt)
	JZ(LabelRef("add"))
	Label("one")
	step(0, none)
	advance(1)
	DECQ(cnt)
	JNZ(LabelRef("one"))

	Label("add")
	Comment("dst = src + acc")
	for r := range rows {
		for i, c := range acc[vecs*r : vecs*(r+1)] {
			VADDPS(at(src, column(i)*4), c, c)
		}
		for i, c := range acc[vecs*r : vecs*(r+1)] {
			VMOVUPS(c, at(dst, column(i)*4))
		}
		ADDQ(srcStride, src)
		ADDQ(dstStride, dst)
	}
	ADDQ(aStride, a)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	VZEROUPPER()
	RET()
}

var uppers Mem

// upper is the mask of the BF16 kernels in memory, for AVX2.
func upper() Mem {
	if uppers.Symbol.Name == "" {
		uppers = GLOBL("upper", RODATA|NOPTR)
		for i := range 8 {
			DATA(4*i, U32(0xffff0000))
		}
	}
	return uppers
}
