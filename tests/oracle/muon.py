#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""20 steps of torch.optim.Muon (matrices of a block) and torch.optim.AdamW (the other weights).

usage: muon.py FOLDER
Writes the weights of a model of one block after the last step, in the order of
src/model/llama.params.  Weights and gradients at the start are a function of tensor, element and
step, which tests/optim/test_muon.c computes too.  torch rounds the matrices of Newton-Schulz to
bfloat16: FOLDER/muon-NAME-bfloat16.bin.  FOLDER/muon-NAME.bin is without that rounding, as llamero
with training.mixed_precision_param = "float32".  The script prints the difference.
"""
import os
import sys

import numpy
import torch
from torch.optim import _muon

D, Q, P, F, V, STEPS = 16, 16, 8, 40, 11, 20
SHAPES = [(V, D), (D,), (Q, D), (P, D), (P, D), (D, Q), (D,), (F, D), (F, D), (D, F), (D,), (V, D)]
VECTORS_AND_ENDS = {i for i, s in enumerate(SHAPES) if len(s) == 1 or i in (0, len(SHAPES) - 1)}
CASES = {"original": dict(nesterov=True, adjust_lr_fn="original", ns_steps=5, lr=0.02),
         "match_rms": dict(nesterov=False, adjust_lr_fn="match_rms_adamw", ns_steps=3, lr=0.01)}


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


if __name__ == "__main__":
    main(*sys.argv[1:])
