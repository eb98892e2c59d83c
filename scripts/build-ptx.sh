#!/bin/sh
# Compiles the CUDA C of backend/cuda/kernels to the PTX beside it, byte for byte
# what is committed: scripts/build-ptx.sh [--check]. With --check nothing is
# written and a difference is an error.
#
# The compiler comes from PyPI, its four parts pinned, into a folder outside the
# repository (SAMEBIT_NVCC, default $HOME/.cache/samebit/nvcc). No GPU is needed.
set -eu
cd "$(dirname "$0")/../backend/cuda/kernels"
venv=${SAMEBIT_NVCC:-${XDG_CACHE_HOME:-$HOME/.cache}/samebit/nvcc}
if [ ! -x "$venv/bin/python" ]; then
	python3 -m venv "$venv"
	"$venv/bin/python" -m pip install -q --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96
fi
bin=$("$venv/bin/python" -c 'import nvidia.cu13 as m; print(list(m.__path__)[0])')/bin
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# compile SOURCE MODULE [FLAGS]. Nothing in the text needs a newer version than
# 7.0, which every driver since CUDA 11.0 reads; the pragma is a hint of later ones.
# The number behind _INTERNAL_ is that of the folder.
compile() {
	source=$1 name=$2 arch=75
	shift 2
	case $source in fast*) arch=80 ;; esac # tensor cores of bfloat16
	"$bin/nvcc" -ptx -arch=compute_$arch -fmad=false -ftz=false -prec-div=true -prec-sqrt=true "$@" -o "$out/raw" "$source"
	sed -e '/^\/\//d' -e '/^$/d' -e '/^[ \t]*\/\/ /d' -e '/\.pragma "used_bytes_mask/d' -e 's/^\.version .*/.version 7.0/' -e "s/^\.target .*/.target sm_$arch/" -e 's/_INTERNAL_[0-9a-f]*_/_/g' "$out/raw" >"$out/$name.ptx"
}

types=$(sed -n 's/^enum Type {\(.*\)};/\1/p' weights.cuh | tr -d ,)
for f in *.cu; do
	if grep -q '(TYPE)' "$f"; then # one module per storage type
		for t in $types; do compile "$f" "${f%.cu}_$t" -DTYPE="$t"; done
	else
		compile "$f" "${f%.cu}"
	fi
done
rm "$out/raw"

status=0
for f in "$out"/*.ptx; do
	name=$(basename "$f")
	if [ "${1:-}" = --check ]; then
		cmp "$f" "$name" || status=1
	elif ! cmp -s "$f" "$name"; then
		cp "$f" "$name"
		echo "$name written"
	fi
done
for f in *.ptx; do
	if [ ! -f "$out/$f" ]; then
		echo "$f has no source" >&2
		status=1
	fi
done
exit $status
