#!/usr/bin/env python3
"""samebit and a peer in turn on the same files, and the ratio of each pair.

  pair.py [--cache DIR] [--samebit BINARY] [--rounds 5] [--threads 2] [--peer llama|torch]
          [--tests decode,prefill,batch,load] [--prompts 128,512] [--tokens 8] [--depths 0,2048,8192] [--seqs 1,4,16]
          [--kv f32] [--json FILE] MODEL...
  pair.py --tables FILE...

MODEL is a name under DIR/models: a .gguf file for llama, a Hugging Face folder for torch. A round runs each test once in
both programs, which take turns in who comes first, each after its own warm-up; read bandwidth and FMA peak are measured
in the same rounds. Tables give medians over the rounds, and the median and spread of the rounds' ratios.

llama.cpp runs in its default setting and in its best one: the first round tries flash attention off and on with f16 and
f32 caches, and what is at least 3 % faster than the default for a test and length runs in the other rounds too. Depths
beyond a block are filled with copies of a block in both programs (README.md); PyTorch fills them for real.

Every run tells how long it loaded the model. The test load does nothing else, three times in a process, and the last
counts: whoever packs weights then has memory that the process held before, which a virtual machine would first have to
get from its host.

With --json every run is kept as soon as it ends, and the same command goes on where it was stopped. Other tests, lengths,
models and more rounds may be added to a file by further commands; another machine or program may not. --tables prints a
file's tables again and measures nothing.
"""
import argparse
import datetime
import glob
import hashlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SETTINGS = ["default", "fa0-f16", "fa0-f32", "fa1-f16", "fa1-f32"]
NAMES = {"llama": "llama.cpp", "torch": "PyTorch"}
WORTH = 1.03  # a setting counts as better than the default from here on


