#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the expected values of tests/data/test_cyclic.c with Megatron-LM's sampler.

    python tests/oracle/cyclic_order.py MEGATRON

MEGATRON is a checkout of Megatron-LM (d98e8a64dd); pip install torch.  Prints, for sharded and
unsharded data, the first eight samples of the run and a hash of the first 2500."""
import sys
import types

import torch

SAMPLES, ROWS, RANKS, COUNT = 1003, 3, 4, 2500


def sampler_class(folder):
    """The sampler's class, without the imports of its module."""
    text = open(f"{folder}/megatron/training/datasets/data_samplers.py").read()
    begin = text.index("class MegatronPretrainingRandomSampler")
    end = text.find("\nclass ", begin + 1)
    names = {"torch": torch, "RandomSeedDataset": types.SimpleNamespace}
    exec(text[begin : end if end > 0 else len(text)], names)
    return names["MegatronPretrainingRandomSampler"]


def rows(sampler, sharded):
    """Sample numbers in the order of a run: microbatch by microbatch, rank by rank."""
    out = []
    while len(out) < COUNT:
        ranks = [
            iter(sampler(None, SAMPLES, len(out), ROWS, rank, RANKS, sharded))
            for rank in range(RANKS)
        ]
        for batches in zip(*ranks):
            for batch in batches:
                out += batch
    return out[:COUNT]


for sharded in (True, False):
    order, value = rows(sampler_class(sys.argv[1]), sharded), 0
    for sample in order:
        value = (value * 31 + sample) % 2**64
    print(sharded, order[:8], value)
