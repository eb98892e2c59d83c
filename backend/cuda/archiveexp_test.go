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
	// Mixtures of scales: component c of the response is that of scale c.
	l = append(l, form{"exp/mixScales", []string{"mixScales"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
		logits := append([]float32{0}, hardDown...)
		n := len(logits)
		num, den := make([]float32, n*n), make([]float32, n)
		w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Codes: r.random(rnd, 1, 1, 1, n), Mix: r.f32(logits, 1, 1, n)}
		for i := range n {
			num[i*n+i], w.Decay, w.Gain = 2, append(w.Decay, 0.5), append(w.Gain, 0.25)
		}
		den[0] = 2
		a := &backend.ArchiveSeg{Slot: 5, Window: []tensor.Tensor{r.f32(nil, 2, 1, backend.Page, n)}} // the event's value is 0
		bank := func() backend.ArchiveBank {
			return backend.ArchiveBank{Num: r.f32(num, 1, 1, n, n), Den: r.f32(den, 1, 1, n)}
		}
		a.In, a.Out = bank(), bank()
		y := r.f32(nil, 1, 1, n)
		r.s.(backend.Archive).ArchiveScan(y, r.random(rnd, 1, 1, 1, n), r.s.Plan([]backend.Seg{{Rows: 1, Slot: 5, Pos: 5, Archive: a}}), 0, w)
		return []tensor.Tensor{y}
	}})
	// Sets whose codes are one vector turned, and queries and keys of equal components:
	// the cosines differ by roundings alone, which choose the set.
	for _, d := range []int{7, 39, 68, 135, 1030} {
		l = append(l, form{fmt.Sprintf("near ties/%d", d), []string{"scoreSets"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
			const texts, sets, ways = 20, 24, 2
			code := rnd.F32(tensortest.Ordinary, d)
			var codes []float32
			for i := range sets {
				codes = append(append(codes, code[i%d:]...), code[:i%d]...)
			}
			equal := func(v float32) []float32 {
				x := make([]float32, d)
				for i := range x {
					x[i] = v
				}
				return x
			}
			var segs []backend.Seg
			var q []float32
			for i := range texts {
				a := &backend.ArchiveSeg{Slot: 5, Window: []tensor.Tensor{r.f32(nil, 2, 1, backend.Page, d)}}
				p := r.s.Plan([]backend.Seg{{Rows: 6, Archive: &backend.ArchiveSeg{Window: a.Window}}})
				var k []float32
				for range 6 {
					k = append(k, equal(1.0123457+float32(i)/7)...)
				}
				r.s.(backend.Archive).PutWindow(p, 0, r.f32(k, 6, 1, d), r.random(rnd, 1, 6, 1, d), tensor.Tensor{})
				q = append(q, equal(1.7123457+float32(i)/7)...)
				bank := func() backend.ArchiveBank {
					return backend.ArchiveBank{Num: r.f32(nil, 1, 1, 1, d), Den: r.f32(nil, 1, 1, 1), Key: r.random(rnd, 1, 1, 1, sets*ways, d), Value: r.random(rnd, 1, 1, 1, sets*ways, d),
						Score: r.grades(rnd, 1, 1, sets*ways), Age: r.counts(rnd, 2, 1, 1, sets*ways), Next: r.counts(rnd, 3, 1, 1)}
				}
				a.In, a.Out = bank(), bank()
				segs = append(segs, backend.Seg{Row: i, Rows: 1, Slot: 5, Pos: 5, Archive: a})
			}
			x := &backend.ExactParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Sets: sets, Ways: ways, Probe: 1, QualityFirst: true, Mix: r.random(rnd, 1, 1),
				SetCodes: r.f32(codes, 1, sets, d), Threshold: -1, Admission: 0.7, Diversity: 0.3, Confidence: 0.25, ConfidenceTemp: 2}
			y, weight := r.f32(nil, texts, 1, d), r.f32(nil, texts, 1)
			r.s.(backend.Archive).ExactTier(y, weight, r.f32(q, texts, 1, d), r.s.Plan(segs), 0, x)
			out := []tensor.Tensor{y, weight}
			for i := range segs {
				out = append(out, segs[i].Archive.Out.Score)
			}
			return out
		}})
	}
	// Vectors of which a head has one lane of RSUM alone: lengths show its last bits.
	for _, d := range []int{131, 132} {
		for i, set := range []func(x *backend.ExactParams){
			func(x *backend.ExactParams) { x.FIFO, x.QualityFirst = true, true },
			func(x *backend.ExactParams) { x.FIFO = true },
			func(x *backend.ExactParams) { x.QualityFirst = true },
			func(x *backend.ExactParams) { x.QualityFirst, x.Sets, x.Probe = true, 2, 1 },
		} {
			for again := range 2 {
				l = append(l, form{fmt.Sprintf("lanes/%d/%d/%d", d, i, again), []string{"scoreEvent", "nearSlots"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
					return lanesApart(r, rnd, d, set)
				}})
			}
		}
		for again := range 3 {
			for _, closer := range []bool{false, true} {
				l = append(l, form{fmt.Sprintf("closeness by lanes/%d/%d/%v", d, again, closer), []string{"findReuse"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
					q, last := lane(rnd, 0, d), lane(rnd, 0, d)
					return closeReads(r, rnd, q, last, 32, closer, func(v []float32, i int) []float32 {
						to := make([]float32, d) // the same values in lane i
						for k := 0; k < d; k += 32 {
							if k+i < d {
								to[k+i] = v[k]
							}
						}
						return to
					})
				}})
			}
		}
	}
	// A read is used again if the query is as close to the last one as it is, and not if
	// it must be closer by one bit.
	for _, d := range []int{3, 7, 31, 32, 39, 63, 64, 70, 133, 1030} {
		for _, closer := range []bool{false, true} {
			l = append(l, form{fmt.Sprintf("closeness/%d/%v", d, closer), []string{"findReuse"}, true, func(r *rig, rnd *tensortest.Rand) []tensor.Tensor {
				q, last := rnd.F32(tensortest.Ordinary, d), rnd.F32(tensortest.Ordinary, d)
				for i := range q {
					q[i], last[i] = q[i]*1.0123457, q[i]+float32(0.3*last[i])
				}
				return closeReads(r, rnd, q, last, 6, closer, func(v []float32, i int) []float32 { return append(append([]float32(nil), v[i%d:]...), v[:i%d]...) })
			}})
		}
	}
	return l
}

