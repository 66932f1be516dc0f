#!/usr/bin/env python3
"""Tokens per second of Llamero and of PyTorch on the same model, alternated, and their ratio.

    python3 bench/against_torch.py [--rounds 5] [--dtype bfloat16|float32] [--python PYTHON]

PYTHON is an interpreter that has torch from PyPI.  Each round runs Llamero and then each PyTorch
setting, so that a noisy neighbour affects both; the script compares medians over the rounds.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPE = dict(batch=4, seq_len=1024, dim=768, layers=12, heads=12, kv_heads=4, hidden=2048,
             vocab=32000)
SETTINGS = {"bfloat16": [("autocast", False), ("bfloat16", False), ("autocast", True),
                         ("bfloat16", True)],
            "float32": [("float32", False), ("float32", True)]}


def run_llamero(binary, folder, dtype, threads, steps):
    corpus = pathlib.Path(folder, "corpus.txt")
    corpus.write_text("the llama walks over a mountain and carries salt to the town.\n" * 20000)
    dump = tempfile.mkdtemp(dir=folder)
    settings = {
        "model.dim": SHAPE["dim"], "model.n_layers": SHAPE["layers"],
        "model.n_heads": SHAPE["heads"], "model.n_kv_heads": SHAPE["kv_heads"],
        "model.ffn_hidden": SHAPE["hidden"], "model.vocab_size": SHAPE["vocab"],
        "model.tie_embeddings": "false", "training.local_batch_size": SHAPE["batch"],
        "training.seq_len": SHAPE["seq_len"], "training.steps": steps,
        "training.mixed_precision_param": dtype, "activation_checkpoint.mode": "none",
        "data.tokenizer": "bytes", "data.streams": 8, "training.dataset_path": corpus,
        "metrics.log_freq": 1, "job.dump_folder": dump, "device.threads": threads}
    config = pathlib.Path(folder, "run.toml")
    config.write_text("[job]\ndescription = \"bench\"\n")
    subprocess.run([binary, "train", config] + [f"{k}={v}" for k, v in settings.items()],
                   check=True, capture_output=True)
    lines = pathlib.Path(dump, "metrics.jsonl").read_text().splitlines()
    return statistics.median(json.loads(line)["tokens_per_second"] for line in lines[1:])


def run_torch(python, mode, compiled, threads, steps):
    command = [python, ROOT / "bench/torch_llama.py", "--mode", mode, "--threads", str(threads),
               "--steps", str(steps)]
    for name, value in SHAPE.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    if compiled:
        command.append("--compile")
    # Keep freed memory in the process, so that steps do not fault it in again; PyTorch is faster so.
    keep = {"MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_MMAP_MAX_": "0", "OMP_NUM_THREADS": str(threads)}
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | keep)
    return json.loads(out.stdout.splitlines()[-1])["tokens_per_second"]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtype", choices=SETTINGS, default="bfloat16")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--binary", default=ROOT / "build/llamero")
    p.add_argument("--no-compile", action="store_true")
    a = p.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(a.rounds):
            rate = run_llamero(a.binary, folder, a.dtype, a.threads, a.steps)
            results.setdefault("llamero", []).append(rate)
            for mode, compiled in SETTINGS[a.dtype]:
                if compiled and a.no_compile:
                    continue
                name = "torch " + mode + (" compiled" if compiled else "")
                rate = run_torch(a.python, mode, compiled, a.threads, a.steps)
                results.setdefault(name, []).append(rate)
    best = max(statistics.median(v) for k, v in results.items() if k != "llamero")
    our_rate = statistics.median(results["llamero"])
    for name, rates in results.items():
        print(f"{name:26} {min(rates):8.1f} {statistics.median(rates):8.1f} {max(rates):8.1f} tokens/s")
    print(f"ratio to the fastest PyTorch setting: {our_rate / best:.3f}")
    print(json.dumps({"dtype": a.dtype, "threads": a.threads, "shape": SHAPE, "ratio": our_rate / best,
                      "tokens_per_second": results}))


if __name__ == "__main__":
    main()
