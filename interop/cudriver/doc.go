// Package cudriver is a second implementation of the interfaces of
// samebit/backend/cuda/driver, over gorgonia.org/cu and cgo: it shows that the
// CUDA backend is not tied to one binding.
//
//	drv, err := cudriver.New()
//	dev, err := cuda.New(cuda.Config{Driver: drv})
//
// It is built with the tag gorgoniacu only, on Linux, with cuda.h of CUDA 12 and
// libcuda.so where the C compiler finds them (CGO_CFLAGS, CGO_LDFLAGS). Package
// cu calls cuInit as the program starts and ends the process if that fails, and a
// program that links it does not start on a machine without libcuda. So import
// this package from a main package made for machines with a GPU, never from a
// library.
//
// What gorgonia.org/cu v0.9.6 has no call for is called here: page-locked memory,
// the limit of dynamic shared memory, stream capture and the launch of graphs,
// names of errors, and launches whose parameters are not all eight bytes or less.
package cudriver
