#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the expected values of tests/data/test_cyclic.c with the samplers of Megatron-LM and NeMo.

    python tests/oracle/cyclic_order.py MEGATRON NEMO

MEGATRON is a checkout of Megatron-LM (d98e8a64dd), NEMO the unpacked wheel nemo_toolkit 2.1.0; pip
install torch.  Prints, for Megatron's sharded and unsharded data and for NeMo, the first eight
samples of the run and a hash of the first 2500."""
import abc
import sys
import types
import typing
import warnings

import torch

SAMPLES, ROWS, RANKS, COUNT = 1003, 3, 4, 2500
BATCH = 3 * ROWS * RANKS  # of NeMo


def class_of(path, *names):
    """The last of a module's classes, without the imports of the module."""
    text, known = open(path).read(), {
        "torch": torch, "abc": abc, "warnings": warnings, "Tuple": typing.Tuple,
        "RandomSeedDataset": types.SimpleNamespace}
    for name in names:
        begin = text.index(f"class {name}")
        ends = [at for at in (text.find(word, begin) for word in ("\nclass ", "\n@")) if at > 0]
        exec(text[begin : min(ends, default=len(text))], known)
    return known[names[-1]]


def megatron_rows(sampler, sharded):
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


def nemo_rows(sampler):
    """The same; each rank draws the rows of a step at once, microbatch after microbatch."""
    out = []
    ranks = [sampler(SAMPLES, 0, ROWS, BATCH, rank, RANKS, True) for rank in range(RANKS)]
    while len(out) < COUNT:
        for batches in zip(*(list(rank) for rank in ranks)):  # an epoch
            for first in range(0, BATCH // RANKS, ROWS):
                for batch in batches:
                    out += batch[first : first + ROWS]
    return out[:COUNT]


def show(name, order):
    value = 0
    for sample in order:
        value = (value * 31 + sample) % 2**64
    print(name, order[:8], value)


megatron = class_of(f"{sys.argv[1]}/megatron/training/datasets/data_samplers.py",
                    "MegatronPretrainingRandomSampler")
nemo = class_of(f"{sys.argv[2]}/nemo/collections/nlp/data/language_modeling/megatron/"
                "megatron_batch_samplers.py",
                "BaseMegatronBatchSampler", "MegatronPretrainingRandomBatchSampler")
show("sharded", megatron_rows(megatron, True))
show("unsharded", megatron_rows(megatron, False))
show("nemo", nemo_rows(nemo))
