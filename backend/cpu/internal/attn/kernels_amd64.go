//go:build !noasm

package attn

import "samebit/backend/cpu/internal/isa"

// For returns the kernels of instruction set s, or the portable ones where s
// has none here. Keep the result: it is made anew by each call.
func For(s isa.Set) *Kernels {
	switch s {
	case isa.AVX2:
		return avx2()
	case isa.AVX512:
		k := avx2()
		k.score = [...]func(s, q, k, next []float32, d int){nil,
			score1AVX512, score2AVX512, score3AVX512, score4AVX512, score5AVX512, score6AVX512}
		k.pv = [...]func(o, p, v, next []float32, d, lo, hi int, fac []float32){nil,
			pv1AVX512, pv2AVX512, pv3AVX512, pv4AVX512, pv5AVX512, pv6AVX512}
		k.score16 = [...]func(s, q []float32, k, next []uint16, d int){nil,
			score16x1AVX512, score16x2AVX512, score16x3AVX512, score16x4AVX512}
		k.pv16 = [...]func(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32){nil,
			pv16x1AVX512, pv16x2AVX512, pv16x3AVX512, pv16x4AVX512}
		k.softmax = softmaxAVX512
		k.weigh = weighAVX512
		k.pairs = true
		return k
	}
	return generic()
}

func avx2() *Kernels {
	return &Kernels{
		score: [...]func(s, q, k, next []float32, d int){nil,
			score1AVX2, score2AVX2, score3AVX2, score4AVX2, score5AVX2, score6AVX2},
		pv: [...]func(o, p, v, next []float32, d, lo, hi int, fac []float32){nil,
			pv1AVX2, pv2AVX2, pv3AVX2, pv4AVX2, pv5AVX2, pv6AVX2},
		softmax: softmaxAVX2,
		fold:    foldAVX2,
		merge:   mergeAVX2,
		scaleTo: scaleToAVX2,
		weigh:   weighAVX2,
		widen:   widenAVX2,
		fetch:   fetchAMD64,
		fetch16: fetch16AMD64,
		score16: [...]func(s, q []float32, k, next []uint16, d int){nil,
			score16x1AVX2, score16x2AVX2, score16x3AVX2, score16x4AVX2},
		pv16: [...]func(o, p []float32, v, next []uint16, d, lo, hi int, fac []float32){nil,
			pv16x1AVX2, pv16x2AVX2, pv16x3AVX2, pv16x4AVX2},
	}
}
