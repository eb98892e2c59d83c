#!/bin/sh
# Runs on a machine with a GPU what CI cannot: parity of the small models and of a
# real one with the processor, a small training with the processor's weights, speeds
# of single ops, prompts and decoding. Writes one JSON object and takes less than ten
# minutes.
#
#   scripts/gpu-check.sh [DEVICE] [OUT]      default cuda:0, gpu-check.json
#
# DEVICE may be cuda:emu, to try the script without a GPU: then sizes are small.
# MODEL is the real model (default: what scripts/fetch-weights.sh keeps, if it is
# there); SAMEBIT a binary to use instead of building one, so that a machine
# without Go can run this: go build -o samebit ./cmd/samebit, and carry it with
# testdata/models, train/testdata and this script.
set -u
cd "$(dirname "$0")/.."
device=${1:-cuda:0}
out=${2:-gpu-check.json}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
begin=$(date +%s)

samebit=${SAMEBIT:-}
if [ -z "$samebit" ]; then
	samebit=$tmp/samebit
	(cd cmd && CGO_ENABLED=0 go build -o "$samebit" ./samebit) || exit 1
fi
model=${MODEL:-${XDG_CACHE_HOME:-$HOME/.cache}/samebit/models/SmolLM2-135M-Instruct.Q4_1.gguf}

failed=0
# step NAME COMMAND... keeps the JSON lines of a command and whether it failed.
step() {
	name=$1
	shift
	echo "$name" >&2
	if ! timeout 240 "$@" >>"$tmp/lines" 2>"$tmp/err"; then
		failed=$((failed + 1))
		tail -3 "$tmp/err" >&2
		printf '{"step":"%s","failed":"%s"}\n' "$name" "$(tail -1 "$tmp/err" | tr -d '"\\' | cut -c1-300)" >>"$tmp/lines"
	fi
}
# list prints the lines so far as a JSON list and begins anew.
list() {
	printf '['
	[ ! -f "$tmp/lines" ] || paste -sd, "$tmp/lines"
	printf ']'
	rm -f "$tmp/lines"
}

if [ "$device" = cuda:emu ]; then
	small="qwen3-tied-bf16 qwen35-bf16" rows="--prompt-tokens 20 --tokens 2 --ops 5" seconds= steps=1
	model=testdata/models/checkpoints/qwen35-bf16 bench="-p 16 -n 2 -r 1"
else
	small=$(ls testdata/models/checkpoints) rows="--prompt-tokens 200 --tokens 16 --ops 20" seconds=0.5 steps=40
	bench="-p 128,512,2048 -n 64 -d 0,2048 -r 5"
fi
for m in $small; do
	step "parity of $m" "$samebit" parity --json --device "$device" $rows -m "testdata/models/checkpoints/$m"
done
if [ -e "$model" ]; then
	step "parity of $model" "$samebit" parity --json --device "$device" $rows -m "$model"
fi
list >"$tmp/parity"
step "training of $steps steps" sh -c '
	want=$("$1" train "$3" -o "$4/cpu" --until "$5" | sed -n "s/^weights //p")
	[ -n "$want" ] || exit 1
	"$1" train "$3" -o "$4/device" --until "$5" --device "$2" --expect "$want" >&2 || exit 1
	printf "{\"config\":\"%s\",\"steps\":%d,\"weights\":\"%s\"}\n" "$3" "$5" "$want"
' sh "$samebit" "$device" train/testdata/small.json "$tmp" "$steps"
list >"$tmp/training"
[ -z "$seconds" ] || step "single ops" "$samebit" bench --json - --device "$device" --kernels all --seconds "$seconds"
list >"$tmp/ops"
if [ -e "$model" ]; then
	step "speed of $model" "$samebit" bench --json - --device "$device" $bench -m "$model"
else
	echo "$model is not there: no speeds of a whole model" >&2
fi
list >"$tmp/model"
{
	printf '{"device":"%s","commit":"%s","seconds":%d,"failed":%d,"parity":' "$device" "$(git rev-parse HEAD 2>/dev/null)" $(($(date +%s) - begin)) "$failed"
	cat "$tmp/parity"
	printf ',"training":'
	cat "$tmp/training"
	printf ',"ops":'
	cat "$tmp/ops"
	printf ',"model":'
	cat "$tmp/model"
	printf '}\n'
} | tr -d '\n' >"$out"
echo >>"$out"
echo "$out: $failed steps failed" >&2
[ "$failed" = 0 ]
