#!/usr/bin/env python3
"""Count the machine instructions in the loops of a kernel, as the assembler writes them.

    scripts/machine-loops.py MODULE KERNEL [sm_90]      for example gemv_Q4_K gemv1_Q4_K

The emulator counts PTX, where a register that is renamed costs a move and and-or pairs are two; this
counts what a GPU runs. It prints, for every backward branch, the instructions between its target and
itself (those of all paths) and the commonest of them. Run it with the Python of the folder that
scripts/build-ptx.sh makes, after pip install --no-deps nvidia-cuda-nvdisasm==13.5.37 there.
"""
import collections, pathlib, re, subprocess, sys, tempfile

try:
    import nvidia.cu13
except ImportError:
    sys.exit("machine-loops: no CUDA compiler here: use the python of ~/.cache/samebit/nvcc/bin (scripts/build-ptx.sh makes it)")
if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
bin = pathlib.Path(list(nvidia.cu13.__path__)[0]) / "bin"
module, kernel, arch = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["sm_90"])[0]
ptx = pathlib.Path(__file__).parent.parent / "backend/cuda/kernels" / (module + ".ptx")
with tempfile.TemporaryDirectory() as tmp:
    cubin = tmp + "/cubin"
    subprocess.run([bin / "ptxas", "-arch=" + arch, "-o", cubin, ptx], check=True)
    text = subprocess.run([bin / "nvdisasm", "-c", cubin], check=True, capture_output=True, text=True).stdout
section = re.search(r"\.text\.%s:(.*?)(?=\n\.text\.|\Z)" % re.escape(kernel), text, re.S)
if not section:
    sys.exit(f"machine-loops: {ptx} has no kernel {kernel}")
labels, code = {}, []
for line in section[1].splitlines():
    if m := re.match(r"\s*(\.L_x_\d+):", line):
        labels[m[1]] = len(code)
    elif m := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*);", line):
        code.append(re.sub(r"^@!?U?P\w+\s+", "", m[1]))
for i, line in enumerate(code):
    m = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
    if m and labels.get(m[1], i) < i:
        body = code[labels[m[1]] : i + 1]
        common = collections.Counter(x.split()[0] for x in body).most_common(8)
        print(f"{kernel} {arch} {len(body):5d} instructions:", ", ".join(f"{n} {x}" for x, n in common))
