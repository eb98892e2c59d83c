#!/usr/bin/env bash
# Installs the engines that samebit is measured against, from package registries, into a cache folder.
#
#   install.sh [-c CACHE] [PART...]
#
# PART   numpy    a Python environment with numpy (OpenBLAS), threadpoolctl, gguf and safetensors
#        llama    llama.cpp, built from the source package of llama-cpp-python, and llama_perf     5-15 minutes
#        server   llama-server of the same sources, for prompts that begin like one before             10-30 minutes; needs llama
#        torch    PyTorch and transformers (the registry has CUDA builds only)                     5.6 GB
#        models   random qwen3-0.6b and SmolLM2-135M in every type the benchmarks use, and a
#                 random hybrid qwen3.5-0.8b in f32                                                12 GB; needs numpy and llama
#        membw    the machine's limits: the memory read-bandwidth loop and the FMA peak
# All parts when none is named. What is there already is left alone, so a second run takes seconds.
# CACHE  ${XDG_CACHE_HOME:-~/.cache}/samebit-bench by default.
#
# Needs python3 (3.11 or newer) with pip and venv, and for llama and membw a C and C++ compiler.
# JOBS sets the compiler processes (default 2), PYTHON the interpreter. ISA=avx2 builds for AVX2 on a machine
# that has more, as a user's older one would be, ISA=avx512 without AMX, on which some virtual machines fault;
# give either a cache folder of its own with -c.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/samebit-bench
jobs=${JOBS:-2}
case ${ISA:-native} in
native) isa=(-march=native) ggml=(-DGGML_NATIVE=ON) ;;
avx2) isa=(-mavx2 -mfma) ggml=(-DGGML_NATIVE=OFF -DGGML_{SSE42,AVX,AVX2,FMA,F16C,BMI2}=ON) ;;
avx512) isa=(-march=native) ggml=(-DGGML_NATIVE=OFF -DGGML_{SSE42,AVX,AVX2,FMA,F16C,BMI2,AVX_VNNI,AVX512,AVX512_VBMI,AVX512_VNNI,AVX512_BF16}=ON) ;; # no AMX
*) echo "install: ISA is ${ISA}: want avx2, avx512, or nothing for all that the machine has" >&2; exit 2 ;;
esac
llama_version=0.3.36

usage() { sed -n '2,19p' "${BASH_SOURCE[0]}" | sed 's/^# \{0,1\}//' >&2; exit 2; }
say() { echo "install: $*" >&2; }
fail() { say "$*"; exit 1; }

while getopts c:h opt; do
    case $opt in
    c) cache=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- numpy llama server torch models membw
for part; do
    case $part in numpy | llama | server | torch | models | membw) ;; *) usage ;; esac
done
mkdir -p "$cache"
cache=$(cd "$cache" && pwd -P) # resolved: the build of llama.cpp breaks when its path holds a symbolic link
py=$cache/venv/bin/python
models=$cache/models

environment() { [ -x "$py" ] || "${PYTHON:-python3}" -m venv "$cache/venv"; }

# packages NAME==VERSION...: installs those that the environment lacks.
packages() {
    environment
    if ! "$py" - "$@" <<'EOF'
import importlib.metadata as m, sys
def have(req):
    name, version = req.split("==")
    try:
        return m.version(name).split("+")[0] == version
    except m.PackageNotFoundError:
        return False
sys.exit(not all(map(have, sys.argv[1:])))
EOF
    then
        say "installing $*"
        "$py" -m pip install --quiet --disable-pip-version-check "$@"
    fi
}

install_numpy() {
    packages numpy==2.4.6 threadpoolctl==3.8.0 gguf==0.19.0 safetensors==0.8.0
    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE "$py" -c 'import numpy, threadpoolctl
for p in threadpoolctl.threadpool_info(): print("install: numpy", numpy.__version__, "uses", p["internal_api"], p["version"], p["architecture"])' >&2
}

install_torch() { packages torch==2.15.0 transformers==5.24.0; }