// lane is a vector of random values in one lane of RSUM, and zeros.
func lane(rnd *tensortest.Rand, i, d int) []float32 {
	v, some := make([]float32, d), rnd.F32(tensortest.Ordinary, d)
	for k := i % 32; k < d; k += 32 {
		v[k] = some[k] * 1.0123457
	}
	return v
}

// lanesApart is an exact tier of one slot in each set, whose heads have vectors of one
// lane each.
func lanesApart(r *rig, rnd *tensortest.Rand, d int, set func(x *backend.ExactParams)) []tensor.Tensor {
	const heads, rows = 32, 2
	x := &backend.ExactParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Sets: 1, Ways: 1, Probe: 1, Threshold: -9, Admission: 0.7, Diversity: 0.3, ConfidenceTemp: 2}
	set(x)
	vectors := func(n int) tensor.Tensor { // n of each head
		var v []float32
		for range n {
			for h := range heads {
				v = append(v, lane(rnd, h, d)...)
			}
		}
		return r.f32(v, n, heads, d)
	}
	x.Mix, x.AdmKey, x.AdmValue, x.AdmBias = r.random(rnd, 0.5, heads), r.random(rnd, 1, heads, d), r.random(rnd, 1, heads, d), r.random(rnd, 1, heads)
	var codes, keys []float32
	for h := range heads {
		c := lane(rnd, h, d)
		for s := range x.Sets { // the same values in another order
			if codes = append(codes, c...); s > 0 {
				at := (h*x.Sets+s)*d + h
				codes[at], codes[at+64] = codes[at+64], codes[at]
			}
		}
		for range x.Sets {
			keys = append(keys, lane(rnd, h, d)...)
		}
	}
	x.SetCodes = r.f32(codes, heads, x.Sets, d)
	a := &backend.ArchiveSeg{Slot: 5, Window: []tensor.Tensor{r.f32(nil, 2, heads, backend.Page, d)}}
	p := r.s.Plan([]backend.Seg{{Rows: 5 + rows, Archive: &backend.ArchiveSeg{Window: a.Window}}})
	r.s.(backend.Archive).PutWindow(p, 0, vectors(5+rows), vectors(5+rows), tensor.Tensor{})
	low := make([]float32, heads*x.Sets)
	for i := range low {
		low[i] = -5 // of a slot that gives way
	}
	bank := func() backend.ArchiveBank {
		return backend.ArchiveBank{Num: r.f32(nil, 1, 1, 1, d), Den: r.f32(nil, 1, 1, 1), Key: r.f32(keys, 1, heads, x.Sets, d), Value: r.random(rnd, 1, 1, heads, x.Sets, d),
			Score: r.f32(low, 1, heads, x.Sets), Age: r.f32(make([]float32, len(low)), 1, heads, x.Sets), Next: r.f32(nil, 1, heads)}
	}
	a.In, a.Out = bank(), bank()
	y, weight := r.f32(nil, rows, heads, d), r.f32(nil, rows, heads)
	r.s.(backend.Archive).ExactTier(y, weight, vectors(rows), r.s.Plan([]backend.Seg{{Rows: rows, Slot: 5, Pos: 5, Archive: a}}), 0, x)
	return []tensor.Tensor{y, weight, a.Out.Score}
}

