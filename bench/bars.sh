#!/usr/bin/env bash
# Every figure that the project holds itself to, measured on this machine in one go:
#
#   bench/bars.sh [ROUNDS]     (default 5; about an hour with all peers, on an idle machine)
#
# Needs what bench/peers/install.sh installs; parts whose peer is missing are left out and
# say so. Prints tables for docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/samebit-bench
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/samebit" ./cmd/samebit
pair=(python3 bench/peers/pair.py --samebit "$tmp/samebit" --rounds "$rounds")

echo "## Machine"
"$tmp/samebit" doctor | head -20
echo
echo "## Kernels beside OpenBLAS and the machine's limits"
if [ -x "$cache/venv/bin/python" ] && [ -x "$cache/membw" ]; then
    for t in 1 2; do python3 bench/peers/pair_kernels.py --samebit "$tmp/samebit" --rounds "$rounds" --threads "$t"; echo; done
else echo "left out: bench/peers/install.sh numpy membw"; fi
echo "## The contract's blocks against one unblocked chain, same kernel, calls taking turns"
go test -run '^$' -bench Blocks -benchtime 1s ./backend/cpu/internal/gemm | grep -E 'Benchmark|cpu:' || true
echo
echo "## Fork and join of two bodies of 20 µs"
go test -run '^$' -bench ForkJoin -benchtime 1s ./backend/cpu/internal/pool | grep -E 'Benchmark' || true
echo
echo "## BLAS beside gonum's own"
go test -run '^$' -bench Sgemm -benchtime 1s ./gonumblas | grep -E 'Benchmark' || true
echo
echo "## Models beside llama.cpp"
if [ -x "$cache/llama_perf" ]; then
    "${pair[@]}" smollm2-135m-{f32,bf16,q8_0,q4_0}.gguf qwen3-0.6b-{f32,bf16,q8_0,q4_0,q4_k_m}.gguf
else echo "left out: bench/peers/install.sh llama models"; fi
echo
echo "## Models beside PyTorch, float32"
if [ -x "$cache/venv/bin/python" ] && [ -d "$cache/models/smollm2-135m-hf-f32" ]; then
    "${pair[@]}" --peer torch smollm2-135m-hf-f32 qwen3-0.6b-hf-f32
else echo "left out: bench/peers/install.sh torch models"; fi
