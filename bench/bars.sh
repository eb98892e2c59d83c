#!/usr/bin/env bash
# Every figure that the project holds itself to, measured on this machine in one go:
#
#   bench/bars.sh [ROUNDS [FILE]]     (default 5; some three hours with all peers, on an idle machine)
#
# Needs what bench/peers/install.sh installs; parts whose peer is missing are left out and
# say so. Prints tables for docs/performance.md and draws its plots beside FILE, which keeps
# every run beside llama.cpp (default .bench/bars.json): the same call of the same program
# goes on where one was stopped.
set -euo pipefail
rounds=${1:-5}
kept=${2:+$(realpath -m "$2")} # of the caller's folder
cd "$(dirname "$0")/.."
kept=${kept:-$PWD/.bench/bars.json}
mkdir -p "$(dirname "$kept")"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/samebit-bench
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/samebit" ./cmd/samebit
pair=(python3 bench/peers/pair.py --samebit "$tmp/samebit" --rounds "$rounds" --json "$kept")

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
    qwen=(qwen3-0.6b-{f32,bf16,q8_0,q4_0,q4_k_m}.gguf)
    {
        "${pair[@]}" "${qwen[@]}"
        "${pair[@]}" --tests prefill --prompts 2048 qwen3-0.6b-{f32,bf16}.gguf
        "${pair[@]}" --depths 0,2048 smollm2-135m-{f32,bf16,q8_0,q4_0}.gguf # its context ends at 8,192
        if [ -e "$cache/models/qwen3.5-0.8b-f32.gguf" ]; then "${pair[@]}" --tests decode,prefill --depths 0 qwen3.5-0.8b-f32.gguf; fi
    } >/dev/null
    python3 bench/peers/pair.py --tables "$kept"
    "$tmp/samebit" bench plot "$kept" --over depth --models "$(IFS=,; echo "${qwen[*]}")" -o "${kept%.json}-depth.svg"
    "$tmp/samebit" bench plot "$kept" --over batch --models "$(IFS=,; echo "${qwen[*]}")" -o "${kept%.json}-batch.svg"
    echo "plots: ${kept%.json}-depth.svg ${kept%.json}-batch.svg"
else echo "left out: bench/peers/install.sh llama models"; fi
echo
echo "## Prompts that begin like one before, beside llama.cpp's server"
if [ -x "$cache/llama-build/bin/llama-server" ]; then
    prefix=(python3 bench/peers/pair_prefix.py --samebit "$tmp/samebit" --rounds "$rounds" --json "$kept")
    {
        "${prefix[@]}" qwen3-0.6b-bf16.gguf
        # Parting in the middle of a longer prompt, where a hybrid model needs a state from before.
        if [ -e "$cache/models/qwen3.5-0.8b-f32.gguf" ]; then "${prefix[@]}" --first 6000 qwen3.5-0.8b-f32.gguf; fi
    } >/dev/null
    python3 bench/peers/pair_prefix.py --tables "$kept"
else echo "left out: bench/peers/install.sh llama server models"; fi
echo
echo "## Models beside PyTorch, float32"
if [ -x "$cache/venv/bin/python" ] && [ -d "$cache/models/smollm2-135m-hf-f32" ]; then
    python3 bench/peers/pair.py --samebit "$tmp/samebit" --rounds "$rounds" --peer torch --depths 0 smollm2-135m-hf-f32 qwen3-0.6b-hf-f32
else echo "left out: bench/peers/install.sh torch models"; fi
