#!/usr/bin/env bash
# Build interop/cudriver, the CUDA driver over gorgonia.org/cu, against CUDA 12.9's cuda.h and test it
# with a library that stands in for libcuda: the fake of backend/cuda/driver, and for the other functions
# that package cu links to, stubs that answer "not supported". No GPU is needed.
#
#   scripts/cudriver-check.sh [FLAG...]        flags of go test
#
# Needs gcc, and python3 with pip for the header (SAMEBIT_CUDA12 is its folder, by default
# ~/.cache/samebit/cuda12; the package nvidia-cuda-runtime-cu12 is fetched the first time).
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${SAMEBIT_CUDA12:-${XDG_CACHE_HOME:-$HOME/.cache}/samebit/cuda12}
if [ ! -x "$venv/bin/python" ]; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install -q --no-deps nvidia-cuda-runtime-cu12==12.9.79
fi
include=$(echo "$venv"/lib/python3*/site-packages/nvidia/cuda_runtime/include)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fake=backend/cuda/driver/testdata/fakecuda.c
# The header renames functions by macros, cuMemAlloc to cuMemAlloc_v2: the names of its preprocessed form count.
echo '#include <cuda.h>' | gcc -E -P -I "$include" - | tr '\n' ' ' | grep -o 'CUresult *cu[A-Za-z0-9_]* *(' | sed 's/CUresult *//; s/ *(//' | sort -u >"$tmp/all"
grep -o '^R cu[A-Za-z0-9_]*' "$fake" | sed 's/R //' | sort -u >"$tmp/made"
{ cat "$fake"; comm -23 "$tmp/all" "$tmp/made" | sed 's/.*/int &(void) { return 801; }/'; } >"$tmp/libcuda.c"
gcc -shared -fPIC -w -o "$tmp/libcuda.so" "$tmp/libcuda.c"
ln -s libcuda.so "$tmp/libcuda.so.1"
cd interop
CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$include" CGO_LDFLAGS="-L$tmp -Wl,-rpath,$tmp" go test -count=1 "$@" -tags gorgoniacu ./cudriver
