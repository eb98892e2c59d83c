#!/bin/sh
# Assembles every committed kernel for real machines and prints registers, shared
# memory and spills of each: scripts/assemble-ptx.sh [sm_80 sm_90 sm_100]. A spill is
# an error. Needs the compiler that scripts/build-ptx.sh fetches; no GPU.
set -eu
cd "$(dirname "$0")/../backend/cuda/kernels"
venv=${SAMEBIT_NVCC:-${XDG_CACHE_HOME:-$HOME/.cache}/samebit/nvcc}
bin=$("$venv/bin/python" -c 'import nvidia.cu13 as m; print(list(m.__path__)[0])')/bin
[ $# -gt 0 ] || set -- sm_80 sm_90 sm_100
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
printf '%-8s %-20s %9s %8s %8s\n' machine kernel registers shared spilled
for arch; do
	for f in *.ptx; do
		"$bin/ptxas" -v -arch="$arch" -o "$out/cubin" "$f" 2>"$out/log"
		awk -v arch="$arch" '
			/Compiling entry function/ { split($0, q, "\047"); kernel = q[2] }
			/spill stores/ { spill = $0; sub(/.*frame, /, "", spill); sub(/ bytes spill.*/, "", spill) }
			/Used [0-9]+ registers/ {
				regs = $0; sub(/.*Used /, "", regs); sub(/ registers.*/, "", regs)
				smem = 0
				if (match($0, /[0-9]+ bytes smem/)) { smem = substr($0, RSTART, RLENGTH); sub(/ .*/, "", smem) }
				printf "%-8s %-20s %9d %8d %8d\n", arch, kernel, regs, smem, spill
			}' "$out/log" >>"$out/table"
	done
done
cat "$out/table"
awk '$5 > 0 { bad = 1; print $2 " spills on " $1 > "/dev/stderr" } END { exit bad }' "$out/table"
