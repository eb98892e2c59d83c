package bench

import (
	"samebit/backend"
	"samebit/nn"
)

// products calls visit with every weight that a row is multiplied with but the
// head's, and the share of such weights that a row uses: less than 1 for experts. It
// returns false if the decoder has layers that are not known here.
func products(d *nn.Decoder, visit func(w backend.Weight, share float64)) bool {
	all := func(share float64, l ...backend.Weight) {
		for _, w := range l {
			if w != nil {
				visit(w, share)
			}
		}
	}
	for i := range d.Blocks {
		switch x := d.Blocks[i].Mix.(type) {
		case *nn.Attention:
			all(1, x.Q, x.K, x.V, x.O)
		case *nn.GatedDelta:
			all(1, x.QKV, x.Z, x.B, x.A, x.Out)
		default:
			return false
		}
		switch x := d.Blocks[i].FFN.(type) {
		case *nn.SwiGLU:
			all(1, x.Gate, x.Up, x.Down)
		case *nn.MoE:
			share := float64(x.K) / float64(max(1, len(x.Gate)))
			for _, l := range [][]backend.Weight{x.Gate, x.Up, x.Down} {
				all(share, l...)
			}
			all(1, x.Router, x.SharedGate, x.Shared.Gate, x.Shared.Up, x.Shared.Down)
		default:
			return false
		}
	}
	return true
}

// stepBytes is how many bytes of weights, as they are held, a step of one row reads;
// 0 if that is not known. What the sequence remembers comes on top.
func stepBytes(d *nn.Decoder) int64 {
	var n float64
	if !products(d, func(w backend.Weight, share float64) { n += share * float64(w.Bytes()) }) {
		return 0
	}
	if d.Head != nil {
		n += float64(d.Head.Bytes())
	}
	return int64(n)
}

// promptFlops is how many operations the products and the attention of a prompt of
// so many rows need, a multiply-add counted as two and only the last row's logits; 0
// if that is not known. Recurrent layers count their products alone.
func promptFlops(d *nn.Decoder, rows int) int64 {
	return flops(d, rows, 1, func(window int) (seen int) {
		for r := range rows {
			seen += windowed(r+1, window)
		}
		return seen
	})
}

// stepFlops is promptFlops of the next row of each of so many sequences, which hold
// depth rows, all with logits.
func stepFlops(d *nn.Decoder, seqs, depth int) int64 {
	return flops(d, seqs, seqs, func(window int) int { return seqs * windowed(depth+1, window) })
}

// windowed is how many of so many keys a row sees through a window; 0 is none.
func windowed(keys, window int) int {
	if window > 0 {
		return min(keys, window)
	}
	return keys
}

// flops counts rows, logits of so many of them, and attention by the keys that all rows
// of a layer see together.
func flops(d *nn.Decoder, rows, logits int, seen func(window int) int) int64 {
	var perRow float64
	if !products(d, func(w backend.Weight, share float64) { perRow += share * float64(w.Out()) * float64(w.In()) }) {
		return 0
	}
	n := 2 * perRow * float64(rows)
	if d.Head != nil {
		n += 2 * float64(d.Head.Out()) * float64(d.Head.In()) * float64(logits)
	}
	for i := range d.Blocks {
		if a, ok := d.Blocks[i].Mix.(*nn.Attention); ok {
			n += 4 * float64(a.Heads*a.Dim) * float64(seen(a.Window))
		}
	}
	return int64(n)
}