def lines(cmd):
    """The JSON objects that a command prints, one a line."""
    env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
    try:
        done = subprocess.run(cmd, stdout=subprocess.PIPE, env=env, text=True)
    except OSError as e:
        sys.exit(f"cannot run {cmd[0]}: {e.strerror}; peers come from install.sh, samebit from go build ./cmd/samebit (--samebit names it)")
    if done.returncode:
        sys.exit(f"this failed with status {done.returncode}: {' '.join(cmd)}")
    for line in done.stdout.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def machine(a):
    for path, remedy in ((a.samebit, "go build ./cmd/samebit makes it, --samebit names another"), (a.cache, "install.sh makes it, --cache names another")):
        if not os.path.exists(path):
            sys.exit(f"no {path}: {remedy}")
    try:
        with open("/proc/cpuinfo") as f:
            info = f.read()
        cpu = re.search(r"model name\s*:\s*(.*)", info).group(1)
        cpu += ", AVX-512" if re.search(r"\bavx512f\b", info) else ", AVX2" if re.search(r"\bavx2\b", info) else ""
    except (OSError, AttributeError):
        cpu = platform.processor()
    if kernels := os.environ.get("SAMEBIT_CPU"):
        cpu += f", kernels held to {kernels}"
    with open(a.samebit, "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()[:16]
    torch = []
    if getattr(a, "peer", "") == "torch":
        for name in ("torch", "transformers"):
            torch += glob.glob(os.path.join(glob.escape(a.cache), f"venv/lib/python*/site-packages/{name}-*.dist-info"))
    return {"torch": ", ".join(os.path.basename(n).removesuffix(".dist-info") for n in torch), "processor": cpu, "processors": len(os.sched_getaffinity(0)), "system": platform.platform(), "samebit": digest,
            "llama": ", ".join(sorted(n for n in os.listdir(a.cache) if n.startswith("llama_cpp_python-")))}


class File:
    """The runs of a result file, kept on disk as soon as they end."""

    def __init__(self, path, here=None):
        self.path, self.data = path, {"pair": 1, "machine": here, "runs": []}
        if path and os.path.exists(path):
            with open(path) as f:
                self.data = json.load(f)
            if self.data.get("pair") != 1:
                sys.exit(f"{path} is not a file of pair.py --json")
            was = self.data["machine"]
            if here:  # only runs of PyTorch say its version
                was["torch"] = was.get("torch") or here["torch"]
                here["torch"] = here["torch"] or was["torch"]
            for key in ("processor", "processors", "samebit", "llama", "torch"):
                if here and was[key] != here[key]:
                    sys.exit(f"{path} was measured with {key} {was[key]}, this is {here[key]}: name another file")

    def model(self, path):
        """Refuses a model that has changed since its first run."""
        name = os.path.basename(path)
        if not os.path.exists(path):
            sys.exit(f"no model {path}: make it with install.sh models or gen_weights.py")
        files = [path] if os.path.isfile(path) else sorted(glob.glob(os.path.join(glob.escape(path), "*.safetensors")))
        now = [[os.path.getsize(f), int(os.path.getmtime(f))] for f in files]
        if self.data.setdefault("models", {}).setdefault(name, now) != now:
            sys.exit(f"{self.path}: {name} has another size or date than when it was measured: name another file")

    def find(self, key):
        return next((r for r in self.data["runs"] if all(r[k] == v for k, v in key.items())), None)

    def run(self, key, measure):
        """The kept run of this key, or else a new one: what measure returns."""
        r = self.find(key)
        if r is None:
            start = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
            before = os.getloadavg()[0]
            r = dict(key, start=start, load=before, results=measure())
            self.data["runs"].append(r)
            if self.path:
                with open(self.path + ".part", "w") as f:
                    json.dump(self.data, f, indent=1)
                os.replace(self.path + ".part", self.path)
        return r


def ours(a, model, args):
    """What samebit bench measures, as results of a run."""
    out = []
    for x in lines([a.samebit, "bench", "--json", "-", "-m", model, "--threads", str(a.threads), "-r", "1"] + args):
        if "test" in x:  # the first line is about the machine
            rate = x["wall"][-1] if x["test"] == "load" else x["median"]
            out.append({"test": x["test"], "n": x.get("n", 0), "depth": x.get("depth", 0), "nseq": x.get("nseq", 1), "setting": "", "rate": rate,
                        "wall": x["wall"], "cpu": x["cpu"], "peak_mib": x.get("peak_mib", 0), "bytes": x.get("bytes", 0), "flops": x.get("flops", 0)})
    return out


def peer(cmd):
    out = []
    for x in lines(cmd):
        if x.get("test") == "load":
            out.append({"test": "load", "n": 0, "depth": 0, "nseq": 1, "setting": "", "rate": x["wall"], "wall": [x["wall"]], "cpu": [x.get("cpu", 0)],
                        "bytes": x.get("bytes", 0), "system": x.get("system", "")})
        elif "tps_median" in x:
            test = {"batched-decode": "batch"}.get(x["test"], x["test"])
            out.append({"test": test, "n": x["n"], "depth": x["depth"], "nseq": x.get("nseq", 1), "setting": x.get("setting", ""), "rate": x["tps_median"],
                        "wall": x["wall"], "cpu": x["cpu"], "peak_mib": x.get("peak_mib", 0) or 0, "other_cpu": x.get("other_cpu", 0)})
    return out


def limits(a):
    """Read bandwidth in GB/s and FMA peak in GFLOP/s of all threads together: medians, as the rates beside them are, and the best moments."""
    t = str(a.threads)
    read = [x for x in lines([os.path.join(a.cache, "membw"), t, "0.3"]) if x.get("threads") == a.threads]
    fma = list(lines([os.path.join(a.cache, "fmapeak"), t, "0.3"]))
    return [{"test": test, "rate": max(x[unit + "_median"] for x in got), "best": max(x[unit + "_best"] for x in got)}
            for test, got, unit in (("read", read, "gbps"), ("fma", fma, "gflops"))]


def what(r):
    """Names a measurement: the same for both programs."""
    return (r["test"], r["n"], r["depth"], r["nseq"])


def best(first):
    """The setting for each measurement that is well above the default in the peer's first round."""
    rates, top = {}, {}
    for r in first["results"]:
        if r["setting"]:
            rates.setdefault(what(r), {})[r["setting"]] = r["rate"]
    for key, by in rates.items():
        s = max(by, key=by.get)
        top[key] = s if by[s] >= WORTH * by.get("default", 0) else "default"
    return top


def arguments(a, test):
    """The arguments of both programs for a test."""
    n, d = str(a.tokens), a.depths
    if a.peer == "torch":
        return (["--tests", "prefill,decode", "-p", a.prompts, "-n", n, "-d", d],
                ["--prefill", a.prompts, "--steps", n, "--depths", d, "--reps", "1"])
    return {"load": (["--tests", "decode", "-d", "0", "-n", "1", "--loads", "3"], ["-d", "0", "-n", "1", "--loads", "3"]),
            "prefill": (["--tests", test, "-p", a.prompts], ["-p", a.prompts, "-n", "0"]),
            "decode": (["--tests", test, "-d", d, "-n", n], ["-d", d, "-n", n]),
            "batch": (["--tests", test, "--seqs", a.seqs, "-n", n], ["--nseq", a.seqs, "-d", "64", "-n", n])}[test]


def measure(a, f, name):
    """All rounds of a model."""
    model = os.path.join(a.cache, "models", name)
    f.model(model)
    tests = ["prefill,decode"] if a.peer == "torch" else a.tests.split(",")
    for i in range(1, a.rounds + 1):
        f.run({"model": name, "round": i, "engine": "limits", "threads": a.threads, "args": []}, lambda: limits(a))
        for test in tests:
            mine, theirs = arguments(a, test)
            key = {"model": name, "round": i, "threads": a.threads}

            def run(key, get):
                f.run(key, lambda: [r for r in get() if test != "load" or r["test"] == test])

            def us():
                for kv in a.kv.split(",") if test == "decode" else ["f32"]:
                    args = mine if kv == "f32" else mine + ["--kv", kv]
                    run(dict(key, engine="samebit", kv=kv, args=args), lambda: ours(a, model, args))

            def them():
                if a.peer == "torch":
                    cmd = [os.path.join(a.cache, "venv/bin/python"), os.path.join(HERE, "torch_bench.py"), "perf", model, "--threads", str(a.threads)] + theirs
                else:
                    settings = SETTINGS
                    if test == "load":
                        settings = ["default"]
                    elif i > 1:
                        first = f.find({"model": name, "round": 1, "threads": a.threads, "engine": NAMES[a.peer], "args": theirs})
                        wanted = set(best(first).values()) | {"default"}
                        settings = [s for s in SETTINGS if s in wanted]
                    cmd = [os.path.join(a.cache, "llama_perf"), "-m", model, "-t", str(a.threads), "-r", "1", "--fakedepth", "1",
                           "--settings", ",".join(settings)] + theirs
                run(dict(key, engine=NAMES[a.peer], args=theirs), lambda: peer(cmd))

            for turn in (us, them) if i % 2 else (them, us):
                turn()
        print(f"{name}: round {i} of {a.rounds}", file=sys.stderr)


class Rates:
    """Rates of a model by round: of ours, of the peer by setting, and the limits."""

    def __init__(self, data, name, threads, engine):
        self.ours, self.theirs, self.info, self.top, self.load = {}, {}, {}, {}, []
        self.read, self.fma, self.best = {}, {}, {"read": [], "fma": []}
        for run in data["runs"]:
            if run["model"] != name or run["threads"] != threads or run["args"][:1] == ["prefix"]:
                continue
            i = run["round"]
            self.load.append(run["load"])
            if run["engine"] == "limits":
                if any("best" not in x for x in run["results"]):
                    sys.exit(f"pair.py: {name} was measured when limits were best moments, not medians: give --json a new file")
                for x, rates in zip(run["results"], (self.read, self.fma)):
                    rates[i] = x["rate"]
                    self.best[x["test"]].append(x["best"])
            elif run["engine"] == "samebit" or run["engine"] == engine:
                mine = run["engine"] == "samebit"
                if not mine and i == 1:
                    self.top.update(best(run))
                for r in run["results"]:
                    rates = self.ours if mine else self.theirs
                    at = rates.setdefault((what(r), run["kv"] if mine else r["setting"]), {})
                    at[i] = min(at.get(i, r["rate"]), r["rate"]) if r["test"] == "load" else r["rate"]
                    if mine and run["kv"] == "f32":
                        self.info.setdefault(what(r), r)
                    if r.get("peak_mib") and (mine and run["kv"] == "f32" or r["setting"] in ("", "default")):
                        peak = rates.setdefault((("peak",) + what(r)[0:3], "f32" if mine else "default"), {})
                        peak[i] = r["peak_mib"]


def ratios(x, y):
    """Medians of two lists by round, and of the ratios of the rounds that both have."""
    both = sorted(set(x) & set(y))
    if not both or any(not y[i] for i in both):
        return None
    q = sorted(x[i] / y[i] for i in both)
    return statistics.median(x[i] for i in both), statistics.median(y[i] for i in both), statistics.median(q), q[0], q[-1], len(q)


def number(v):
    return f"{v:,.0f}" if v >= 300 else f"{v:.1f}" if v >= 20 else f"{v:.2f}"


def label(key):
    test, n, depth, nseq = key
    return {"load": "load, s", "prefill": f"prompt of {n}", "decode": f"decode at {depth:,}", "batch": f"batch of {nseq}"}.get(test, test)


ORDER = {"prefill": 0, "decode": 1, "batch": 2, "load": 3}


def tables(data, out=sys.stdout):
    """Prints the tables of all models of a file."""
    m = data["machine"]
    print(f"{m['processor']}, {m['processors']} processors\n", file=out)
    seen = []
    for run in data["runs"]:
        key = (run["model"], run["threads"], run["engine"])
        if run["engine"] in NAMES.values() and key not in seen:
            seen.append(key)
    for name, threads, engine in seen:
        r = Rates(data, name, threads, engine)
        if r.ours:
            model_tables(r, name, threads, engine, out)


def model_tables(r, name, threads, engine, out):
    read, fma = (f"{statistics.median(m.values()):.1f} (best {statistics.median(r.best[test]):.1f})" for test, m in (("read", r.read), ("fma", r.fma)))
    plain = "" if engine == "PyTorch" else "default"
    rounds = len(r.read)
    print(f"{name}, {threads} threads, {rounds} rounds, tokens/s; read bandwidth {read} GB/s, FMA peak {fma} GFLOP/s, load average {min(r.load):.1f} to {max(r.load):.1f}\n", file=out)
    print(f"| | samebit | {engine} | ratio | its best setting | | ratio |\n|---|---|---|---|---|---|---|", file=out)
    keys = sorted((k for k in r.ours if k[0][0] in ORDER), key=lambda k: (ORDER[k[0][0]], k[0][1], k[0][2], k[0][3], k[1] != "f32"))
    for key, kv in keys:
        x = ratios(r.ours[key, kv], r.theirs.get((key, "" if key[0] == "load" else plain), {}))
        if not x:
            continue
        row = [label(key) + ("" if kv == "f32" else f", {kv} cache"), number(x[0]), number(x[1]), f"{x[2]:.2f} ({x[3]:.2f} to {x[4]:.2f})"]
        s = r.top.get(key, plain)
        y = ratios(r.ours[key, kv], r.theirs.get((key, s), {})) if s != plain else None
        row += [s, number(y[1]), f"{y[2]:.2f} ({y[3]:.2f} to {y[4]:.2f})"] if y else ["", "", ""]
        print("| " + " | ".join(row) + " |", file=out)
    for (key, kv), mine in sorted((k, v) for k, v in r.ours.items() if k[0][0] == "peak" and k[0][1] in ("prefill", "decode")):
        x = ratios(mine, r.theirs.get((key, plain), {}))
        if x and (key[1] == "prefill" or key[3] == 0):
            print(f"| peak MiB, {label(key[1:] + (1,))} | {x[0]:,.0f} | {x[1]:,.0f} | {x[2]:.2f} | | | |", file=out)
    bounds = []
    for (key, kv), mine in r.ours.items():
        info = r.info.get(key)
        if kv != "f32" or not info:
            continue
        if key[0] == "decode" and info["bytes"]:
            bounds.append((key, "GB/s of weights and state", ratios({i: v * info["bytes"] / 1e9 for i, v in mine.items()}, r.read)))
        elif key[0] == "batch" and key[3] > 1 and info["flops"]:
            bounds.append((key, "GFLOP/s", ratios({i: v / key[3] * info["flops"] / 1e9 for i, v in mine.items()}, r.fma)))
        elif key[0] == "prefill" and info["flops"]:
            bounds.append((key, "GFLOP/s", ratios({i: v / key[1] * info["flops"] / 1e9 for i, v in mine.items()}, r.fma)))
    if bounds:
        print("\n| samebit beside the machine's limits | | limit | part |\n|---|---|---|---|", file=out)
        for key, unit, x in sorted((b for b in bounds if b[2]), key=lambda b: (ORDER[b[0][0]], b[0])):
            print(f"| {label(key)}, {unit} | {x[0]:.1f} | {x[1]:.1f} | {x[2]:.2f} ({x[3]:.2f} to {x[4]:.2f}) |", file=out)
    singles = [k for k in r.ours if k[0][0] == "batch" and k[0][3] == 1]
    for key, kv in singles:
        print("\n| sequences beside one of its own | samebit | " + engine + " |\n|---|---|---|", file=out)
        for k in sorted(k for k in r.ours if k[0][0] == "batch" and k[0][3] > 1):
            one = key[:3] + (1,)
            x = ratios(r.ours[k], r.ours[one, kv])
            s, t = r.top.get(k[0], plain), r.top.get(one, plain)
            y = ratios(r.theirs.get((k[0], s), {}), r.theirs.get((one, t), {}))
            if x and y:
                print(f"| {k[0][3]} | {x[2]:.2f} | {y[2]:.2f} |", file=out)
    print(file=out, flush=True)


def options(doc):
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "samebit-bench"))
    p.add_argument("--samebit", default="./samebit", help="binary: go build ./cmd/samebit")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json", help="result file, kept after every run and gone on with")
    return p


def main():
    p = options(__doc__)
    p.add_argument("--peer", choices=["llama", "torch"], default="llama")
    p.add_argument("--tests", default="decode,prefill,batch")
    p.add_argument("--prompts", default="128,512")
    p.add_argument("--tokens", type=int, default=8)
    p.add_argument("--depths", default="0,2048,8192")
    p.add_argument("--seqs", default="1,4,16")
    p.add_argument("--kv", default="f32", help="types of samebit's cache while it decodes: f32, or f32,bf16")
    p.add_argument("--tables", action="store_true", help="print the tables of result files and measure nothing")
    p.add_argument("models", nargs="+", metavar="MODEL")
    a = p.parse_args()
    if a.tables:
        for path in a.models:
            if not os.path.exists(path):
                sys.exit(f"no result file {path}")
            tables(File(path).data)
        return
    if bad := set(a.tests.split(",")) - {"decode", "prefill", "batch", "load"}:
        sys.exit(f"--tests {','.join(sorted(bad))}: have decode, prefill, batch and load")
    f = File(a.json, machine(a))
    for name in a.models:
        measure(a, f, name)
    tables(f.data)


if __name__ == "__main__":
    main()
