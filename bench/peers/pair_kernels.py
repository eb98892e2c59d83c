#!/usr/bin/env python3
"""samebit's kernels beside OpenBLAS (numpy), the read bandwidth and the FMA peak, in turn in one run.

  pair_kernels.py [--cache DIR] [--samebit BINARY] [--rounds 5] [--threads 1] [--seconds 0.3]

Prints, for each bar, the medians over the rounds and the median of the rounds' ratios with their spread.
"""
import argparse
import os
import statistics
import sys

from pair import lines

HERE = os.path.dirname(os.path.abspath(__file__))
SHAPES = ["512x512x512", "1024x1024x1024", "2048x2048x2048", "32x3072x1024", "128x3072x1024", "512x3072x1024"]


def one(a):
    t = str(a.threads)
    r = {}
    for x in lines([a.samebit, "bench", "--kernels", "all", "--json", "-", "--threads", t, "--seconds", str(a.seconds)]):
        if "test" not in x:
            continue  # the first line, about the machine
        r[f"{x['test']} {x['shape']}"] = x["best"]
        if x["test"] == "gemv":
            r[f"bytes {x['shape']}"] = x["bytes"]
    for x in lines([os.path.join(a.cache, "venv/bin/python"), os.path.join(HERE, "numpy_gemm.py"), "--shapes", ",".join(SHAPES), "--threads", t, "--seconds", str(a.seconds)]):
        if "gflops_best" in x:
            r[f"numpy {x['m']}x{x['n']}x{x['k']}"] = x["gflops_best"]
    r["read"] = max(x["gbps_best"] for x in lines([os.path.join(a.cache, "membw"), t, "1"]) if x["threads"] == a.threads)
    r["fma"] = max(x["gflops_best"] for x in lines([os.path.join(a.cache, "fmapeak"), t, "1"]))
    return r


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "samebit-bench"))
    p.add_argument("--samebit", default="./samebit")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seconds", type=float, default=0.3)
    a = p.parse_args()
    rounds = []
    for i in range(a.rounds):
        rounds.append(one(a))
        print(f"round {i + 1} of {a.rounds}", file=sys.stderr)
    med = lambda key: statistics.median(r[key] for r in rounds)
    print(f"{a.threads} threads; read bandwidth {med('read'):.1f} GB/s, FMA peak {med('fma'):.1f} GFLOP/s\n\n| | samebit | limit or peer | ratio | ratios |\n|---|---|---|---|---|")

    def row(what, f, g):
        v, w = [f(r) for r in rounds], [g(r) for r in rounds]
        q = sorted(x / y for x, y in zip(v, w))
        print(f"| {what} | {statistics.median(v):.2f} | {statistics.median(w):.2f} | {statistics.median(q):.2f} | {q[0]:.2f} to {q[-1]:.2f} |")

    for s in SHAPES:
        if f"numpy {s}" in rounds[0]:
            row(f"GEMM F32 {s} / OpenBLAS, GFLOP/s", lambda r: r[f"gemm F32 {s}"], lambda r: r[f"numpy {s}"])
        row(f"GEMM F32 {s} / FMA peak", lambda r: r[f"gemm F32 {s}"], lambda r: r["fma"])
    g = lambda t: f"gemv {t} 3072x2048"
    row("GEMV F32 / read bandwidth, GB/s", lambda r: 4 * r[g("F32")], lambda r: r["read"])
    row("GEMV BF16 / F32, G weights/s", lambda r: r[g("BF16")], lambda r: r[g("F32")])
    row("GEMV Q8_0 / BF16, G weights/s", lambda r: r[g("Q8_0")], lambda r: r[g("BF16")])
    for t in ["Q4_0", "Q4_1", "Q4_K", "Q6_K"]:
        row(f"GEMV {t} / BF16, G weights/s", lambda r: r[g(t)], lambda r: r[g("BF16")])
    for key in rounds[0]:
        if key.startswith("attention-prefill"):
            row(key + " / FMA peak", lambda r: r[key], lambda r: r["fma"])
        if key.startswith("attention-decode"):
            row(key + " / read bandwidth", lambda r: r[key], lambda r: r["read"])


if __name__ == "__main__":
    main()
