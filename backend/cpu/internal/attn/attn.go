// Package attn computes exact attention over key pages of 64 slots, for one KV
// head at a time (docs/numerics.md 7). Every instruction set gives the same
// bits, and a row's result depends on its query, its visible keys and values
// and their slots only.
//
// A page is one key block of the contract. For one layer and one KV head its K
// part is [D][64] float32 (component-major: the 64 slots of a component lie
// together, so the lanes of a vector run over slots and each score keeps its
// own chain) and its V part is [64][D]. Slots that nobody has written may hold
// anything, NaN included. A page may be bf16 instead; see [At16].
package attn

import (
	"math"
	"slices"
)

//go:generate go run -C ../../../../internal/gen ./attn -set avx2 -out ../../backend/cpu/internal/attn/avx2_amd64.s -stubs ../../backend/cpu/internal/attn/avx2_amd64.go -pkg attn
//go:generate go run -C ../../../../internal/gen ./attn -set avx512 -out ../../backend/cpu/internal/attn/avx512_amd64.s -stubs ../../backend/cpu/internal/attn/avx512_amd64.go -pkg attn
//go:generate go run -C ../../../../internal/gen ./attn -set neon -out ../../backend/cpu/internal/attn/neon_arm64.s

// Page is the number of slots of a page and of the contract's key block.
const Page = 64

// dotBlock is the block length KB of the contract's DOT.
const dotBlock = 128

const (
	tileRows  = 6 // rows of the largest register tile
	directMax = 8 // rows that are too few to widen a page for

	tileRows16 = 4  // rows of the largest tile of such a page
	chunkRows  = 96 // rows that share one pass over the pages; their o and q stay in L2
	lanes      = 8  // rows one softmax state has room for
)

// Job is attention of Rows query rows over the pages of one KV head. A row is
// one (query, group head) pair; rows may see any contiguous range of slots, so
// causal masks and sliding windows are ranges that differ by row. With Sinks = n
// a row also sees those of the first n slots that lie below its Hi.
//
// With Group = G heads of a query side by side, row r has its query at
//
//	Q[(r/G)·QStride + (r%G)·D :][:D]
//
// and its result at the same place of Out with OutStride. Group 0 means 1.
//
// Preconditions, not checked: Rows slots in Lo and Hi, 0 <= Lo[r], and for each
// page B that holds a slot some row sees len(K[B]) and len(V[B]) are
// at least 64·D. Other pages are not touched and may be nil.
type Job struct {
	Q         []float32
	QStride   int
	Out       []float32
	OutStride int
	Group     int // rows per query, D apart; 0 means 1
	Rows      int
	D         int         // components of a head, any length from 1 up
	Lo, Hi    []int32     // row r sees slots [Lo[r], Hi[r]); Hi <= Lo: none
	K, V      [][]float32 // by page: K[B] is [D][64], V[B] is [64][D] and best follows it in memory
	K16, V16  [][]uint16  // instead of K and V: the same in bf16, each value where At16 says
	Sinks     int         // slots [0, Sinks) that every row sees besides, up to Hi[r]
	Scale     float32     // applied to the score, not to the query
	LSE       []float32   // if not nil receives m + log l of each row, -Inf for a row that sees nothing

	// W, if not nil, receives the weights of each row: WSlots values, +0 for slots
	// that it does not see, at W[(r/G)·WStride + (r%G)·WSlots :]. WSlots is at least
	// the largest Hi.
	W       []float32
	WStride int
	WSlots  int
}

// place returns where row r begins in an array of the given stride.
func (j *Job) place(r, stride int) int {
	if j.Group <= 1 {
		return r * stride
	}
	return r/j.Group*stride + r%j.Group*j.D
}

// weights returns the row of W for row r.
func (j *Job) weights(r int) []float32 {
	g := max(j.Group, 1)
	return j.W[r/g*j.WStride+r%g*j.WSlots:][:j.WSlots]
}

// blocks returns the range of pages that rows [r0, r0+n) see without the sinks.
func (j *Job) blocks(r0, n int) (b0, b1 int) {
	b0 = math.MaxInt
	for r := r0; r < r0+n; r++ {
		if j.Hi[r] > j.Lo[r] {
			b0 = min(b0, int(j.Lo[r])/Page)
			b1 = max(b1, (int(j.Hi[r])+Page-1)/Page)
		}
	}
	return min(b0, b1), b1
}

// common returns slots [lo, hi) that each of rows [r0, r0+n) sees, if there are any.
func (j *Job) common(r0, n int) (lo, hi int) {
	return int(slices.Max(j.Lo[r0 : r0+n])), int(slices.Min(j.Hi[r0 : r0+n]))
}

