package emu

// builders compile the instructions by the first word of their name.
var builders = map[string]func(c *compiler) error{
	"abs":        buildAbs,
	"activemask": buildActivemask,
	"add":        buildAdd,
	"and":        buildAnd,
	"atom":       buildAtom,
	"bar":        buildBar,
	"barrier":    buildBar,
	"bfe":        buildBfe,
	"bfi":        buildBfi,
	"bfind":      buildBfind,
	"bra":        buildBra,
	"brev":       buildBrev,
	"brx":        buildBrx,
	"clz":        buildClz,
	"copysign":   buildCopysign,
	"cvt":        buildCvt,
	"cvta":       buildCvta,
	"div":        buildDiv,
	"exit":       buildRet,
	"fence":      buildFence,
	"fma":        buildFma,
	"ld":         buildLd,
	"ldu":        buildLd,
	"ldmatrix":   buildLdmatrix,
	"lop3":       buildLop3,
	"mad":        buildMad,
	"max":        buildMax,
	"membar":     buildFence,
	"min":        buildMin,
	"mma":        buildMma,
	"mov":        buildMov,
	"mul":        buildMul,
	"neg":        buildNeg,
	"not":        buildNot,
	"or":         buildOr,
	"popc":       buildPopc,
	"prefetch":   buildPrefetch,
	"prmt":       buildPrmt,
	"rcp":        buildRcp,
	"red":        buildRed,
	"rem":        buildRem,
	"ret":        buildRet,
	"selp":       buildSelp,
	"set":        buildSet,
	"setp":       buildSetp,
	"shf":        buildShf,
	"shfl":       buildShfl,
	"shl":        buildShl,
	"shr":        buildShr,
	"slct":       buildSlct,
	"sqrt":       buildSqrt,
	"st":         buildSt,
	"sub":        buildSub,
	"testp":      buildTestp,
	"vote":       buildVote,
	"xor":        buildXor,
}

// refuse says why an instruction must not run at all: its result would not be the
// same on every device.
func refuse(st *stmt) error {
	for _, w := range st.words[1:] {
		switch w {
		case "approx", "full", "ftz":
			return syntax(st.line, "%s: .%s is not correctly rounded (numerics.md 1)", st.op, w)
		}
	}
	return nil
}
