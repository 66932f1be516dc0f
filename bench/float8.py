#!/usr/bin/env python3
"""What FP8 costs in loss: trains a small Llama (bench/float8.toml) in bfloat16 and with each FP8 recipe.

    python3 bench/float8.py TEXT [--binary build/llamero] [--steps 2000] [--folder outputs/float8]
        [--recipes off,tensorwise,delayed] [--threads 2]

TEXT is about a megabyte of English text, tokenized as bytes.  All runs have the same rows and the same
initial weights.  Prints the mean loss of each tenth of a run, its ratio to the first recipe's, and the
final validation loss; writes the metrics of each run, and float8.json, to --folder.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import statistics
import subprocess

CONFIG = pathlib.Path(__file__).with_suffix(".toml")
RECIPES = {
    "off": [],
    "tensorwise": ['model.converters=["float8"]'],
    "delayed": ['model.converters=["float8"]', "float8.recipe_name=delayed"],
}
TENTHS = 10


def train(recipe, options):
    folder = options.folder / recipe
    command = [options.binary, "train", CONFIG, f"training.dataset_path={options.text}",
               f"training.steps={options.steps}", f"validation.freq={options.steps}",
               f"device.threads={options.threads}", f"job.dump_folder={folder}"] + RECIPES[recipe]
    with open(options.folder / f"{recipe}.log", "w") as log:
        subprocess.run(command, stdout=log, stderr=log, check=True)
    rows = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    steps = [row for row in rows if "loss" in row]
    part = len(steps) // TENTHS
    means = [statistics.fmean(row["loss"] for row in steps[i * part:(i + 1) * part])
             for i in range(TENTHS)]
    return {"means": means, "validation": rows[-1]["validation_loss"],
            "step_seconds": statistics.median(row["step_seconds"] for row in steps)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--binary", default="build/llamero")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("outputs/float8"))
    parser.add_argument("--recipes", default=",".join(RECIPES))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    runs = {}
    for recipe in options.recipes.split(","):
        runs[recipe] = run = train(recipe, options)
        first = next(iter(runs.values()))
        run["ratios"] = [mean / other for mean, other in zip(run["means"], first["means"])]
        print(f"{recipe:10}", *(f"{mean:7.4f}" for mean in run["means"]),
              f" validation {run['validation']:.4f}  step {run['step_seconds'] * 1000:.0f} ms")
        print(f"{'':10}", *(f"{ratio:7.4f}" for ratio in run["ratios"]),
              f" {'':10} {run['validation'] / first['validation']:.4f}", flush=True)
    (options.folder / "float8.json").write_text(json.dumps(runs, indent=1) + "\n")


if __name__ == "__main__":
    main()
