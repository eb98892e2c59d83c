package emu

// v32 and v64 are one register of the 32 lanes of a warp.
type (
	v32 [32]uint32
	v64 [32]uint64
)

// full is the mask of a whole warp.
const full = ^uint32(0)

// Class sorts instructions for the counters.
type Class uint8

const (
	FMA     Class = iota // fused multiply-add of floats
	Float                // other float arithmetic and comparisons
	Divide               // division, reciprocal and root of floats
	Integer              // integer arithmetic, logic, comparisons
	Move                 // mov, selp, cvt, ld.param
	Global               // global and constant loads and stores
	Shared               // shared loads and stores
	Local                // local loads and stores
	Atomic
	Sync   // shuffles, votes, barriers
	Branch // bra, ret
	Matrix // products of matrices
	Classes
)

var classNames = [Classes]string{"fma", "float", "divide", "integer", "move", "global", "shared", "local", "atomic", "sync", "branch", "matrix"}

func (c Class) String() string { return classNames[c] }

// exec runs one instruction for the lanes of mask.
type exec func(w *warp, in *inst, mask uint32)

// inst is an instruction made ready: operands are slots of the warp's register
// files.
type inst struct {
	run        exec
	d, a, b, c int32
	e          int32
	guard      int32 // predicate slot, -1 for none
	not        bool
	class      Class
	n, size    uint8 // of a load or store: elements, bytes of each
	signed     bool
	wide       bool // its elements are in 64-bit registers
	space      space
	line       int32
	id         int32 // of loads and stores, for the cache of allocations
	off        int64
	vec        [4]int32
}

// ending says how a block ends.
type ending uint8

const (
	falls    ending = iota // into the next block
	branches               // to target, those lanes that the guard chooses
	returns
	waits // at a barrier, then the next block
	selects
)

// block is a run of instructions that is entered at its top only.
type block struct {
	code    []inst
	end     ending
	guard   int32
	not     bool
	target  int32
	targets []int32 // of selects, by index in slot
	slot    int32
	line    int32 // of the ending
	from    int32 // line of the first statement
	barrier int32 // number
	count   [Classes]int64
	sync    bool // the first instruction waits for other lanes
}

// fixed is a register that holds one value for all of a launch, a block or a
// warp.
type fixed struct {
	slot int32
	wide bool
	pred bool
	kind fixedKind
	val  uint64 // constant; offset of a parameter
	size uint8  // bytes of a parameter
	sign bool
	name string // special register
}

type fixedKind uint8

const (
	isConst fixedKind = iota
	isParam
	isSpecial
)

// program is a kernel made ready to run.
type program struct {
	name       string
	src        *module
	blocks     []block
	n32, n64   int // register slots
	npred      int
	fixed      []fixed
	blockly    []fixed // of these, the ones that change from block to block
	free32     int     // slots below which registers are not fixed
	free64     int
	freePred   int
	psize      int
	params     []*variable
	shared     int // static bytes
	local      int
	maxThreads int
	caches     int
	grain      int // shift of the unit in which shared memory is watched
}

// text is a line of the source, for messages.
func (p *program) text(line int32) string {
	if line < 1 || int(line) > len(p.src.lines) {
		return ""
	}
	return trim(p.src.lines[line-1])
}
