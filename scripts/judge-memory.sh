#!/usr/bin/env bash
# Judge memories of constant size on a model of the program, for docs/qcc.md: tasks and held-out
# text at 512 tokens, lengths to 8,000, 4 to 64 pairs. One thread, some minutes; what is there
# already is not done again.
#
#   scripts/judge-memory.sh MODEL OUT [NAME=ADAPTER...]     writes OUT.jsonl, OUT.md and OUT.svg
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { echo "usage: scripts/judge-memory.sh MODEL OUT [NAME=ADAPTER...]" >&2; exit 2; }
model=$1 out=$2
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go build -o "$tmp/samebit" ./cmd/samebit
tail -c 28000 "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt" >"$tmp/held-out.txt" # of which no training has seen anything

adapters=()
for a; do adapters+=(--adapter "$a"); done
judge() {
    "$tmp/samebit" eval-memory -m "$model" --threads 1 --contexts "${CONTEXTS:-6}" --results "$out.jsonl" "$@" ${adapters[@]+"${adapters[@]}"}
}
judge --rows 512 --budgets 64,128,256 --memories window,sinks,sieve,table,archive,compile --text "$tmp/held-out.txt" --text-rows 1024 >"$tmp/log"
judge --rows 1024 --budgets 128,256 --memories window,sieve,table --tasks recall --pairs 4,8,16,32,64 >"$tmp/log"
judge --rows 1024,2048,4096,8000 --budgets 128,256 --memories window,sieve,table --tasks facts,recall,single,multikey,variables --markdown --plot "$out.svg" >"$out.md"
echo "$out.md"
