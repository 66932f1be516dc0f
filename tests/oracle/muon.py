#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""20 steps of torch.optim.Muon (matrices of a block) and torch.optim.AdamW (the other weights).

    python tests/oracle/muon.py FOLDER
    python tests/oracle/muon.py check PROGRAM

FOLDER: writes the weights of a model of one block after the last step, in the order of
src/model/llama.params.  Weights and gradients at the start are a function of tensor, element and
step, which tests/optim/test_muon.c computes too.  torch rounds the matrices of Newton-Schulz to
bfloat16: FOLDER/muon-NAME-bfloat16.bin.  FOLDER/muon-NAME.bin is without that rounding, as llamero
with training.mixed_precision_param = "float32".  The script prints the difference.

check: a run of PROGRAM with Muon continues in torch, without the rounding, from the tensors of its
checkpoint: NAME.exp_avg is momentum_buffer of a matrix, which has no exp_avg_sq.  The losses must be
those of PROGRAM.  torch.distributed.checkpoint must load what `convert --to dcp --model-only` writes;
without --model-only, and where PROGRAM is to resume from the state that torch saves, it must say that
this is not AdamW's state.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.optim import _muon

from dcp_state import (ADAMW, AFTER, BEFORE, FLAT, ROWS, TINY, TOKENS, Llama, check_losses, factor, hf_name,
                       hf_rows, losses_of, run, settings)

D, Q, P, F, V, STEPS = 16, 16, 8, 40, 11, 20
SHAPES = [(V, D), (D,), (Q, D), (P, D), (P, D), (D, Q), (D,), (F, D), (F, D), (D, F), (D,), (V, D)]
VECTORS_AND_ENDS = {i for i, s in enumerate(SHAPES) if len(s) == 1 or i in (0, len(SHAPES) - 1)}
CASES = {"original": dict(nesterov=True, adjust_lr_fn="original", ns_steps=5, lr=0.02),
         "match_rms": dict(nesterov=False, adjust_lr_fn="match_rms_adamw", ns_steps=3, lr=0.01),
         "spectral": dict(nesterov=True, adjust_lr_fn="spectral_unclamped", ns_steps=5, lr=0.02)}


def value(tensor, step):
    n = numpy.prod(SHAPES[tensor], dtype=numpy.int64)
    i = numpy.arange(n, dtype=numpy.uint64) + numpy.uint64(tensor * 100003 + step * 1000003)
    bits = i * numpy.uint64(2654435761) % numpy.uint64(2 ** 32)
    bits = (bits ^ (bits >> numpy.uint64(15))) * numpy.uint64(2246822519) % numpy.uint64(2 ** 32)
    unit = (bits >> numpy.uint64(8)).astype(numpy.float32) / numpy.float32(2 ** 23)
    return torch.from_numpy(unit - numpy.float32(1)).reshape(SHAPES[tensor])


