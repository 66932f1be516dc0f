#!/usr/bin/env python3
"""Tokens per second of Llamero and of PyTorch on the same model, alternated, and their ratio.

    python3 bench/against_torch.py [--rounds 5] [--dtype bfloat16|float32] [--cpu avx2|avx512]
                                   [--neighbor SHARE] [--ranks N] [--layers N] [--python PYTHON]

PYTHON is an interpreter that has torch from PyPI.  Each round runs Llamero and then each PyTorch
setting, so that a noisy neighbor affects both; the script compares medians over the rounds.

--cpu limits both to an instruction set.  Shares of the peak are MFU as in metrics.jsonl:
model FLOPs, without leaving out what the causal mask hides, relative to a burst of multiply-adds in
registers, which Llamero measures as it starts.

--neighbor runs everything twice in each round: on free cores, and next to a process that takes
SHARE of the time of one core.  "lost" is the fraction by which a program is slower, "taken" the
fraction of the time of all cores that the process got meanwhile: 1 x is ideal.

--ranks divides the rows of a step and the threads among several ranks of Llamero.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPE = dict(batch=4, seq_len=1024, dim=768, layers=12, heads=12, kv_heads=4, hidden=2048,
             vocab=32000)
SETTINGS = {"bfloat16": [("autocast", False), ("bfloat16", False), ("autocast", True),
                         ("bfloat16", True)],
            "float32": [("float32", False), ("float32", True)]}
# What limits PyTorch's own kernels, oneDNN and MKL.
TORCH_LIMITS = {
    "auto": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
             "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ATEN_CPU_CAPABILITY": "avx512", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
               "MKL_ENABLE_INSTRUCTIONS": "AVX512"}}
PERIOD_S = 0.02
BURN = """
import sys, time
share, period = float(sys.argv[1]), float(sys.argv[2])
while True:
    begin = time.perf_counter()
    while time.perf_counter() < begin + share * period:
        pass
    if share < 1:
        time.sleep((1 - share) * period)
