#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares optimizer.ema_decay with torch.optim.swa_utils.get_ema_multi_avg_fn.

    python tests/oracle/ema.py PROGRAM

Trains a small model, with plain and with split master weights, and saves every step.  An AveragedModel that begins
with the initial weights and follows the saved ones must have the values of ema-*.safetensors within 3e-6, and
`PROGRAM convert --ema` must write them.

    pip install torch safetensors
"""
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

DECAY, STEPS = 0.9, 8
CASES = {"float32": [], "split": ["optimizer.master_weights=split", "training.mixed_precision_param=bfloat16"]}


def read(folder, stem):
    return {n: t for f in sorted(folder.glob(stem + "-*.safetensors")) for n, t in load_file(f).items()}


def as_module(weights):
    return torch.nn.ParameterList(torch.nn.Parameter(weights[n].clone()) for n in sorted(weights))


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    for name, settings in CASES.items():
        with tempfile.TemporaryDirectory() as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "text.txt").write_text("Averages of weights are smoother than weights. " * 400)
            (scratch / "empty.toml").write_text("")
            keys = dict(n_layers=2, dim=32, n_heads=4, n_kv_heads=2, ffn_hidden=64)
            subprocess.run(
                [program, "train", scratch / "empty.toml", f"job.dump_folder={scratch}/run", "data.tokenizer=bytes",
                 f"training.dataset_path={scratch}/text.txt", f"training.steps={STEPS}", "training.seq_len=32",
                 "training.local_batch_size=2", "validation.enable=false", "lr_scheduler.warmup_steps=0",
                 f"optimizer.ema_decay={DECAY}", "checkpoint.enable=true", "checkpoint.interval=1",
                 "checkpoint.enable_first_step_checkpoint=true", "checkpoint.keep_latest_k=0", "--quiet",
                 *(f"model.{k}={v}" for k, v in keys.items()), *settings], check=True)
            steps = sorted((int(p.name[5:]), p) for p in (scratch / "run/checkpoint").glob("step-*"))
            start, first = steps[0]
            model = as_module(read(first, "ema"))
            average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
            average.update_parameters(model)  # the first call copies
            worst = 0.0
            for step, folder in steps[1:]:
                average.update_parameters(as_module(read(folder, "model")))
                ema = read(folder, "ema")
                for name_, expected in zip(sorted(ema), average.module):
                    worst = max(worst, (ema[name_] - expected).abs().max().item())
            apart = max((ema[n] - w).abs().max().item() for n, w in read(folder, "model").items())
            subprocess.run([program, "convert", scratch / "run", scratch / "hf", "--ema", "--to", "hf", "--dtype", "float32"],
                           check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            written = load_file(scratch / "hf/model.safetensors")
            same = all(torch.equal(written[n], ema[n]) for n in ema) and len(written) == len(ema)
            print(f"{name}: {len(ema)} tensors, steps {start} to {step}: off by {worst:.1e}, weights by {apart:.1e}; "
                  f"convert --ema {'equal' if same else 'DIFFERS'}")
            assert worst < 3e-6 < apart and same


main()
