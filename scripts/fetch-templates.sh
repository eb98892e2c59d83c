#!/bin/sh
# Fetches the chat templates of Llama 3.1 and 3.2, whose licence keeps them out
# of this repository, for the tests of package token/jinja into
# <user cache>/samebit/templates, and checks their sums against
# testdata/models/text/chat.json. Needs python3 with pip, and tar; downloads a
# source package of 70 MB once.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
goldens=$root/testdata/models/text/chat.json
case $(uname) in
Darwin) cache=$HOME/Library/Caches ;;
*) cache=${XDG_CACHE_HOME:-$HOME/.cache} ;;
esac
dir=$cache/samebit/templates
mkdir -p "$dir"

# have FILE FAMILY: whether FILE is there and the one the goldens were made with
have() {
	[ -f "$1" ] && python3 -c '
import hashlib, json, sys
want = json.load(open(sys.argv[2]))["templates"][sys.argv[3]]["sha256"]
sys.exit(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest() != want)' "$1" "$goldens" "$2"
}

if ! have "$dir/llama3.1.jinja" llama3.1 || ! have "$dir/llama3.2.jinja" llama3.2; then
	tmp=$(mktemp -d)
	trap 'rm -rf "$tmp"' EXIT
	cd "$tmp"
	python3 -m pip download -q --disable-pip-version-check --no-deps --no-binary :all: llama-cpp-python==0.3.36
	from=llama_cpp_python-0.3.36/vendor/llama.cpp/models/templates
	tar xzf llama_cpp_python-0.3.36.tar.gz "$from"
	mv "$from/meta-llama-Llama-3.1-8B-Instruct.jinja" llama3.1
	mv "$from/meta-llama-Llama-3.2-3B-Instruct.jinja" llama3.2
	for f in llama3.1 llama3.2; do
		if ! have $f $f; then
			echo "the template of $f does not have the sum in chat.json" >&2
			exit 1
		fi
		mv $f "$dir/$f.jinja"
	done
fi
echo "templates are in $dir"
