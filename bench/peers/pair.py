#!/usr/bin/env python3
"""samebit and a peer in turn on the same files, and the ratio of each pair.

  pair.py [--cache DIR] [--samebit BINARY] [--rounds 5] [--threads 2] [--peer llama|torch]
          [--prompts 128,512] [--tokens 16] [--depths 0] [--json FILE] MODEL...

MODEL is a name under DIR/models: a .gguf file for llama, a Hugging Face folder for torch. Each round runs both
programs once after their own warm-up; the table gives medians of the rounds and the median of the ratios, whose
spread shows how quiet the machine was. Memory bandwidth is measured in the same rounds.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def lines(cmd):
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    out = subprocess.run(cmd, check=True, stdout=subprocess.PIPE, env=env, text=True).stdout
    for line in out.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def ours(a, model):
    r = {}
    for x in lines([a.samebit, "bench", "--json", "-", "-m", model, "--threads", str(a.threads), "-p", a.prompts, "-n", str(a.tokens), "-d", a.depths, "-r", "1"]):
        if "test" not in x:
            continue  # the first line, about the machine
        if x["test"] == "load":
            r["load s"] = min(x["wall"])
        else:
            r[f"{x['test']} {x['n']} at {x['depth'] if 'depth' in x else 0}"] = x["best"]
        r["peak MiB"] = max(r.get("peak MiB", 0), x.get("peak_mib", 0))
    return r


def peer(a, model):
    if a.peer == "llama":
        cmd = [os.path.join(a.cache, "llama_perf"), "-m", model, "-t", str(a.threads), "-p", a.prompts, "-n", str(a.tokens), "-d", a.depths, "-r", "2", "--fakedepth", "1"]
    else:
        cmd = [os.path.join(a.cache, "venv/bin/python"), os.path.join(HERE, "torch_bench.py"), "perf", model, "--threads", str(a.threads),
               "--prefill", a.prompts, "--steps", str(a.tokens), "--depths", a.depths, "--reps", "2"]
    r = {}
    for x in lines(cmd):
        if x.get("test") == "load":
            r["load s"] = x["wall"]
        elif "tps_best" in x:
            r[f"{x['test']} {x['n']} at {x['depth']}"] = x["tps_best"]
        r["peak MiB"] = max(r.get("peak MiB", 0), x.get("peak_mib", 0) or 0)
    return r


def bandwidth(a):
    best = [x["gbps_best"] for x in lines([os.path.join(a.cache, "membw"), str(a.threads), "0.5"]) if x.get("threads") == a.threads]
    return max(best) if best else float("nan")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "samebit-bench"))
    p.add_argument("--samebit", default="./samebit", help="binary: go build ./cmd/samebit")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--peer", choices=["llama", "torch"], default="llama")
    p.add_argument("--prompts", default="128,512")
    p.add_argument("--tokens", type=int, default=16)
    p.add_argument("--depths", default="0")
    p.add_argument("--json")
    p.add_argument("models", nargs="+")
    a = p.parse_args()
    report = []
    for name in a.models:
        model = os.path.join(a.cache, "models", name)
        rounds = []
        for i in range(a.rounds):
            rounds.append((ours(a, model), peer(a, model), bandwidth(a)))
            print(f"{name}: round {i + 1} of {a.rounds}", file=sys.stderr)
        bw = statistics.median(b for _, _, b in rounds)
        print(f"\n{name}, {a.threads} threads, read bandwidth {bw:.1f} GB/s\n\n| | samebit | {a.peer} | ratio | ratios |\n|---|---|---|---|---|")
        for key in rounds[0][0]:
            if any(key not in r[1] for r in rounds):
                continue
            o, q = [r[0][key] for r in rounds], [r[1][key] for r in rounds]
            ratio = sorted(x / y for x, y in zip(o, q) if y)
            if not ratio:
                continue
            print(f"| {key} | {statistics.median(o):.2f} | {statistics.median(q):.2f} | {statistics.median(ratio):.2f} | {ratio[0]:.2f} to {ratio[-1]:.2f} |", flush=True)
            report.append({"model": name, "peer": a.peer, "what": key, "samebit": o, "theirs": q, "ratio": statistics.median(ratio), "bandwidth": bw})
    if a.json:
        with open(a.json, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
