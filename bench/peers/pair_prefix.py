#!/usr/bin/env python3
"""A prompt that begins like one before it: samebit's cache and llama.cpp's server in turn on the same files.

  pair_prefix.py [--cache DIR] [--samebit BINARY] [--rounds 5] [--threads 2] [--rows 4200] [--shared 4000] [--first 0]
                 [--stride 256] [--settings default] [--json FILE] MODEL...
  pair_prefix.py --tables FILE...

Both first run a prompt of FIRST tokens (0: ROWS) and then one of ROWS tokens that shares SHARED with it: "cold" without
anything kept, "warm" after the first. A FIRST well above SHARED makes the prompts part in the middle, where a hybrid
model needs a state from before. llama.cpp is its own llama-server on this machine, asked over HTTP with token numbers,
one slot, nothing kept but what the slot holds; its times are the server's own of the prompt, without HTTP, and "cold" is
a prompt that shares nothing. samebit compares the bits of its cold and warm logits. --settings names settings of
llama.cpp as pair.py does: default, fa0-f16, fa0-f32, fa1-f16, fa1-f32. --json keeps and resumes as pair.py does.
"""
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pair

SERVER = "llama-server"


def ours(a, model):
    out = []
    args = [a.samebit, "bench", "--json", "-", "-m", model, "--threads", str(a.threads), "-r", "1", "--resume", str(a.rows), "--shared", str(a.shared),
            "--first", str(a.first), "--stride", str(a.stride)]
    for x in pair.lines(args):
        if x.get("test") in ("cold", "resume"):
            out.append({"test": {"resume": "warm"}.get(x["test"], x["test"]), "setting": "", "rate": x["wall"][-1], "wall": x["wall"], "cpu": x["cpu"]})
    return out


