// Package backend is the contract between models and machines: a [Device] packs
// weights and hands out memory, a [Stream] runs the ops of a forward pass, a
// [Plan] says which rows belong to which sequence.
//
// Every op has one meaning: the paragraph of docs/numerics.md that its comment
// names, written as a plain loop in package ref. Every other implementation
// gives the same bits, or refuses.
package backend

import (
	"errors"

	"samebit/tensor"
)

// Page is the number of slots in a page of keys and values, which is also the
// key block of numerics.md 7.
const Page = 64

// MomentWidth and MomentScale are the width of the max and the factor before the
// square in Moments (numerics.md 7).
const (
	MomentWidth = 7
	MomentScale = 256
)

var (
	// ErrNoDevice is the cause when a device or its driver is missing.
	ErrNoDevice = errors.New("no such device")
	// ErrUnsupported is the cause when a device has no exact implementation of
	// what was asked; it never computes something close instead.
	ErrUnsupported = errors.New("not supported by this device")
	// ErrClosed is the cause when a closed device or stream is used.
	ErrClosed = errors.New("closed")
	// ErrNoMemory is the cause when an allocation does not fit.
	ErrNoMemory = errors.New("out of memory")
)

// Info describes a device.
type Info struct {
	Name    string // as in Device.Name
	Model   string // processor or card
	Kernels string // implementation in use, for example "avx512"
	Threads int    // workers, 0 where the word makes no sense
	Memory  int64  // bytes usable, 0 if unknown
	Inexact string // why results are not those of numerics.md; empty for every exact device
	Slow    string // why it runs slower than it should, known so far; no bit depends on it

	BF16Pages bool // pages of keys and values may be BF16; see [CheckPageType]
}

// Use says how a weight will be read. The values may be combined.
type Use uint8

const (
	UseLinear Use = 1 << iota // Linear, LinearRows
	UseEmbed                  // Embed
)

// Device is one place where ops run. It is safe for concurrent use.
type Device interface {
	Name() string // "ref", "cpu", "cuda:0", …
	Info() Info

	// Alloc returns zeroed memory outside the Go heap, aligned to 256 bytes.
	// It fails with ErrNoMemory.
	Alloc(bytes int) (tensor.Buffer, error)
	// Free gives a buffer of Alloc back; no op may still be using it.
	Free(tensor.Buffer)

	// Pack makes a [N, K] matrix of any storage type ready for use, once per
	// weight: it copies, lays out anew or aliases, and never rounds again. The
	// bytes of w may be dropped afterwards unless Weight.Aliases says otherwise.
	Pack(w tensor.Tensor, use Use) (Weight, error)
	// Unpack frees a weight of Pack.
	Unpack(Weight)

	NewStream() (Stream, error)
	Close() error
}

// Solo is what a Device offers besides if its ops can keep to the processor of their
// caller; ask for it by a type assertion. As many independent passes as there are
// workers then run beside each other, with nobody waiting for anybody; alone, such a
// stream is slower than another. No bit depends on it.
type Solo interface {
	NewSoloStream() (Stream, error)
}

// Products is what a Stream offers besides if several products of the same rows cost
// it less together; ask for it by a type assertion. No bit depends on it.
type Products interface {
	// Linears is Linear(dst[i], x, w[i]) for every i, in any order; no dst overlaps
	// another.
	Linears(dst []tensor.Tensor, x tensor.Tensor, w []Weight)
}

// Linears is those products by the stream's own Linears, or one after the other.
func Linears(s Stream, dst []tensor.Tensor, x tensor.Tensor, w []Weight) {
	if p, ok := s.(Products); ok {
		p.Linears(dst, x, w)
		return
	}
	for i := range w {
		s.Linear(dst[i], x, w[i])
	}
}

// Weight is a packed matrix of Out rows and In columns.
type Weight interface {
	Out() int
	In() int
	DType() tensor.DType // storage type of the values
	Bytes() int64        // memory held
	Aliases() bool       // whether it still reads the bytes given to Pack
}

// Seg says which rows of a pass belong to one sequence and where they land. A
// row has a slot, its ordinal in the sequence's state, which decides key blocks
// and orders; and a position, which decides rotation and the reach of a window
// (numerics.md 7). For text the two are equal.
type Seg struct {
	Row, Rows int // rows [Row, Row+Rows) of the pass's tensors
	Slot, Pos int // of the first row; both rise by one per row

	// KV holds the pages of the sequence, page B with slots [64B, 64B+64),
	// enough of them for the rows of this pass. Each is logically
	// [2·layers, heads, 64, D], keys of layer l at index 2l and values at 2l+1;
	// how the bytes lie inside a page is the device's affair. All pages of a pass
	// are F32, or all BF16 on a device that has them (Info.BF16Pages): what is stored
	// is rounded to the type, and what is read is that value (numerics.md 9).
	KV []tensor.Tensor

	// Recurrent state before and after this pass, per delta layer:
	// [layers, heads, dk, dv] and convolution inputs [layers, taps-1, channels],
	// oldest first. In and out never overlap.
	DeltaIn, DeltaOut tensor.Tensor
	ConvIn, ConvOut   tensor.Tensor

	// Running sum over the sequence's rows [C], before and after this pass; in and
	// out never overlap.
	SumIn, SumOut tensor.Tensor

	Archive *ArchiveSeg // window and archive of layers that have them, nil for none
}

