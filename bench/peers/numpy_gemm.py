#!/usr/bin/env python3
"""Times float32 matrix products of numpy (OpenBLAS): X [M,K] times the transpose of W [N,K], as a linear layer holds it.

numpy_gemm.py [--shapes 512,1024,32x3072x1024] [--threads 1,2] [--seconds 1.5] [--ring-mib 128]

A shape is MxNxK, or one number for a cube. One JSON line per shape and thread count: best and median of many short runs,
and GFLOP/s by process CPU time (threads * flops / CPU seconds of all runs), which a busy machine disturbs least. With M = 1 the
product is limited by memory: the calls then walk through a ring of weights larger than any cache, and GB/s is given.
"""
import argparse
import json
import os
import time

for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.pop(name, None)  # they choose another kernel or fewer threads; read when numpy loads

import numpy as np
import threadpoolctl


def cpu_model():
    try:
        with open("/proc/cpuinfo") as f:
            return next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    except (OSError, StopIteration):
        return "unknown"


def blas():
    b = [p for p in threadpoolctl.threadpool_info() if p["user_api"] == "blas"]
    return " ".join(str(b[0][k]) for k in ("internal_api", "version", "architecture")) if b else "unknown"


def check(y, x, w):
    """A fast wrong answer must not give a number: 16 columns against float64."""
    cols = slice(0, min(16, w.shape[0]))
    want = x.astype(np.float64) @ w[cols].astype(np.float64).T
    err = np.abs(y[:, cols] - want).max()
    bound = 1e-5 * (np.abs(x.astype(np.float64)) @ np.abs(w[cols].astype(np.float64)).T).max()
    if not err <= bound:
        raise SystemExit(f"numpy_gemm: wrong product: error {err:g} above {bound:g}")


def measure(m, n, k, threads, seconds, ring_mib):
    rng = np.random.default_rng(1)
    copies = max(1, -(-ring_mib * 2**20 // (n * k * 4))) if m == 1 else 1
    x = rng.standard_normal((m, k), dtype=np.float32)
    ring = [rng.standard_normal((n, k), dtype=np.float32) for _ in range(copies)]
    y = np.empty((m, n), np.float32)
    wall = []
    with threadpoolctl.threadpool_limits(threads, "blas"):
        np.matmul(x, ring[0].T, out=y)
        check(y, x, ring[0])
        t = time.perf_counter()
        np.matmul(x, ring[-1].T, out=y)
        calls = max(1, int(2e-3 / (time.perf_counter() - t)))  # a run lasts about 2 ms or one call
        # CPU time over all runs: the kernel books that of other running threads at its timer ticks, too coarse for one run.
        cpu, end, at = time.process_time(), time.perf_counter() + seconds, 0
        while len(wall) < 5 or time.perf_counter() < end:
            t = time.perf_counter()
            for _ in range(calls):
                np.matmul(x, ring[at].T, out=y)
                at = (at + 1) % copies
            wall.append((time.perf_counter() - t) / calls)
        cpu = (time.process_time() - cpu) / (calls * len(wall))
    best, median = min(wall), sorted(wall)[len(wall) // 2]
    r = dict(peer="numpy", test="gemv" if m == 1 else "gemm", m=m, n=n, k=k, threads=threads, runs=len(wall), calls_per_run=calls,
             ms_best=1e3 * best, ms_median=1e3 * median, cpu_ms_mean=1e3 * cpu)
    if m == 1:
        b = 4e-9 * n * k
        r.update(gbps_best=b / best, gbps_median=b / median, gbps_cpu=b * threads / cpu)
    f = 2e-9 * m * n * k
    r.update(gflops_best=f / best, gflops_median=f / median, gflops_cpu=f * threads / cpu)
    return {key: round(v, 4) if isinstance(v, float) else v for key, v in r.items()}


def shape(s):
    v = [int(x) for x in s.split("x")]
    if len(v) not in (1, 3) or min(v) < 1:
        raise argparse.ArgumentTypeError(f"shape {s!r}: want MxNxK or one number")
    return v * 3 if len(v) == 1 else v


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--shapes", type=lambda s: [shape(x) for x in s.split(",")], default="512,1024,2048,32x3072x1024,1x3072x1024")
    ap.add_argument("--threads", type=lambda s: [int(x) for x in s.split(",")], default="1,2")
    ap.add_argument("--seconds", type=float, default=1.5, help="time per shape and thread count")
    ap.add_argument("--ring-mib", type=int, default=128, help="weights walked through when M is 1")
    a = ap.parse_args()
    print(json.dumps(dict(peer="numpy", test="setup", numpy=np.__version__, blas=blas(), cpu=cpu_model(), cores=os.cpu_count())), flush=True)
    for m, n, k in a.shapes:
        for t in a.threads:
            print(json.dumps(measure(m, n, k, t, a.seconds, a.ring_mib)), flush=True)


if __name__ == "__main__":
    main()
