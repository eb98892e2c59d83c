package blas1

//go:generate env GOWORK=off go -C ../../../../../internal/gen run ./gemm -pkg blas1 -out ../../backend/cpu/internal/gemm/blas1/kernels_amd64.s -stubs ../../backend/cpu/internal/gemm/blas1/kernels_amd64.go blas1
//go:generate env GOWORK=off go -C ../../../../../internal/gen run ./gemm/neon -o ../../backend/cpu/internal/gemm/blas1/kernels_arm64.s blas1