// Plan holds the ragged tables of one pass. It is made by Stream.Plan, belongs
// to that stream and is valid until its next Plan.
type Plan interface {
	Segs() []Seg
	Rows() int // rows of the pass: the end of the last segment
}

// Stream runs ops in order. It belongs to one goroutine.
//
// Ops return no errors: the first failure sticks, later ops do nothing, and Sync
// reports it. Reset clears it. Unless its comment says otherwise an op takes
// float32 tensors whose last axis is contiguous, and dst overlaps no input.
type Stream interface {
	Dense
	Attention
	Delta
	MoE

	// Plan checks and stores the segments of the next pass. Segments are in
	// rising, contiguous row order starting at row 0.
	Plan(segs []Seg) Plan
	// Read copies the bytes of a contiguous src to dst, complete after Sync.
	Read(dst []byte, src tensor.Tensor)
	// Write copies src to a contiguous dst; src may be reused when it returns.
	Write(dst tensor.Tensor, src []byte)
	Err() error  // first failure
	Sync() error // wait; returns Err
	Reset()      // forget a failure, so that the stream can be used again
	Close() error
}

// Dense are the ops of rows by themselves. R is the number of rows of the pass.
type Dense interface {
	// Embed writes row ids[r] of the table: dst [R, K], ids I32 [R]. An id
	// outside [0, Out) makes the stream fail.
	Embed(dst tensor.Tensor, table Weight, ids tensor.Tensor)

	// Linear writes dst[r, n] = DOT(x[r], w[n]) (numerics.md 2): dst [R, N],
	// x [R, K], w of N outputs and K inputs.
	Linear(dst, x tensor.Tensor, w Weight)

	// LinearRows writes dst[r, i] = DOT(x[r], w[rows[i]]), the bits that Linear
	// gives at those outputs: dst [R, n], rows I32 [n].
	LinearRows(dst, x tensor.Tensor, w Weight, rows tensor.Tensor)

	// Project is Linear with an unpacked weight w [N, K].
	Project(dst, x, w tensor.Tensor)

	// AddBias writes dst[r, i] = x[r, i] + b[i]: b [C]. dst may be x.
	AddBias(dst, x, b tensor.Tensor)

	// Add writes dst = a + b elementwise, all [R, C]. dst may be a or b.
	Add(dst, a, b tensor.Tensor)

	// RMSNorm writes dst[r, i] = (x[r, i] · s)·w[i] with
	// s = 1/√(RSUM(x[r]²)/C + eps) (numerics.md 5): w [C], eps dimensionless.
	RMSNorm(dst, x, w tensor.Tensor, eps float32)

	// LayerNorm writes dst[r, i] = ((c[i]·s)·w[i]) + b[i] with c = x[r] - mean
	// and s = 1/√(RSUM(c²)/C + eps).
	LayerNorm(dst, x, w, b tensor.Tensor, eps float32)

	// SwiGLU writes dst = silu(gate)·up elementwise, all [R, C]. dst may be gate.
	SwiGLU(dst, gate, up tensor.Tensor)

	// SigmoidMul writes dst = x·sigmoid(gate) elementwise; all of one shape,
	// [R, C] or [R, H, D].
	SigmoidMul(dst, x, gate tensor.Tensor)

	// Gather writes dst[i] = x[rows[i]]: dst [n, C], rows I32 [n]. A row outside
	// x makes the stream fail.
	Gather(dst, x, rows tensor.Tensor)

	// SumRows writes SumOut[i] = ((SumIn[i] + x[r0, i]) + x[r0+1, i]) + … for every
	// segment, one chain of adds over its rows in their order (numerics.md 5):
	// x [R, C].
	SumRows(p Plan, x tensor.Tensor)

	// Copy copies src to dst, equal shapes and types, any strides.
	Copy(dst, src tensor.Tensor)

	// ArgMax writes the index of the largest value of each row (numerics.md 5):
	// dst I32 [R], x [R, C]; the lowest index wins ties, NaN never wins, and a
	// row of nothing but NaN gives -1.
	ArgMax(dst, x tensor.Tensor)

	// Softmax writes the softmax of each row (numerics.md 5): [R, C].
	Softmax(dst, x tensor.Tensor)
}

