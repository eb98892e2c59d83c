package cuda_test

import (
	"fmt"
	"math"

	"samebit/backend"
	"samebit/internal/canon"
	"samebit/tensor"
	"samebit/tensor/tensortest"
)

// archiveSharpForms show the last bits of what archives otherwise only compare, or lose
// in sums.
func archiveSharpForms() []form {
	var l []form
	// Scores within a block of a window, and factors of blocks, as in expForms.
	for _, second := range []string{"", "first", "second"} {
		l = append(l, form{"exp/windowAttention/" + second, []string{"windowAttention"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			slots, heads, d := 64, 1, 64
			if second != "" {
				slots, heads, d = 65, len(hardDown), 2
			}
			k, v := make([]float32, slots*heads*d), make([]float32, slots*heads*d)
			for j := range slots {
				for h := range heads {
					at := (j*heads + h) * d
					switch {
					case second == "":
						if v[at+j] = 1; j > 0 {
							k[at] = hardDown[j%len(hardDown)]
						}
					case j%64 > 0:
						k[at] = -300
					default:
						if v[at+j/64] = 1; (second == "second") == (j > 0) {
							k[at] = hardDown[h]
						}
					}
				}
			}
			a := &backend.ArchiveSeg{}
			for range (slots + backend.Page - 1) / backend.Page {
				a.Window = append(a.Window, r.f32(nil, 2, heads, backend.Page, d))
			}
			op := r.s.(backend.Archive)
			op.PutWindow(r.s.Plan([]backend.Seg{{Rows: slots, Archive: a}}), 0, r.f32(k, slots, heads, d), r.f32(v, slots, heads, d), tensor.Tensor{})
			one := make([]float32, heads*d)
			for i := 0; i < len(one); i += d {
				one[i] = 1
			}
			last := *a
			last.Slot = slots - 1
			y, mass := r.f32(nil, 1, heads, d), r.f32(nil, 1, heads)
			op.WindowAttention(y, mass, r.f32(one, 1, heads, d), r.s.Plan([]backend.Seg{{Rows: 1, Slot: slots - 1, Pos: slots - 1, Archive: &last}}), 0, backend.WindowParams{Scale: 1, Window: 100})
			return []tensor.Tensor{y, mass}
		}})
	}
	l = append(l, form{"exp/WindowAttentionGrad", []string{"windowGradQ", "windowGradKV"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		return r.sharpGrad(rnd, func(d [3]tensor.Tensor, dy, y, q, k, v tensor.Tensor, p backend.Plan) {
			r.s.(backend.ArchiveGrad).WindowAttentionGrad(d[0], d[1], d[2], dy, y, q, k, v, p, backend.WindowParams{Scale: 1, Window: 100})
		})
	}})
	// A read is used again if the query is as close to the last one as it is, and not if
	// it must be closer by one bit.
	for _, d := range []int{3, 7, 31, 32, 39, 63, 64, 70, 133, 1030} {
		for _, closer := range []bool{false, true} {
			l = append(l, form{fmt.Sprintf("closeness/%d/%v", d, closer), []string{"findReuse"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				const texts = 6
				q, last := rnd.F32(tensortest.Ordinary, d), rnd.F32(tensortest.Ordinary, d)
				for i := range q {
					q[i], last[i] = q[i]*1.0123457, q[i]+float32(0.3*last[i])
				}
				w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Codes: r.random(rnd, 1, 1, 2, d), Mix: r.random(rnd, 1, 1, 2, 1), Decay: []float32{0.5}, Gain: []float32{0.25},
					Reuse: true, Stride: 1, Close: true, Closeness: canon.Dot(q, last) / (canon.Sqrt(canon.SumSquares(q)) * canon.Sqrt(canon.SumSquares(last)))}
				if closer {
					w.Closeness = math.Nextafter32(w.Closeness, 2)
				}
				var segs []backend.Seg
				var all []float32
				for i := range texts { // each of them has the vectors turned
					turn := func(v []float32) []float32 { return append(append([]float32(nil), v[i%d:]...), v[:i%d]...) }
					a := &backend.ArchiveSeg{Slot: 5, Window: []tensor.Tensor{r.f32(nil, 2, 1, backend.Page, d)}}
					p := r.s.Plan([]backend.Seg{{Rows: 6, Archive: &backend.ArchiveSeg{Window: a.Window}}})
					r.s.(backend.Archive).PutWindow(p, 0, r.random(rnd, 1, 6, 1, d), r.random(rnd, 1, 6, 1, d), tensor.Tensor{})
					bank := func() backend.ArchiveBank {
						return backend.ArchiveBank{Num: r.random(rnd, 1, 1, 1, 2, d), Den: r.f32([]float32{1, 2}, 1, 1, 2), ReadQuery: r.f32(turn(last), 1, 1, d), ReadValue: r.random(rnd, 1, 1, 1, d), ReadMark: r.f32([]float32{1, 3}, 1, 2)}
					}
					a.In, a.Out = bank(), bank()
					segs = append(segs, backend.Seg{Row: i, Rows: 1, Slot: 5, Pos: 5, Archive: a})
					all = append(all, turn(q)...)
				}
				y := r.f32(nil, texts, 1, d)
				r.s.(backend.Archive).ArchiveScan(y, r.f32(all, texts, 1, d), r.s.Plan(segs), 0, w)
				out := []tensor.Tensor{y}
				for i := range segs {
					out = append(out, segs[i].Archive.Out.ReadMark)
				}
				return out
			}})
		}
	}
	return l
}
