package backend

import "samebit/tensor"

// Archive is what a Stream offers besides if its device has the ops of attention
// over a window and an archive of fixed size (numerics.md 16); ask for it by a type
// assertion.
//
// R is the number of rows of the pass, Hq, Hkv and A the numbers of query, key and
// archive heads, D the head width. Query head h reads archive head h/(Hq/A), and
// archive head a is written from key head a/(A/Hkv). A row at slot t leaves slots
// (t-window, t] in the window. From slot window + sinks on a row has an archive: it
// writes slot t - window into it, its event, and reads after that.
type Archive interface {
	// PutWindow stores the rows of the pass in the window pages: k and v [R, Hkv, D];
	// raw [R, Hkv, D] is what the archive is addressed by, invalid where that is k.
	PutWindow(p Plan, layer int, k, v, raw tensor.Tensor)

	// WindowAttention writes attention over the window and over those of the first
	// sinks slots that have left it: dst and q [R, Hq, D]. mass [R, Hq] receives the
	// log mass; invalid: left out.
	WindowAttention(dst, mass, q tensor.Tensor, p Plan, layer int, w WindowParams)

	// ArchiveScan writes each row's event into the archive and then the archive's
	// response to the row's query: dst and q [R, Hq, D]. Rows without an archive give
	// +0. State in Archive.In and Archive.Out of the segments.
	ArchiveScan(dst, q tensor.Tensor, p Plan, layer int, w *ArchiveParams)

	// ExactTier offers each row's event to a table of original keys and values and
	// then reads it with the row's rotated query: dst and q [R, Hq, D], weight
	// [R, Hq]. With Mass dst is softmax attention over the table and weight its log
	// mass; otherwise dst is the nearest value and weight that of a confident hit.
	// Rows without an archive give +0 and -Inf or +0.
	ExactTier(dst, weight, q tensor.Tensor, p Plan, layer int, w *ExactParams)

	// GateMix joins the responses of window and archive: dst, local, remote [R, H, D].
	// gate [R, H] holds logits of the local weight; invalid: w.Remote is the remote
	// weight. promote [R, H], invalid for none, lowers the local weight. Rows without
	// an archive get the local response.
	GateMix(dst, local, remote, gate, promote tensor.Tensor, p Plan, w GateParams)

	// Blend writes dst = (1-a)·x + a·y: dst, x, y [R, H, D], a [R, H].
	Blend(dst, x, y, a tensor.Tensor)

	// MassMerge joins two parts of one softmax: dst, local and exact [R, H, D], the
	// masses [R, H].
	MassMerge(dst, local, massLocal, exact, massExact tensor.Tensor)

	// QueryCorrection writes dst = q + (q·v)·u per head: dst and q [R, H, D],
	// v [A, D, N], u [A, N, D].
	QueryCorrection(dst, q, v, u tensor.Tensor)

	// GELU writes x/2·(1 + erf(x/√2)) (numerics.md 4.5): [R, C].
	GELU(dst, x tensor.Tensor)
}

// ArchiveSeg is what a sequence with archive layers brings to a pass. L is the
// number of such layers.
type ArchiveSeg struct {
	// Window holds pages as Seg.KV does, of shape [planes, Hkv, 64, D]: keys of layer
	// l at plane 2l, values at 2l+1 and, if there are any, addresses at Raw + l. The
	// pages of the first sinks come first; between them and the window pages are
	// left out, so that the first row of the pass lies at page slot Slot, which
	// differs from Seg.Slot by a multiple of 64.
	Window []tensor.Tensor
	Slot   int
	Raw    int // 0: the archive is addressed by keys

	In, Out ArchiveBank // before and after this pass; they never overlap
}