// Attention are the ops of full-attention layers. Hq and Hkv are the numbers of
// query and key heads, D the head width; query head h reads key head h/(Hq/Hkv).
type Attention interface {
	// NormRoPE normalises each head of x with w [D] (RMSNorm over D; an invalid
	// w means no norm) and rotates its first 2·len(rope.Inv) components by the
	// row's position (numerics.md 6): dst and x [R, H, D]. rope nil: no rotation.
	NormRoPE(dst, x, w tensor.Tensor, eps float32, rope *RoPE, p Plan)

	// PutKV stores the keys and values of the pass's rows at their slots:
	// k and v [R, Hkv, D].
	PutKV(p Plan, layer int, k, v tensor.Tensor)

	// Attention writes for every row the attention of its queries over the slots
	// up to its own (numerics.md 7): dst and q [R, Hq, D]. A window > 0 keeps
	// only that many positions, the own one included.
	Attention(dst, q tensor.Tensor, p Plan, layer int, scale float32, window int)

	// AttnWeights writes the probabilities w_j of numerics.md 7 of every row,
	// slot by slot: dst [R, Hq, S] with S at least the number of slots of every
	// sequence after the pass; invisible slots give +0.
	AttnWeights(dst, q tensor.Tensor, p Plan, layer int, scale float32, window int)

	// AttnScores writes the scaled logits s_j before the softmax; invisible slots
	// give -Inf. Shapes as AttnWeights.
	AttnScores(dst, q tensor.Tensor, p Plan, layer int, scale float32, window int)

	// AttentionWeights is Attention and AttnWeights at once, for rows [first, first+n)
	// of the pass, so that weights of many rows need not be held together: dst and q
	// [n, Hq, D], w [n, Hq, S] as AttnWeights writes it.
	AttentionWeights(dst, w, q tensor.Tensor, p Plan, first, layer int, scale float32, window int)

	// Moments adds a block of rows of weights to the sums of each group of heads, row
	// by row (numerics.md 7): w [R, Hq, T]; sum and square [G, T] without gaps, in and
	// out, G a divisor of Hq. An invalid square is left out.
	Moments(sum, square, w tensor.Tensor)

	// GetPage writes the first n slots of a page in logical order,
	// dst [2·layers, Hkv, n, D], and PutPage stores them back. They carry states
	// to files and to other devices. Rows are F32 for pages of every type.
	GetPage(dst, page tensor.Tensor)
	PutPage(page, src tensor.Tensor)
}

// Delta are the ops of Gated DeltaNet layers.
type Delta interface {
	// Conv is the causal depthwise convolution over each sequence's rows followed
	// by SiLU (numerics.md 8): dst and x [R, C], w [taps, C] oldest tap first,
	// history and new history in the segments' ConvIn and ConvOut.
	Conv(dst, x, w tensor.Tensor, p Plan, layer int)

	// L2Norm writes dst = (x · 1/√(RSUM(x²) + eps))·scale per head row:
	// [R, H, D]; scale 1 multiplies nothing.
	L2Norm(dst, x tensor.Tensor, eps, scale float32)

	// DeltaGates writes g = exp(-(aExp·softplus(a + dtBias))) and
	// beta = sigmoid(b), all [R, H]; aExp = exp(A_log) and dtBias are [H].
	DeltaGates(g, beta, a, b, aExp, dtBias tensor.Tensor)

	// GatedDelta runs the gated delta rule row by row (numerics.md 8): dst and v
	// [R, Hv, dv], q and k [R, Hk, dk] normalised and scaled, g and beta [R, Hv];
	// value head i uses key head i/(Hv/Hk). State in DeltaIn and DeltaOut.
	GatedDelta(dst, q, k, v, g, beta tensor.Tensor, p Plan, layer int)

	// GatedRMSNorm writes ((x·s)·w)·silu(z) per head row: dst, x, z [R, H, D].
	GatedRMSNorm(dst, x, z, w tensor.Tensor, eps float32)
}

// MoE are the ops of sparse expert layers.
type MoE interface {
	// Route picks the k largest of each row's logits after a softmax over all E
	// experts (numerics.md 5): experts I32 [R, k] in ascending order, weights
	// [R, k], renormalised by their sum if renorm is set.
	Route(experts, weights, logits tensor.Tensor, k int, renorm bool)

	// Experts writes dst[r] = the chain over the row's experts e, ascending, of
	// y = FMA(weight, down_e(silu(gate_e x)·up_e x), y) from +0.
	Experts(dst, x, experts, weights tensor.Tensor, gate, up, down []Weight)

	// AddGated writes dst = FMA(sigmoid(gate), x, y) with one gate per row:
	// dst, y, x [R, C], gate [R, 1].
	AddGated(dst, y, x, gate tensor.Tensor)
}
