#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the fuzzers' seeds that require torch: fuzz_seeds.py tests/fuzz/corpus

Written with torch 2.15.0.  The fuzzers replace an archive's data (tests/fuzz/archive.h):
data/0 of 64 bytes, data/1 of 32, data/2 of 16.
"""
import argparse
import io
import json
import pickle
import sys
import zipfile
from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorProperties,
    TensorStorageMetadata)
from torch.distributed.checkpoint.filesystem import _StorageInfo

ARCHIVE_BYTES = 2876
out = Path(sys.argv[1])


def data_pickle(value):
    file = io.BytesIO()
    torch.save(value, file)
    archive = zipfile.ZipFile(file)
    name = next(n for n in archive.namelist() if n.endswith("/data.pkl"))
    return archive.read(name)


def two_parts(first, second):
    return len(first).to_bytes(2, "little") + first + second


def put(fuzzer, name, data):
    path = out / fuzzer / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def metadata(chunks, others=()):
    """.metadata of sharded tensors, all in the same archive, and of bytes."""
    tensors, where = {}, {}
    for name, shape, pieces in chunks:
        tensors[name] = TensorStorageMetadata(
            TensorProperties(dtype=torch.float32), torch.Size(shape),
            [ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in pieces])
        for offset, _ in pieces:
            where[MetadataIndex(name, torch.Size(offset))] = _StorageInfo(
                "f", 0, ARCHIVE_BYTES)
    for name in others:
        tensors[name] = BytesStorageMetadata()
        where[MetadataIndex(name)] = _StorageInfo("f", 0, ARCHIVE_BYTES)
    return pickle.dumps(Metadata(tensors, storage_data=where))


norm = torch.zeros(16)
square = torch.zeros(4, 4)
put("dcp", "vector", two_parts(metadata([("model.norm.weight", [16], [([0], [16])])]),
                               data_pickle(norm)))
put("dcp", "pieces", two_parts(
    metadata([("layers.0.attention.wq.weight", [8, 4], [([0, 0], [4, 4]), ([4, 0], [4, 4])])]),
    data_pickle(square)))
put("dcp", "states", two_parts(
    metadata([("optimizer.state.layers.0.attention.wq.weight.exp_avg", [4, 4], [([0, 0], [4, 4])]),
              ("optimizer.state.layers.0.attention.wq.weight.exp_avg_sq", [4, 4],
               [([0, 0], [4, 4])])],
             ["optimizer.state.layers.0.attention.wq.weight.step", "lr_scheduler", "train_state"]),
    data_pickle({"step": torch.zeros(1, dtype=torch.int32), "last_epoch": 3, "x": 1.5})))
put("dcp", "megatron", two_parts(
    metadata([("decoder.layers.0.mlp.linear_fc1.weight", (8, 4), [((0, 0), (4, 4)), ((4, 0), (4, 4))]),
              ("decoder.layers.0.self_attention.linear_qkv.weight", (4, 4), [((0, 0), (4, 4))]),
              ("optimizer.state.exp_avg.output_layer.weight", (4, 4), [((0, 0), (4, 4))])]),
    data_pickle(square)))
args = argparse.Namespace(
    swiglu=True, normalization="RMSNorm", position_embedding_type="rope", hidden_size=2, num_layers=1,
    num_attention_heads=2, group_query_attention=True, num_query_groups=1, kv_channels=2,
    ffn_hidden_size=2, seq_length=8, padded_vocab_size=2, make_vocab_size_divisible_by=2,
    rotary_interleaved=True, untie_embeddings_and_output_weights=True, consumed_train_samples=3)
layer = "decoder.layers.0."
put("dcp", "megatron_args", two_parts(
    metadata([], ["common_state/shard_0_1"]), data_pickle(
        {"args": args, "iteration": 3, "optimizer": {"param_groups": [{"step": 3}]},
         "model": {layer + "self_attention.linear_qkv.weight": torch.zeros(8, 2),
                   layer + "mlp.linear_fc1.weight": torch.zeros(4, 2),
                   "output_layer.weight": torch.zeros(2, 2)}})))
flat = layer + "mlp.linear_fc2.weight"
put("dcp", "megatron_flattened", two_parts(
    metadata([(flat, (4, 4), []),
              ("optimizer.state.fp32_param." + flat, (1, 1, 16), [((0, 0, 0), (1, 1, 16))]),
              ("optimizer.state.exp_avg." + flat, (1, 1, 16), [((0, 0, 0), (1, 1, 16))])]),
    data_pickle(torch.zeros(1, 1, 16))))

whole = {"norm.weight": torch.zeros(16), "layers.0.attention.wk.weight": torch.zeros(2, 4),
         "layers.1.attention_norm.weight": torch.zeros(4)}
half = {"layers.0.attention.wq.weight": torch.zeros(4, 4),
        "norm.weight": torch.zeros(8),
        "tok_embeddings.weight": torch.zeros(1, 8, dtype=torch.bfloat16)}
put("meta", "alone", two_parts(data_pickle(whole), b""))
put("meta", "halves", two_parts(data_pickle(half), data_pickle(half)))

put("torch", "tensors", data_pickle(
    {"a": torch.zeros(4, 4).t(), "b": [torch.zeros(8)], "c": {"d": torch.zeros(2, 2)}}))
put("torch", "parameter", data_pickle(torch.nn.Parameter(torch.zeros(2, 8))))

hf = {"model.norm.weight": torch.zeros(16), "lm_head.weight": torch.zeros(2, 4),
      "model.layers.0.self_attn.q_proj.weight": torch.zeros(2, 2)}
index = {"metadata": {}, "weight_map": {name: "f.bin" for name in hf}}
put("pytorch_bin", "inside", two_parts(json.dumps(index).encode(), data_pickle(hf)))
