#!/usr/bin/env python3
"""PyTorch on the CPU with transformers, on a Hugging Face folder: speed, and how many logits change with the schedule.

torch_bench.py perf DIR [--dtype fp32|bf16] [--threads 2] [--prefill 128,512] [--depths 0] [--steps 16] [--reps 5]
torch_bench.py det  DIR [--dtype fp32|bf16] [--threads 1] [--rows 320]

perf prints one JSON line per test, with the keys of llama_perf. det prints a table: the same tokens in one pass, in
chunks, step by step, in a batch, with another thread count, and how many of the last 32 rows' logits differ in any bit.
"""
import argparse
import json
import os
import resource
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch
from transformers import AutoModelForCausalLM, DynamicCache

TAIL = 32  # rows compared by det


def show(a, **fields):
    model = os.path.basename(os.path.normpath(a.dir))
    print(json.dumps(dict(peer="torch", model=model, dtype=a.dtype, threads=a.threads, **fields)), flush=True)


def perf(a, model, ids, load):
    def report(test, n, depth, f):
        wall, cpu = [], []
        for _ in range(a.reps):
            w, c = time.perf_counter(), time.process_time()
            f()
            wall.append(time.perf_counter() - w)
            cpu.append(time.process_time() - c)
        s = sorted(wall)
        show(a, test=test, n=n, depth=depth, nseq=1, tps_best=round(n / s[0], 2), tps_median=round(n / s[len(s) // 2], 2),
             tps_cpu=round(n * a.threads / min(cpu), 2), wall=[round(x, 4) for x in wall], cpu=[round(x, 4) for x in cpu],
             peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)

    show(a, test="load", wall=round(load, 3), version=torch.__version__, capability=torch.backends.cpu.get_cpu_capability())
    model(ids[:1, :16], logits_to_keep=1)  # warm-up
    for p in a.prefill:
        report("prefill", p, 0, lambda: model(ids[:1, :p], logits_to_keep=1))
    for depth in a.depths:
        cache, pos = DynamicCache(config=model.config), max(1, depth)
        model(ids[:1, :pos], cache=cache, logits_to_keep=1)

        def steps():
            nonlocal pos
            for _ in range(a.steps):
                model(ids[:1, pos:pos + 1], cache=cache)
                pos += 1

        steps()  # warm-up
        report("decode", a.steps, depth, steps)


def det(a, model, ids):
    x = ids[:1, :a.rows]

    def row(name, got, want):
        got, want = got.float(), want.float()
        differ, d = got.view(torch.int32) != want.view(torch.int32), (got - want).abs()
        print(f"| {name} | {differ.float().mean() * 100:.3f} % of {differ.numel()} | {d.max():.3e} | {d.pow(2).mean().sqrt() / want.std():.1e} "
              f"| {(got.argmax(-1) != want.argmax(-1)).sum()}/{got.shape[0]} |", flush=True)

    def chunks(cuts):
        cache, out, at = DynamicCache(config=model.config), [], 0
        for cut in [*cuts, a.rows]:
            out.append(model(x[:, at:cut], cache=cache).logits[0])
            at = cut
        return torch.cat(out)[-TAIL:]

    def stepped(batch):
        cache = DynamicCache(config=model.config)
        model(ids[:batch, :a.rows - TAIL], cache=cache)
        return torch.stack([model(ids[:batch, p:p + 1], cache=cache).logits[0, -1] for p in range(a.rows - TAIL, a.rows)])

    print("| schedule (against the whole prompt, one sequence) | logits that differ | max abs diff | rms diff / std | argmax flips |\n|---|---|---|---|---|")
    whole = lambda rows: model(rows).logits[0, -TAIL:]
    want = whole(x)
    row("repeat", whole(x), want)
    other = 1 if a.threads > 1 else 2
    torch.set_num_threads(other)
    row(f"{other} threads instead of {a.threads}", whole(x), want)
    torch.set_num_threads(a.threads)
    row("row 0 of a batch of 2", whole(ids[:2, :a.rows]), want)
    row("row 0 of a batch of 8", whole(ids[:, :a.rows]), want)
    row("cached prefix of all but 29", chunks([a.rows - 29]), want)
    row("cached prefix of all but 64", chunks([a.rows - 64]), want)
    row("chunks of 64", chunks(range(64, a.rows, 64)), want)
    row(f"prefill, then {TAIL} steps", chunks(range(a.rows - TAIL, a.rows)), want)
    row("all step by step", chunks(range(1, a.rows)), want)
    row("decode in a batch of 8 against decode alone", stepped(8), stepped(1))


def main():
    ints = lambda s: [int(x) for x in s.split(",") if x]
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("mode", choices=["perf", "det"])
    ap.add_argument("dir", help="Hugging Face folder: config.json and model.safetensors")
    ap.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--prefill", type=ints, default="128,512")
    ap.add_argument("--depths", type=ints, default="0")
    ap.add_argument("--steps", type=int, default=16)
    ap.add_argument("--reps", type=int, default=5)
    ap.add_argument("--rows", type=int, default=320)
    a = ap.parse_args()
    if a.mode == "det" and a.rows < 2 * TAIL:
        ap.error(f"--rows {a.rows}: want at least {2 * TAIL}")
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    t = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(a.dir, dtype={"fp32": torch.float32, "bf16": torch.bfloat16}[a.dtype]).eval()
    load = time.perf_counter() - t
    longest = max([a.rows, *a.prefill, *(d + a.steps * (a.reps + 1) + 1 for d in a.depths)])
    ids = torch.randint(300, model.config.vocab_size - 8, (8, longest))
    with torch.inference_mode():
        perf(a, model, ids, load) if a.mode == "perf" else det(a, model, ids)


if __name__ == "__main__":
    main()
