package delta

import "samebit/internal/canon"

// runGeneric is the meaning of the other forms. The products over i are taken
// row by row of the state, so that each column keeps its own chain.
func runGeneric(h *Head, tmp []float32) {
	dk, dv := h.Dk, h.Dv
	total, acc, d := tmp[:dv], tmp[dv:2*dv], tmp[2*dv:3*dv]
	S := h.Dst[:dk*dv]
	copy(S, h.Src[:dk*dv])
	for t := range h.T {
		q, k := h.Q[t*h.QStride:][:dk], h.K[t*h.KStride:][:dk]
		v, out := h.V[t*h.VStride:][:dv], h.Out[t*h.OutStride:][:dv]
		g, beta := h.G[t*h.GStride], h.Beta[t*h.BetaStride]
		clear(total)
		for b := 0; b < dk; b += kb {
			clear(acc)
			for i := b; i < min(b+kb, dk); i++ {
				row := S[i*dv:][:dv]
				for j := range row {
					row[j] *= g
					acc[j] = canon.FMA32(row[j], k[i], acc[j])
				}
			}
			for j := range total {
				total[j] += acc[j]
			}
		}
		for j := range d {
			d[j] = float32(v[j]-total[j]) * beta
		}
		clear(out)
		for b := 0; b < dk; b += kb {
			clear(acc)
			for i := b; i < min(b+kb, dk); i++ {
				row := S[i*dv:][:dv]
				for j := range row {
					row[j] = canon.FMA32(k[i], d[j], row[j])
					acc[j] = canon.FMA32(row[j], q[i], acc[j])
				}
			}
			for j := range out {
				out[j] += acc[j]
			}
		}
	}
}