// closeReads are texts that ask q where they asked last before, both placed by turn,
// with the closeness that these have, or one bit more.
func closeReads(r *rig, rnd *tensortest.Rand, q, last []float32, texts int, closer bool, turn func(v []float32, i int) []float32) []tensor.Tensor {
	d := len(q)
	w := &backend.ArchiveParams{WindowParams: backend.WindowParams{Scale: 1, Window: 2}, Codes: r.random(rnd, 1, 1, 2, d), Mix: r.random(rnd, 1, 1, 2, 1), Decay: []float32{0.5}, Gain: []float32{0.25},
		Reuse: true, Stride: 1, Close: true, Closeness: canon.Dot(q, last) / (canon.Sqrt(canon.SumSquares(q)) * canon.Sqrt(canon.SumSquares(last)))}
	if closer {
		w.Closeness = math.Nextafter32(w.Closeness, 2)
	}
	var segs []backend.Seg
	var all []float32
	for i := range texts {
		a := &backend.ArchiveSeg{Slot: 5, Window: []tensor.Tensor{r.f32(nil, 2, 1, backend.Page, d)}}
		p := r.s.Plan([]backend.Seg{{Rows: 6, Archive: &backend.ArchiveSeg{Window: a.Window}}})
		r.s.(backend.Archive).PutWindow(p, 0, r.random(rnd, 1, 6, 1, d), r.random(rnd, 1, 6, 1, d), tensor.Tensor{})
		bank := func() backend.ArchiveBank {
			return backend.ArchiveBank{Num: r.random(rnd, 1, 1, 1, 2, d), Den: r.f32([]float32{1, 2}, 1, 1, 2), ReadQuery: r.f32(turn(last, i), 1, 1, d), ReadValue: r.random(rnd, 1, 1, 1, d), ReadMark: r.f32([]float32{1, 3}, 1, 2)}
		}
		a.In, a.Out = bank(), bank()
		segs = append(segs, backend.Seg{Row: i, Rows: 1, Slot: 5, Pos: 5, Archive: a})
		all = append(all, turn(q, i)...)
	}
	y := r.f32(nil, texts, 1, d)
	r.s.(backend.Archive).ArchiveScan(y, r.f32(all, texts, 1, d), r.s.Plan(segs), 0, w)
	out := []tensor.Tensor{y}
	for i := range segs {
		out = append(out, segs[i].Archive.Out.ReadMark)
	}
	return out
}