class Server:
    """A llama-server with one slot, on a free port of this machine."""

    def __init__(self, a, model, setting):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        context = (max(a.rows, a.first) + 64 + 255) // 256 * 256
        cmd = [os.path.join(a.cache, "llama-build", "bin", SERVER), "-m", model, "-t", str(a.threads), "-tb", str(a.threads), "-c", str(context), "-np", "1",
               "--host", "127.0.0.1", "--port", str(self.port), "--cache-ram", "0", "--no-ui"]
        if setting != "default":
            flash, kv = setting[2:].split("-")
            cmd += ["-fa", {"0": "off", "1": "on"}[flash], "-ctk", kv, "-ctv", kv]
        self.log = open(os.path.join(a.cache, SERVER + ".log"), "w")
        self.process = subprocess.Popen(cmd, stdout=self.log, stderr=subprocess.STDOUT)
        try:
            self.wait(300)
        except BaseException:
            self.close()
            raise

    def wait(self, seconds):
        """Until the server answers."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                    if r.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{SERVER} does not start: see {self.log.name}")
            time.sleep(0.2)

    def prompt(self, tokens, keep):
        """Seconds of the prompt by the server's clock, tokens it ran, tokens it had, and seconds of the request."""
        body = json.dumps({"prompt": tokens, "n_predict": 1, "cache_prompt": keep, "id_slot": 0, "temperature": 0}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", body, {"Content-Type": "application/json"})
        begin = time.monotonic()
        with urllib.request.urlopen(request, timeout=3600) as r:
            t = json.load(r)["timings"]
        return t["prompt_ms"] / 1000, t["prompt_n"], t.get("cache_n", len(tokens) - t["prompt_n"]), time.monotonic() - begin

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def theirs(a, model, setting, seed):
    r = random.Random(seed)
    draw = lambda n: [r.randrange(300, 30000) for _ in range(n)]
    first, other = draw(a.first or a.rows), draw(a.rows)
    second = first[:a.shared] + draw(a.rows - a.shared)
    out = []
    s = Server(a, model, setting)
    try:
        s.prompt(draw(64), False)  # warm-up
        for test, tokens, keep in (("cold", other, True), ("first", first, True), ("warm", second, True)):
            seconds, ran, had, request = s.prompt(tokens, keep)
            if test == "cold" and ran < len(tokens) - 1:
                sys.exit(f"{SERVER} had {had} tokens of a prompt that shares nothing")
            out.append({"test": test, "setting": setting, "rate": seconds, "ran": ran, "had": had, "request": request})
    finally:
        s.close()
    return out


def measure(a, f, name):
    model = os.path.join(a.cache, "models", name)
    f.model(model)
    for i in range(1, a.rounds + 1):
        key = {"model": name, "round": i, "threads": a.threads, "args": ["prefix", a.rows, a.shared, a.first, a.stride]}
        turns = [lambda: f.run(dict(key, engine="samebit", kv="f32"), lambda: ours(a, model))]
        turns += [lambda s=s: f.run(dict(key, engine=SERVER, setting=s), lambda: theirs(a, model, s, i)) for s in a.settings.split(",")]
        for turn in turns if i % 2 else reversed(turns):
            turn()
        print(f"{name}: round {i} of {a.rounds}", file=sys.stderr)


def tables(data):
    m = data["machine"]
    print(f"{m['processor']}, {m['processors']} processors; seconds\n")
    cases = {}
    for run in data["runs"]:
        if run["args"][:1] == ["prefix"]:
            by = cases.setdefault((run["model"], run["threads"], tuple(run["args"][1:])), {})
            for r in run["results"]:
                by.setdefault((run["engine"], r["setting"], r["test"]), {})[run["round"]] = r["rate"]
                if "ran" in r:
                    by.setdefault((run["engine"], r["setting"], r["test"] + " ran"), {})[run["round"]] = r["ran"]
    print("| model, tokens (shared, first prompt), threads | engine | cold | warm | cold / warm | its warm / samebit's | tokens run warm |\n|---|---|---|---|---|---|---|")
    for (model, threads, (rows, shared, first, _)), by in cases.items():
        for engine, setting in sorted({k[:2] for k in by}, key=lambda k: (k[0] != "samebit", k)):
            cold, warm = by.get((engine, setting, "cold"), {}), by.get((engine, setting, "warm"), {})
            x, y = pair.ratios(cold, warm), pair.ratios(warm, by.get(("samebit", "", "warm"), {}))
            if not x:
                continue
            ran = by.get((engine, setting, "warm ran"))
            print(f"| {model}, {rows} ({shared}, {first or rows}), {threads} | {engine} {setting}".rstrip() + f" | {x[0]:.2f} | {x[1]:.2f} | {x[2]:.1f} ({x[3]:.1f} to {x[4]:.1f}) | "
                  + (f"{y[2]:.2f} ({y[3]:.2f} to {y[4]:.2f})" if y and engine != "samebit" else "") + f" | {statistics.median(ran.values()) if ran else ''} |")
    print(flush=True)


def main():
    p = pair.options(__doc__)
    p.add_argument("--rows", type=int, default=4200)
    p.add_argument("--shared", type=int, default=4000)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--stride", type=int, default=256, help="tokens between samebit's checkpoints of a hybrid model")
    p.add_argument("--settings", default="default")
    p.add_argument("--tables", action="store_true", help="print the tables of result files and measure nothing")
    p.add_argument("models", nargs="+", metavar="MODEL")
    a = p.parse_args()
    if a.tables:
        for path in a.models:
            tables(pair.File(path).data)
        return
    if not 0 < a.shared < min(a.rows, a.first or a.rows):
        sys.exit(f"--shared {a.shared}: want at least 1 and less than both prompts have")
    if bad := set(a.settings.split(",")) - set(pair.SETTINGS):
        sys.exit(f"--settings {','.join(bad)}: have {', '.join(pair.SETTINGS)}")
    if not os.access(os.path.join(a.cache, "llama-build", "bin", SERVER), os.X_OK):
        sys.exit(f"no {SERVER}: bench/peers/install.sh server")
    f = pair.File(a.json, pair.machine(a))
    for name in a.models:
        measure(a, f, name)
    tables(f.data)


if __name__ == "__main__":
    main()
