// Command deltagrad writes the amd64 kernels of backend/cpu/internal/deltagrad: sums
// over the rows of a state and updates of all its rows, over strips of 64 and 32
// columns.
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	wide := flag.Bool("avx512", false, "write the AVX-512 forms")
	flag.Parse()
	ConstraintExpr("!noasm")
	for _, cols := range []int{64, 32} {
		e := emitter{*wide, cols}
		e.dots()
		e.pairs()
		e.update()
	}
	Generate()
}

type emitter struct {
	wide bool
	cols int
}

func (e emitter) vec() reg.VecVirtual {
	if e.wide {
		return ZMM()
	}
	return YMM()
}

// size is the bytes of a vector, count how many a strip has.
func (e emitter) size() int {
	if e.wide {
		return 64
	}
	return 32
}

func (e emitter) count() int { return 4 * e.cols / e.size() }

func (e emitter) text(name, signature string) {
	set := "AVX2"
	if e.wide {
		set = "AVX512"
	}
	TEXT(fmt.Sprintf("%s%d%s", name, e.cols, set), NOSPLIT, signature)
	Pragma("noescape")
}

// at is vector c of a strip.
func (e emitter) at(p reg.Register, c int) Mem { return Mem{Base: p, Disp: e.size() * c} }

func ptr(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// zeros are the accumulators of a strip.
func (e emitter) zeros() []reg.VecVirtual {
	acc := make([]reg.VecVirtual, e.count())
	for c := range acc {
		if acc[c] = e.vec(); e.wide {
			VPXORD(acc[c], acc[c], acc[c])
		} else {
			VXORPS(acc[c], acc[c], acc[c])
		}
	}
	return acc
}

// flush: total += acc.
func (e emitter) flush(total reg.GPVirtual, acc []reg.VecVirtual) {
	for c := range acc {
		VADDPS(e.at(total, c), acc[c], acc[c])
		VMOVUPS(acc[c], e.at(total, c))
	}
	VZEROUPPER()
	RET()
}

func (e emitter) rows(n reg.GPVirtual, body func()) {
	Label("row")
	body()
	DECQ(n)
	JNZ(LabelRef("row"))
}

// dots: total[j] += the chain over r of FMA(x[r], m[r][j], acc) from +0.
func (e emitter) dots() {
	e.text("dots", "func(total, m *float32, stride int, x *float32, rows int)")
	total, m, stride, x, n := ptr("total"), ptr("m"), ptr("stride"), ptr("x"), ptr("rows")
	acc := e.zeros()
	e.rows(n, func() {
		b := e.vec()
		VBROADCASTSS(Mem{Base: x}, b)
		for c := range acc {
			VFMADD231PS(e.at(m, c), b, acc[c]) // x[r]·m[r][j] + acc
		}
		ADDQ(stride, m)
		ADDQ(Imm(4), x)
	})
	e.flush(total, acc)
}

// pairs: total[j] += the chain over r of FMA(a[r][j], b[r][j], acc) from +0.
func (e emitter) pairs() {
	e.text("pairs", "func(total, a, b *float32, stride int, rows int)")
	total, a, b, stride, n := ptr("total"), ptr("a"), ptr("b"), ptr("stride"), ptr("rows")
	acc := e.zeros()
	e.rows(n, func() {
		for c := range acc {
			v := e.vec()
			VMOVUPS(e.at(a, c), v)
			VFMADD231PS(e.at(b, c), v, acc[c]) // a·b + acc
		}
		ADDQ(stride, a)
		ADDQ(stride, b)
	})
	e.flush(total, acc)
}

// update: m[r][j] = FMA(x[r], y[j], m[r][j]).
func (e emitter) update() {
	e.text("update", "func(m *float32, stride int, x, y *float32, rows int)")
	m, stride, x, y, n := ptr("m"), ptr("stride"), ptr("x"), ptr("y"), ptr("rows")
	yv := make([]reg.VecVirtual, e.count())
	for c := range yv {
		yv[c] = e.vec()
		VMOVUPS(e.at(y, c), yv[c])
	}
	e.rows(n, func() {
		b := e.vec()
		VBROADCASTSS(Mem{Base: x}, b)
		for c := range yv {
			v := e.vec()
			VMOVUPS(e.at(m, c), v)
			VFMADD231PS(yv[c], b, v) // x[r]·y[j] + m[r][j]
			VMOVUPS(v, e.at(m, c))
		}
		ADDQ(stride, m)
		ADDQ(Imm(4), x)
	})
	VZEROUPPER()
	RET()
}