"""


def run_next_to(share, run):
    """Calls `run` next to a process that takes `share` of the time of one core.  Returns its
    result, and the fraction of the time of all cores that the process got."""
    if not share:
        return run(), 0
    begin = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", BURN, str(share), str(PERIOD_S)])
    try:
        result = run()
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    finally:
        process.kill()
        process.wait()
    return result, seconds / (time.monotonic() - begin) / os.cpu_count()


def processor():
    """Its name, and the instruction sets that decide speed."""
    info = pathlib.Path("/proc/cpuinfo").read_text()
    lines = info.split("\n\n")[0].splitlines()
    fields = dict(line.split("\t", 1) for line in lines if "\t" in line)
    flags = next((v for k, v in fields.items() if k == "flags"), "").split()
    names = [n for n in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if n in flags]
    name = next((v for k, v in fields.items() if k == "model name"), "?")
    return name.lstrip(": ") + " (" + ", ".join(names) + ")"


def run_llamero(a, folder):
    """Tokens per second of all ranks, and the share of the peak."""
    corpus = pathlib.Path(folder, "corpus.txt")
    corpus.write_text("the llama walks over a mountain and carries salt to the town.\n" * 20000)
    dump = tempfile.mkdtemp(dir=folder)
    settings = {
        "model.dim": SHAPE["dim"], "model.n_layers": SHAPE["layers"],
        "model.n_heads": SHAPE["heads"], "model.n_kv_heads": SHAPE["kv_heads"],
        "model.ffn_hidden": SHAPE["hidden"], "model.vocab_size": SHAPE["vocab"],
        "model.tie_embeddings": "false", "training.local_batch_size": SHAPE["batch"] // a.ranks,
        "training.seq_len": SHAPE["seq_len"], "training.steps": a.steps,
        "training.mixed_precision_param": a.dtype, "activation_checkpoint.mode": "none",
        "data.tokenizer": "bytes", "data.streams": 8, "training.dataset_path": corpus,
        "metrics.log_freq": 1, "job.dump_folder": dump, "device.cpu": a.cpu,
        "device.threads": max(1, a.threads // a.ranks)}
    config = pathlib.Path(folder, "run.toml")
    config.write_text("[job]\ndescription = \"bench\"\n")
    ranks = ["--ranks", str(a.ranks)] if a.ranks > 1 else []
    subprocess.run([a.binary, "train", config] + ranks + [f"{k}={v}" for k, v in settings.items()],
                   check=True, capture_output=True)
    lines = pathlib.Path(dump, "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines[1:]]
    return (statistics.median(step["tokens_per_second"] for step in steps),
            statistics.median(step["mfu"] for step in steps))


def run_torch(python, mode, compiled, cpu, threads, steps):
    command = [python, ROOT / "bench/torch_llama.py", "--mode", mode, "--threads", str(threads),
               "--steps", str(steps)]
    for name, value in SHAPE.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    if compiled:
        command.append("--compile")
    # Keep freed memory in the process, so that steps do not fault it in again, which is faster.
    keep = {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0",
            "OMP_NUM_THREADS": str(threads)}
    out = subprocess.run(command, check=True, capture_output=True, text=True,
                         env=os.environ | keep | TORCH_LIMITS[cpu])
    return json.loads(out.stdout.splitlines()[-1])["tokens_per_second"]


def measure(a, folder, share):
    """One round: tokens per second of each program, what a neighbor took from it, and Llamero's
    share of the peak."""
    (rate, peak_share), taken = run_next_to(share, lambda: run_llamero(a, folder))
    rates, losses = {"llamero": rate}, {"llamero": taken}
    for mode, compiled in SETTINGS[a.dtype]:
        if not (compiled and a.no_compile) and not a.llamero_only:
            name = "torch " + mode + (" compiled" if compiled else "")
            rates[name], losses[name] = run_next_to(
                share, lambda: run_torch(a.python, mode, compiled, a.cpu, a.threads, a.steps))
    return rates, losses, peak_share


def print_table(rounds, share_per_rate):
    """Minimum, median and maximum of each program; returns the medians."""
    medians = {}
    for name in rounds[0]:
        rates = [r[name] for r in rounds]
        medians[name] = statistics.median(rates)
        print(f"{name:26} {min(rates):8.1f} {medians[name]:8.1f} {max(rates):8.1f} tokens/s "
              f"{100 * share_per_rate * medians[name]:5.1f} % of the peak")
    best = max((v for k, v in medians.items() if k != "llamero"), default=0)
    if best:
        print(f"ratio to the fastest PyTorch setting: {medians['llamero'] / best:.3f}")
    return medians


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--layers", type=int, default=SHAPE["layers"])
    p.add_argument("--dtype", choices=SETTINGS, default="bfloat16")
    p.add_argument("--cpu", choices=TORCH_LIMITS, default="auto")
    p.add_argument("--neighbor", type=float, default=0, metavar="SHARE")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--binary", default=ROOT / "build/llamero")
    p.add_argument("--no-compile", action="store_true")
    p.add_argument("--llamero-only", action="store_true")
    a = p.parse_args()
    if a.ranks < 1 or SHAPE["batch"] % a.ranks:
        p.error(f"--ranks {a.ranks}: must divide the {SHAPE['batch']} rows of a step")
    SHAPE["layers"] = a.layers
    shares = [0, a.neighbor] if a.neighbor else [0]
    rounds = {share: [] for share in shares}
    peak_shares, taken = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(a.rounds):
            for share in shares:
                rates, losses, peak_share = measure(a, folder, share)
                rounds[share].append(rates)
                if share:
                    taken.append(losses)
                else:
                    peak_shares.append(peak_share / rates["llamero"])
    print(f"{processor()}; {a.threads} threads, {a.ranks} ranks, {SHAPE['layers']} layers, "
          f"{a.dtype}, device.cpu = {a.cpu}")
    medians = {}
    for share in shares:
        if share:
            print(f"next to a process that takes {100 * share:.0f} % of a core:")
        medians[share] = print_table(rounds[share], statistics.median(peak_shares))
    for name in medians[0] if a.neighbor else []:
        lost = 1 - medians[a.neighbor][name] / medians[0][name]
        share = statistics.median(t[name] for t in taken)
        print(f"{name:26} lost {100 * lost:4.1f} %, taken {100 * share:4.1f} %: "
              f"{lost / share:.2f} x")
    print(json.dumps({"processor": processor(), "dtype": a.dtype, "cpu": a.cpu,
                      "threads": a.threads, "ranks": a.ranks, "shape": SHAPE,
                      "neighbor": a.neighbor, "tokens_per_second": rounds}))


if __name__ == "__main__":
    main()