install_llama() {
    local src=$cache/llama_cpp_python-$llama_version/vendor/llama.cpp build=$cache/llama-build
    command -v g++ >/dev/null || fail "llama: no g++: install a C++ compiler"
    if [ ! -d "$src" ]; then
        environment
        say "fetching llama-cpp-python $llama_version"
        "$py" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$cache/dl" "llama-cpp-python==$llama_version"
        rm -rf "$cache/unpack" && mkdir "$cache/unpack"
        tar -xzf "$cache/dl/llama_cpp_python-$llama_version.tar.gz" -C "$cache/unpack"
        mv "$cache/unpack/llama_cpp_python-$llama_version" "$cache/" && rmdir "$cache/unpack"
    fi
    if [ ! -e "$build/bin/libllama.so" ]; then
        if ! command -v cmake >/dev/null || ! command -v ninja >/dev/null; then
            packages cmake==4.1.2 ninja==1.13.0
            PATH=$cache/venv/bin:$PATH
        fi
        say "building llama.cpp with $jobs jobs: log in $build.log"
        { cmake -S "$src" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${ggml[@]}" -DBUILD_SHARED_LIBS=ON -DLLAMA_OPENSSL=OFF \
            -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF && cmake --build "$build" --target llama -j "$jobs"; } \
            >"$build.log" 2>&1 || fail "llama.cpp does not build: see $build.log"
    fi
    if [ ! "$cache/llama_perf" -nt "$here/llama_perf.cpp" ]; then
        g++ -O2 -std=c++17 "$here/llama_perf.cpp" -I "$src/include" -I "$src/ggml/include" -L "$build/bin" -lllama -lggml -lggml-base \
            -Wl,-rpath,"$build/bin" -o "$cache/llama_perf"
    fi
}

install_server() {
    local build=$cache/llama-build
    [ -e "$build/bin/libllama.so" ] || install_llama
    [ ! -x "$build/bin/llama-server" ] || return 0
    PATH=$cache/venv/bin:$PATH
    say "building llama-server with $jobs jobs: log in $build-server.log"
    cmake --build "$build" --target llama-server -j "$jobs" >"$build-server.log" 2>&1 || fail "llama-server does not build: see $build-server.log"
}

# make_file OUT COMMAND...: runs COMMAND, in which OUT.part stands for the output, and names it OUT once it is whole.
make_file() {
    local out=$1
    shift
    [ -e "$out" ] && return
    say "making ${out#"$cache/"}"
    rm -rf "$out.part"
    "$@"
    mv "$out.part" "$out"
}

install_models() {
    [ -x "$py" ] || install_numpy
    [ -x "$cache/llama_perf" ] || install_llama
    mkdir -p "$models"
    local m=$models/qwen3-0.6b t
    make_file "$m-f32.gguf" "$py" "$here/gen_weights.py" --shape qwen3-0.6b --gguf "$m-f32.gguf.part" --gguf-type f32
    make_file "$m-f32-unrounded.gguf" "$py" "$here/gen_weights.py" --shape qwen3-0.6b --gguf "$m-f32-unrounded.gguf.part" --gguf-type f32 --unrounded
    make_file "$m-hf-f32" "$py" "$here/gen_weights.py" --shape qwen3-0.6b --out "$m-hf-f32.part" --dtype f32
    for t in bf16 q8_0 q4_0; do make_file "$m-$t.gguf" "$py" "$here/gguf_retype.py" "$m-f32.gguf" "$m-$t.gguf.part" $t; done
    make_file "$m-q4_k_m.gguf" "$cache/llama_perf" --quantize "$m-f32.gguf" "$m-q4_k_m.gguf.part" q4_k_m "$jobs"
    make_file "$models/qwen3.5-0.8b-f32.gguf" "$py" "$here/gen_weights.py" --shape qwen3.5-0.8b --gguf "$models/qwen3.5-0.8b-f32.gguf.part" --gguf-type f32

    m=$models/smollm2-135m
    make_file "$m-q4_1.gguf" fetch_smollm2 "$m-q4_1.gguf.part"
    for t in f32 bf16 q8_0 q4_0; do make_file "$m-$t.gguf" "$py" "$here/gguf_retype.py" "$m-q4_1.gguf" "$m-$t.gguf.part" $t; done
    make_file "$m-hf-f32" "$py" "$here/gguf_to_hf.py" "$m-q4_1.gguf" "$m-hf-f32.part" f32
}

fetch_smollm2() {
    local file
    file=$("$here/../../scripts/fetch-weights.sh")
    cp "$file" "$1"
}

install_membw() {
    [ "$cache/membw" -nt "$here/membw.c" ] || gcc -O3 "${isa[@]}" -pthread "$here/membw.c" -o "$cache/membw"
    [ "$cache/fmapeak" -nt "$here/fmapeak.c" ] || gcc -O3 "${isa[@]}" -ffp-contract=off -pthread "$here/fmapeak.c" -o "$cache/fmapeak"
}

for part; do "install_$part"; done
say "ready in $cache"
