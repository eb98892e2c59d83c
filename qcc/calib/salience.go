package calib

import (
	"math"
	"slices"

	"samebit/internal/canon"
)

// salience says how much of the attention beyond a window each key of one head gets:
// for up to n queries, spread over rows [window, T), the topK largest weights of a
// softmax over keys [0, t-window] are added to their keys; the sums are divided by
// the number of queries. q and k are [T][D].
func salience(q, k [][]float32, window, n, topK int) []float32 {
	out := make([]float32, len(k))
	at := rows(window, len(k)-1, n)
	scale := canon.InvSqrt(len(q[0]))
	w := make([]float32, len(k))
	order := make([]int, len(k))
	for _, t := range at {
		last := int(t) - window
		w, order := w[:last+1], order[:last+1]
		top := float32(math.Inf(-1))
		for j := range w {
			w[j] = float32(canon.Dot(q[t], k[j]) * scale)
			top = max(top, w[j])
		}
		for j := range w {
			w[j] = canon.Exp(w[j] - top)
			order[j] = j
		}
		inv := 1 / canon.Sum(w)
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case w[a] > w[b]:
				return -1
			case w[a] < w[b]:
				return 1
			}
			return 0
		})
		for _, j := range order[:min(topK, len(order))] {
			out[j] += float32(w[j] * inv)
		}
	}
	for j := range out {
		out[j] /= float32(len(at))
	}
	return out
}

// labels marks the share of keys with the largest salience, at least one, the first
// of equals.
func labels(s []float32, share float64) []bool {
	order := make([]int, len(s))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case s[a] > s[b]:
			return -1
		case s[a] < s[b]:
			return 1
		}
		return 0
	})
	out := make([]bool, len(s))
	for _, i := range order[:max(1, int(math.Ceil(share*float64(len(s)))))] {
		out[i] = true
	}
	return out
}

// predictor is one head's admission: logits are DOT(k, key) + DOT(v, value) + bias of
// unit vectors k and v.
type predictor struct{ key, value, bias []float32 }

func (p predictor) logit(k, v []float32) float32 {
	return canon.Dot(k, p.key) + canon.Dot(v, p.value) + p.bias[0]
}

// entropy is the binary cross-entropy of a logit; the loss of what should be admitted
// counts positive times. slope is its derivative.
func entropy(logit float32, label bool, positive float32) (loss, slope float32) {
	if label {
		return float32(canon.Softplus(-logit) * positive), float32(-canon.Sigmoid(-logit) * positive)
	}
	return canon.Softplus(logit), canon.Sigmoid(logit)
}

// add adds the gradient of a head's loss: slopes [T] times the unit vectors, chains
// of FMA over blocks of 128 rows that are added one by one.
func (p predictor) add(slopes []float32, k, v [][]float32) {
	for b := 0; b < len(slopes); b += 128 {
		dk, dv, db := make([]float32, len(p.key)), make([]float32, len(p.value)), float32(0)
		for t := b; t < min(b+128, len(slopes)); t++ {
			for i := range dk {
				dk[i] = canon.FMA32(slopes[t], k[t][i], dk[i])
			}
			for i := range dv {
				dv[i] = canon.FMA32(slopes[t], v[t][i], dv[i])
			}
			db += slopes[t]
		}
		for i := range dk {
			p.key[i] += dk[i]
		}
		for i := range dv {
			p.value[i] += dv[i]
		}
		p.bias[0] += db
	}
}
