//go:build amd64 && !noasm

package vec

import "samebit/backend/cpu/internal/isa"

func native(s isa.Set) *Kernels {
	switch s {
	case isa.AVX2:
		return &avx2
	case isa.AVX512:
		return &avx512
	}
	return nil
}

var avx2 = Kernels{
	Set: isa.AVX2,
	add: addAVX2, sub: subAVX2, mul: mulAVX2,
	scale: scaleAVX2, addScalar: addScalarAVX2, divide: divideAVX2,
	addSquareMax7: addSquareMax7AVX2,
	fmaScalar:     fmaScalarAVX2, fma: fmaAVX2, mixRows: mixRowsAVX2,
	scaleMul: scaleMulAVX2, scaleMulAdd: scaleMulAddAVX2, scaleMulSiLU: scaleMulSiLUAVX2,
	exp: expAVX2, sigmoid: sigmoidAVX2, silu: siluAVX2, softplus: softplusAVX2,
	expSub: expSubAVX2, swiglu: swigluAVX2, sigmoidMul: sigmoidMulAVX2,
	rotate: rotateAVX2, conv4SiLU: conv4SiLUAVX2,
	softmaxGrad: softmaxGradAVX2, expSum: expSumAVX2, adamW: adamWAVX2,
	swigluGrad: swigluGradAVX2, swigluGradFirst: swigluGradFirstAVX2,
	normGrad: normGradAVX2, normGradFirst: normGradFirstAVX2, normGradSum: normGradSumAVX2, normGradSumPart: normGradSumPartAVX2,
	softmaxLossGrad: softmaxLossGradAVX2, softmaxLossGradFirst: softmaxLossGradFirstAVX2,
	sum: sumAVX2, sumSquares: sumSquaresAVX2, max: maxAVX2, index: indexAVX2,
}

var avx512 = Kernels{
	Set: isa.AVX512,
	add: addAVX512, sub: subAVX512, mul: mulAVX512,
	scale: scaleAVX512, addScalar: addScalarAVX512, divide: divideAVX512,
	addSquareMax7: addSquareMax7AVX512,
	fmaScalar:     fmaScalarAVX512, fma: fmaAVX512, mixRows: mixRowsAVX512,
	scaleMul: scaleMulAVX512, scaleMulAdd: scaleMulAddAVX512, scaleMulSiLU: scaleMulSiLUAVX512,
	exp: expAVX512, sigmoid: sigmoidAVX512, silu: siluAVX512, softplus: softplusAVX512,
	expSub: expSubAVX512, swiglu: swigluAVX512, sigmoidMul: sigmoidMulAVX512,
	rotate: rotateAVX512, conv4SiLU: conv4SiLUAVX512,
	softmaxGrad: softmaxGradAVX512, expSum: expSumAVX512, adamW: adamWAVX512,
	swigluGrad: swigluGradAVX512, swigluGradFirst: swigluGradFirstAVX512,
	normGrad: normGradAVX512, normGradFirst: normGradFirstAVX512, normGradSum: normGradSumAVX512, normGradSumPart: normGradSumPartAVX512,
	softmaxLossGrad: softmaxLossGradAVX512, softmaxLossGradFirst: softmaxLossGradFirstAVX512,
	sum: sumAVX512, sumSquares: sumSquaresAVX512, max: maxAVX2, index: indexAVX2,
}
