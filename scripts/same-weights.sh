#!/usr/bin/env bash
# Train the first steps of a config in many ways and compare the hashes of the weights: workers,
# micro-batches, recomputed blocks, every kernel of this processor, and stops at random steps.
#
#   scripts/same-weights.sh [CONFIG [STEPS]]        models/tiny.json and 200 steps by default
#
# Minutes to an hour, by the model's size. Fails at the first way that gives other weights.
set -euo pipefail
cd "$(dirname "$0")/.."
config=${1:-models/tiny.json} steps=${2:-200}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/samebit" ./cmd/samebit

want=
# way NAME FLAG... trains to the last step and compares.
way() {
    local name=$1 hash
    shift
    hash=$("$tmp/samebit" train "$config" -o "$tmp/run" --until "$steps" "$@" 2>"$tmp/err" | sed -n 's/^weights //p') || { cat "$tmp/err" >&2; exit 1; }
    printf '%-44s %s\n' "$name" "$hash"
    [ "${want:=$hash}" = "$hash" ] || { echo "same-weights: $name gives other weights" >&2; exit 1; }
    rm -rf "$tmp/run"
}

for n in 1 2 4 8; do way "$n workers" --threads $n; done
for n in 1 2 4 8; do way "micro-batches of $((n * 256)) rows" --micro-rows $((n * 256)); done
way "recomputed blocks" --recompute
for kernels in $("$tmp/samebit" doctor --json | grep -o '"kernels":\[[^]]*' | grep -o '"[a-z0-9]*"' | tr -d '"' | grep -v kernels); do
    SAMEBIT_CPU=$kernels way "kernels $kernels"
done
at=0
for n in 1 2 3; do
    at=$((at + 1 + RANDOM % (steps / 4)))
    "$tmp/samebit" train "$config" -o "$tmp/run" --until $at >/dev/null 2>&1
    echo "stopped after step $at"
done
way "stopped and resumed"