def in_float32(grad, ns_coefficients, ns_steps, eps):
    """_zeropower_via_newtonschulz of torch/optim/_muon.py without its cast to bfloat16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if grad.size(0) > grad.size(1) else x


def train(lr, **settings):
    weights = [torch.nn.Parameter(value(i, 0) * 0.1) for i in range(len(SHAPES))]
    matrices = [w for i, w in enumerate(weights) if i not in VECTORS_AND_ENDS]
    others = [w for i, w in enumerate(weights) if i in VECTORS_AND_ENDS]
    optimizers = [torch.optim.Muon(matrices, lr=lr, weight_decay=0.1, momentum=0.95, **settings),
                  torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)]
    for step in range(1, STEPS + 1):
        for i, w in enumerate(weights):
            w.grad = value(i, step) * 0.5
        for o in optimizers:
            o.step()
    return numpy.concatenate([w.detach().numpy().ravel() for w in weights])


def main(folder):
    for name, settings in CASES.items():
        rounded = train(**settings)
        original, _muon._zeropower_via_newtonschulz = _muon._zeropower_via_newtonschulz, in_float32
        exact = train(**settings)
        _muon._zeropower_via_newtonschulz = original
        exact.astype("<f4").tofile(os.path.join(folder, f"muon-{name}.bin"))
        rounded.astype("<f4").tofile(os.path.join(folder, f"muon-{name}-bfloat16.bin"))
        off = numpy.linalg.norm(rounded - exact) / numpy.linalg.norm(exact)
        print(f"{name}: torch {torch.__version__}, in bfloat16 the weights differ by {off:.1e}")


def optimizers_of(model):
    matrices = {n: w for n, w in model.named_parameters() if n.startswith("layers.") and w.dim() == 2}
    others = [w for n, w in model.named_parameters() if n not in matrices]
    return [torch.optim.Muon(matrices.values(), lr=ADAMW["lr"], weight_decay=ADAMW["weight_decay"]),
            torch.optim.AdamW(others, **ADAMW)]


def resume(model, optimizers, saved):
    """Fills a model and its optimizers with the tensors of a checkpoint; all must be used."""
    for name, w in model.named_parameters():
        take = lambda suffix: our_rows(name, saved.pop(hf_name(name) + suffix))
        w.data.copy_(take(""))
        state = {"momentum_buffer": take(".exp_avg")}
        if not any(w is x for x in optimizers[0].param_groups[0]["params"]):
            state = {"step": torch.tensor(float(BEFORE)), "exp_avg": state["momentum_buffer"],
                     "exp_avg_sq": take(".exp_avg_sq")}
        optimizers["step" in state].state[w] = state
    assert not saved, saved.keys()


def our_rows(name, w):
    """The inverse of hf_rows."""
    out = torch.empty_like(w)
    out[hf_rows(TINY, name, torch.arange(w.shape[0])[:, None])[:, 0]] = w
    return out


def steps(model, optimizers, text, first, count):
    losses = []
    for step in range(BEFORE, BEFORE + count):
        rows = torch.tensor([list(text[r * TOKENS:(r + 1) * TOKENS + 1]) for r in range(first, first + ROWS)])
        first += ROWS
        loss = torch.nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for o in optimizers:
            o.param_groups[0]["lr"] = ADAMW["lr"] * factor(step)
            o.step()
        losses.append(loss.item())
    return losses


def refused(program, text, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode and text in done.stderr, (arguments, done.stderr)
    print(done.stderr.splitlines()[-1])


def check(program):
    with tempfile.TemporaryDirectory() as name:
        root, letters = pathlib.Path(name), random.Random(3)
        text = "".join(letters.choice("abcdefgh ") for _ in range(8000))
        (root / "corpus.jsonl").write_text(json.dumps(dict(text=text)) + "\n")
        toml = settings(root / "run.toml", root / "corpus.jsonl")
        dump, muon = f"job.dump_folder={root}/ours", "optimizer.name=Muon"
        run(program, "train", toml, muon, dump, f"training.steps={BEFORE}")
        saved = {}
        for file in (root / f"ours/checkpoint/step-{BEFORE}").glob("*.safetensors"):
            saved |= safetensors.torch.load_file(file)
        weights = {k: v for k, v in saved.items() if not k.endswith((".exp_avg", ".exp_avg_sq"))}
        refused(program, "can only have AdamW's state", "convert", root / "ours", root / "dcp", "--to", "dcp")
        run(program, "convert", root / "ours", root / "dcp", "--to", "dcp", "--model-only")
        model = Llama(TINY)
        state = model.state_dict()
        dcp.load(state, checkpoint_id=root / "dcp")
        assert all(torch.equal(hf_rows(TINY, n, w), weights[hf_name(n)]) for n, w in state.items())
        _muon._zeropower_via_newtonschulz = in_float32
        optimizers = optimizers_of(model)
        resume(model, optimizers, saved)
        losses = steps(model, optimizers, text.encode(), BEFORE * ROWS, AFTER)
        run(program, "train", toml, muon, dump, f"training.steps={BEFORE + AFTER}")
        own = losses_of(root / "ours")
        check_losses("torch resumes from llamero", losses,
                     [own[s] for s in range(BEFORE + 1, BEFORE + AFTER + 1)])
        theirs = root / "theirs/checkpoint/step-10"
        state = get_optimizer_state_dict(model, optimizers, options=FLAT)
        assert "state.layers.0.attention.wq.weight.momentum_buffer" in state
        counters = {"step": torch.tensor(10, dtype=torch.int32), "ntokens_seen": torch.tensor(640)}
        dcp.save(model.state_dict() | {"optimizer": state, "train_state": counters}, checkpoint_id=theirs)
        (root / "theirs/config.json").write_bytes((root / "dcp/config.json").read_bytes())
        start = [f"checkpoint.initial_load_path={theirs}", f"job.dump_folder={root}/resumed"]
        refused(program, "not the whole state of AdamW", "train", toml, *start, muon,
                "checkpoint.initial_load_model_only=false")
        refused(program, ".exp_avg is missing (in Hugging Face's names), so", "convert", theirs, root / "native", "--to", "native")
        run(program, "train", toml, *start, muon, "training.steps=1")
        want = steps(model, [], text.encode(), 0, 1)
        check_losses("llamero starts from torch's weights", [losses_of(root / "resumed")[1]], want)
    print("torch", torch.__version__)


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1] == "check" else main(sys.argv[1])
