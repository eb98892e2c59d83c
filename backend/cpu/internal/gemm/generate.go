package gemm

// The assembly is written by programs in a module of their own, which needs avo.

//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm -pkg gemm -out ../../backend/cpu/internal/gemm/tile_amd64.s -stubs ../../backend/cpu/internal/gemm/tile_amd64.go tile
//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm -pkg gemm -out ../../backend/cpu/internal/gemm/tilebf16_amd64.s -stubs ../../backend/cpu/internal/gemm/tilebf16_amd64.go tilebf16
//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm -pkg gemm -out ../../backend/cpu/internal/gemm/tilef16_amd64.s -stubs ../../backend/cpu/internal/gemm/tilef16_amd64.go tilef16
//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm -pkg gemm -out ../../backend/cpu/internal/gemm/gemv_amd64.s -stubs ../../backend/cpu/internal/gemm/gemv_amd64.go gemv
//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm -pkg gemm -out ../../backend/cpu/internal/gemm/pack_amd64.s -stubs ../../backend/cpu/internal/gemm/pack_amd64.go pack
//go:generate env GOWORK=off go -C ../../../../internal/gen run ./gemm/neon -o ../../backend/cpu/internal/gemm/kernels_arm64.s gemm