// ranges returns all that row r sees: slots [0, sinks) and [lo, hi), where
// 0 <= sinks <= lo <= hi.
func (j *Job) ranges(r int) (sinks, lo, hi int) {
	lo, hi = int(j.Lo[r]), int(j.Hi[r])
	sinks = max(min(j.Sinks, hi), 0)
	switch {
	case hi <= lo:
		return sinks, sinks, sinks
	case sinks >= lo:
		return 0, 0, hi
	}
	return sinks, lo, hi
}

// seen is what a row sees of a page, in slots of the page: [lo, hi) less the
// gap [gap, end) that lies inside it where sinks and window leave one.
type seen struct{ lo, hi, gap, end int }

func (s seen) none() bool { return s.hi <= s.lo }

// sees returns what row r sees of page b.
func (j *Job) sees(r, b int) seen {
	at := b * Page
	s := seen{lo: max(int(j.Lo[r])-at, 0), hi: min(int(j.Hi[r])-at, Page)}
	sinks := min(j.Sinks, int(j.Hi[r])) - at
	if sinks <= 0 {
		return s
	}
	sinks = min(sinks, Page)
	switch {
	case s.none():
		return seen{lo: 0, hi: sinks}
	case sinks >= s.lo:
		return seen{lo: 0, hi: max(sinks, s.hi)}
	}
	return seen{lo: 0, hi: s.hi, gap: sinks, end: s.lo}
}

// Kernels are the loops of one instruction set; see [For]. All methods are
// single-threaded and allocate nothing; calls may run at the same time with
// scratch and outputs of their own.
//
// The tile kernels come in one form per number of rows R = 1..6; index 0 is
// unused. Rows of s lie 64 apart, rows of q are d apart, rows of o are
// padded(d) apart. next is what to prefetch, half of it by score and half by pv of
// a page, or with more than 4 rows all of it by pv; it may be anything.
type Kernels struct {
	// score writes s[r][j] = DOT(q[r], k[:, j]) for all 64 slots.
	score [tileRows + 1]func(s, q, k, next []float32, d int)

	// pv forms o_b over slots [lo, hi) with the weights p[r][j] and merges it:
	// o[r][c] = FMA(o_b, fac[8+r], o[r][c]·fac[r]).
	pv [tileRows + 1]func(o, p, v, next []float32, d, lo, hi int, fac []float32)

	// pairs says that pv of 4 rows and 64 < d <= 128 is better done as twice 2 rows,
	// which read whole rows of v.
	pairs bool

	// score16 and pv16 are score and pv on pages of bf16, for heads of a multiple of
	// 16 components and the few rows of a decode step; nil where there is none. What
	// they cannot take, and many rows, for which it costs less, are widened first.
	score16 [tileRows16 + 1]func(s, q []float32, k, next []uint16, d int)
	pv16    [tileRows16 + 1]func(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32)

	// widen writes the values of a page of bf16 in their order: len(src) values, whole
	// groups of 16.
	widen func(dst []float32, src []uint16)

	// fetch and fetch16 prefetch a page; nil where score and pv do not prefetch the next.
	fetch   func(page []float32)
	fetch16 func(page []uint16)

	// softmax turns the raw scores of rows <= 8 rows that all see slots
	// [lo, hi) into weights in place (+0 outside) and merges m_b and l_b into
	// the state st, which also receives the factors al and be.
	softmax func(s, st []float32, rows, lo, hi int, scale float32)

	// fold is the merging step of softmax for m_b and l_b that lie in st.
	fold func(st []float32, rows int)

	// merge computes o[c] = FMA(ob[c], be, o[c]·al) for c < len(o).
	merge func(o, ob []float32, al, be float32)

	// scaleTo computes out[c] = o[c]·f for c < len(out).
	scaleTo func(out, o []float32, f float32)

	// weigh turns scores, whole pages of them, into exp(s - m)·inv in place.
	weigh func(s []float32, m, inv float32)
}

// At16 is where value i of the K or V part of a page of bf16 lies. In each group of
// 16 values number j < 8 and number j+8 share a word of 32 bits, so that a shift and a
// mask widen a group without moving a value to another lane.
func At16(i int) int { return i&^15 | i<<1&14 | i>>3&1 }

// Softmax state of up to 8 rows: six vectors of 8.
const (
	stM  = 0 * lanes // running maximum m
	stL  = 1 * lanes // running sum l
	stAl = 2 * lanes // exp(m - m'), the factor of what was there
	stBe = 3 * lanes // exp(m_b - m'), the factor of the block
	stMB = 4 * lanes // m_b
	stLB = 5 * lanes // l_b

	stSize = 6 * lanes
)

var negInf = float32(math.Inf(-1))
