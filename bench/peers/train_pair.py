#!/usr/bin/env python3
"""Training steps of samebit and of PyTorch in turn, on the same shapes, and what part of the FMA peak each reaches.

  train_pair.py [--cache DIR] [--config config.json] [--rounds 5] [--threads 2] [--seqs 8] [--rows 512] [--steps 5] [--json FILE]

A step is forward, backward and AdamW, in float32, of SEQS texts of ROWS tokens; the model is a dense Qwen3 from its
config.json (models/tiny by default). PyTorch runs transformers' model, eager, its own attention kernel and AdamW with
foreach. Each round runs both programs once after their own warm-up, and measures the FMA peak. Rates count
6 operations per weight of a product and row (the embedding only where it is the head); what attention and norms do is
in the time and not in the count. Needs Go, and install.sh torch membw.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

from pair import lines

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def torch_steps(a):
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(os.path.dirname(os.path.abspath(a.config)))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, foreach=True)
    ids = torch.randint(0, config.vocab_size, (a.seqs, a.rows + 1))
    best = []

    def step(ids):
        for at in range(0, a.seqs, a.micro or a.seqs):
            x = ids[at:at + (a.micro or a.seqs)]
            logits = model(input_ids=x[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size), x[:, 1:].reshape(-1)) * (x.shape[0] / a.seqs)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)

    step(ids)
    for _ in range(a.steps):
        t = time.perf_counter()
        step(ids)
        best.append(time.perf_counter() - t)
    embed = model.get_input_embeddings().weight.numel()
    weights = sum(p.numel() for p in params if p.dim() == 2) - (0 if config.tie_word_embeddings else embed)
    print(json.dumps(dict(tps=a.seqs * a.rows / statistics.median(best), weights=weights, version=torch.__version__)))


def ours(a, binary):
    out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "^BenchmarkStep/config$", "-test.benchtime", f"{a.steps}x", "-test.cpu", str(a.threads),
                          "-config", os.path.abspath(a.config), "-seqs", str(a.seqs), "-rows", str(a.rows)],
                         check=True, stdout=subprocess.PIPE, text=True, cwd=os.path.join(ROOT, "grad/lm")).stdout
    m = re.search(r"([0-9.e+]+) rows/s", out)
    if not m:
        sys.exit("train_pair: no rate in\n" + out)
    return float(m.group(1))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "samebit-bench"))
    p.add_argument("--config", default=os.path.join(ROOT, "models/tiny/config.json"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--seqs", type=int, default=8)
    p.add_argument("--rows", type=int, default=512)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--micro", type=int, default=0, help="texts of a micro-batch of PyTorch (0: all)")
    p.add_argument("--torch", action="store_true", help="PyTorch's steps alone, in this process")
    p.add_argument("--json")
    a = p.parse_args()
    if a.torch:
        return torch_steps(a)
    python = os.path.join(a.cache, "venv/bin/python")
    with tempfile.TemporaryDirectory() as tmp:
        binary = os.path.join(tmp, "lm.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "./grad/lm"], check=True, cwd=ROOT)
        got = {"samebit": [], "torch": [], "torch, texts one by one": [], "ratio": []}
        peaks, weights, version = [], 0, ""
        for _ in range(a.rounds):
            got["samebit"].append(ours(a, binary))
            rates = []
            for name, micro in (("torch", 0), ("torch, texts one by one", 1)):  # the better one counts
                *_, x = lines([python, os.path.abspath(__file__), "--torch", "--config", a.config, "--threads", str(a.threads), "--seqs", str(a.seqs),
                               "--rows", str(a.rows), "--steps", str(a.steps), "--micro", str(micro)])
                got[name].append(x["tps"])
                rates.append(x["tps"])
                weights, version = x["weights"], x["version"]
            got["ratio"].append(got["samebit"][-1] / max(rates))
            *_, x = lines([os.path.join(a.cache, "fmapeak"), str(a.threads), "0.5"])
            peaks.append(x["gflops_median"])
    peak = statistics.median(peaks)
    print(f"{weights} weights of products, {a.seqs} texts of {a.rows} rows, {a.threads} threads, PyTorch {version}, FMA peak {peak:.0f} GFLOP/s")
    for name in ("samebit", "torch", "torch, texts one by one"):
        m = statistics.median(got[name])
        flops = 6 * weights * m / 1e9
        print(f"{name:26s} {m:9.0f} rows/s {flops:8.1f} GFLOP/s {100 * flops / peak:6.1f} % of the peak   ({min(got[name]):.0f} to {max(got[name]):.0f})")
    print(f"samebit / the better torch {statistics.median(got['ratio']):9.2f}   ({min(got['ratio']):.2f} to {max(got['ratio']):.2f} in {a.rounds} rounds)")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(vars(a), rates=got, peaks=peaks, weights=weights, version=version), f)


main()
