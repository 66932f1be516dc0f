#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Computes the expected values of tests/data/test_order_megatron.c with Megatron-LM.

    python tests/oracle/megatron_order.py FOLDER

(megatron-core 0.16.1, numpy 2.4.6, torch 2.15.0) writes three data sets to FOLDER, builds GPTDatasets
over them as Megatron-LM's training script does, and prints for each case the number of rows and the
CRC-32 of all their tokens, seq_len + 1 per row, as little-endian int32.  For every 997th row it also
compares tokens, labels and loss mask with them."""
import os
import sys
import warnings
import zlib

import numpy
import torch

warnings.simplefilter("ignore")
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig, MockGPTDataset
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

DOCUMENTS = [42000, 30000, 23000]


class Tokenizer:
    """The attributes of a tokenizer that data sets use."""

    vocab_size = 1000
    eod = 999
    pad = -1
    unique_identifiers = {"class": "none"}


def lengths(source):
    d = numpy.arange(DOCUMENTS[source], dtype=numpy.int64)
    return (d * d * 7 + d * 13 + source * 5) % 37


def write(folder, source):
    prefix = os.path.join(folder, "abc"[source])
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.int32)
    at = source << 24
    for n in lengths(source):
        builder.add_document(torch.arange(at, at + int(n), dtype=torch.int64), [int(n)])
        at += int(n)
    builder.finalize(prefix + ".idx")
    return prefix


def build(blend, split, samples, seq_len, seed=1234):
    config = GPTDatasetConfig(
        random_seed=seed,
        sequence_length=seq_len,
        blend=blend,
        split=split if blend else None,
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    kind = GPTDataset if blend else MockGPTDataset
    sizes = [samples, samples and 100, samples and 100]
    return BlendedMegatronDatasetBuilder(kind, sizes, lambda: True, config).build()


def text(data, row):
    if hasattr(data, "datasets"):
        inner = data.datasets[data.dataset_index[row]]
        return inner._query_document_sample_shuffle_indices(data.dataset_sample_index[row])[0]
    return data._query_document_sample_shuffle_indices(row)[0]


def report(name, data, seq_len, rows=None):
    crc = 0
    rows = min(rows or len(data), len(data))
    for row in range(rows):
        ids = text(data, row)
        assert len(ids) == seq_len + 1
        crc = zlib.crc32(ids.astype("<i4").tobytes(), crc)
        if row % 997 == 0:
            item = data[row]
            assert (item["tokens"].numpy() == ids[:-1]).all()
            assert (item["labels"].numpy() == ids[1:]).all()
            assert item["loss_mask"].sum() == seq_len
    print(f"{name}: {len(data)} rows, CRC-32 of {rows}: 0x{crc:08x}", flush=True)


def main(folder):
    a, b, c = (write(folder, i) for i in range(3))
    weighted = ([a, b, c], [0.5, 0.3, 0.2])
    million = build(weighted, "949,50,1", 1000000, 4)
    epochs = [int(d.document_index.shape[0] / d.indices.shape[0]) for d in million[0].datasets]
    print("epochs of the three sources:", epochs)
    report("weights", million[0], 4)
    report("lengths", build(([a, b, c], None), "969, 30, 1", 50000, 16)[0], 16)
    whole = build(([a, b, c], None), "80,20", None, 16)
    report("held out", whole[1], 16)
    report("one", build(([b], None), "1", 100000, 10, 7)[0], 10)
    report("one with a weight", build(([b], [2.5]), "1", 100000, 10, 7)[0], 10)
    many = ([[a, b, c][i % 3] for i in range(20)], [1 / (i + 3) for i in range(20)])
    report("twenty", build(many, "7,2,1", 200000, 5)[0], 5)
    mock = build(None, None, 2000000, 64)[0]
    report("mock", mock, 64, 5000)


main(sys.argv[1])