// ArchiveBank is an archive's state. Tensors of parts that are not in use are
// invalid. The state before a sequence's first row is not read.
type ArchiveBank struct {
	Num tensor.Tensor // numerators [L, A, M·S, D]
	Den tensor.Tensor // denominators [L, A, M·S]

	Last tensor.Tensor // lazy decay: events up to a slot's last write [L, A, M]

	LandKey, LandValue tensor.Tensor // [L, A, M, D]
	LandScore          tensor.Tensor // [L, A, M], -Inf: empty

	// The exact tier: C slots, and the next slot of a FIFO.
	Key, Value tensor.Tensor // [L, A, C, D]
	Score, Age tensor.Tensor // [L, A, C], score -Inf: empty
	Next       tensor.Tensor // [L, A]

	// The last read that may be used again, and a mark: whether there is one, and how
	// many reads there were.
	ReadQuery, ReadValue tensor.Tensor // [L, Hq, D]
	ReadMark             tensor.Tensor // [L, 2]
}

// Tensors lists the parts in a fixed order, so that others need not name them.
func (b *ArchiveBank) Tensors() [14]*tensor.Tensor {
	return [14]*tensor.Tensor{&b.Num, &b.Den, &b.Last, &b.LandKey, &b.LandValue, &b.LandScore,
		&b.Key, &b.Value, &b.Score, &b.Age, &b.Next, &b.ReadQuery, &b.ReadValue, &b.ReadMark}
}

// WindowParams are what WindowAttention needs to know.
type WindowParams struct {
	Scale         float32 // of the scores
	Window, Sinks int
}

// LandmarkMode says which events landmark slots keep.
type LandmarkMode uint8

const (
	NoLandmarks         LandmarkMode = iota
	PersistentLandmarks              // per code the event of the largest score
	PrefixLandmarks                  // the first events
	PairLandmarks                    // the same, with the value of the event after each
)

// ArchiveParams are an archive's parameters of one layer: M codes, S scales, rank N.
type ArchiveParams struct {
	WindowParams
	Codes       tensor.Tensor // [A, M, D]
	Mix         tensor.Tensor // [A, M, S]
	CorrV       tensor.Tensor // [A, D, N]; invalid: no correction
	CorrU       tensor.Tensor // [A, N, D]
	CorrScale   tensor.Tensor // [A, N, S]
	LandmarkMix tensor.Tensor // [A], with PersistentLandmarks

	Decay, Gain   []float32 // [S]: r and r^Window
	Active        int       // codes of a sparse read or a lazy write; 0: all
	Lazy          bool
	PerCode       bool // a division per code and scale
	SparsePerCode bool // the same in sparse reads
	Features      bool
	Gated         bool // whether Threshold holds
	Threshold     float32
	Landmarks     LandmarkMode
	LandmarkTemp  float32
	Lexical       bool // the value written is the address

	// Reuse of reads by passes of one row (numerics.md 16.5).
	Reuse     bool
	Stride    int // a row of which the slot is a multiple reads
	Close     bool
	Closeness float32 // with Close: a query as close as this to the last one needs no read
}

// Events is the number of events of a sequence of so many rows.
func (w WindowParams) Events(rows int) int { return max(0, rows-w.Window-w.Sinks) }

// ExactParams are the exact tier's parameters of one layer.
type ExactParams struct {
	WindowParams
	Sets, Ways, Probe int
	FIFO, Soft, Mass  bool
	QualityFirst      bool // the score is the cosine of the event's key and the row's query

	AdmKey, AdmValue tensor.Tensor // [A, D], unless QualityFirst
	AdmBias          tensor.Tensor // [A]
	Mix              tensor.Tensor // [A]
	SetCodes         tensor.Tensor // [A, Sets, D], with Probe < Sets

	Threshold                     float32 // of admission
	Confidence, ConfidenceTemp    float32
	Admission, Diversity, Recency float32
	SoftTemp                      float32
}

// GateParams are what GateMix needs to know.
type GateParams struct {
	From   int     // first slot with an archive
	Remote float32 // without a gate
	Norm   bool    // by the agreement of the lengths
}
