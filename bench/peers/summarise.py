#!/usr/bin/env python3
"""JSON lines of llama_perf and torch_bench to one markdown table: summarise.py [FILE...] (standard input when none)."""
import fileinput
import json

HEAD = ["engine", "model", "threads", "test", "tok/s best", "median", "by CPU time", "peak MiB", "other cores busy"]


def row(r):
    test = f"{r['test']} {r['n']}"
    if r["test"] != "prefill":
        test += f" at depth {r['depth']}"
    if r.get("nseq", 1) > 1:
        test += f", {r['nseq']} sequences"
    return [r["peer"], " ".join([r["model"], r.get("dtype", "")]).strip(), r["threads"], test, r["tps_best"], r["tps_median"], r["tps_cpu"],
            r.get("peak_mib", ""), r.get("other_cpu", "")]


def main():
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for line in fileinput.input():
        try:
            r = json.loads(line)
        except ValueError:
            continue
        if "tps_best" in r:
            print("| " + " | ".join(str(x) for x in row(r)) + " |")


if __name__ == "__main__":
    main()
