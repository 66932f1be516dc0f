#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks Hugging Face folders with pytorch_model.bin.

    python tests/oracle/pytorch_bin.py fixture tests/checkpoint/data/pytorch_bin
    python tests/oracle/pytorch_bin.py check PROGRAM

fixture: a small model in two files and an index, as Transformers 4.28 wrote them (including RoPE
frequencies), and legacy.bin in the format of torch before 1.6.  Element i of tensor j, in the order of
llama.params, is ((31 j + i) mod 255 - 127) / 64.

check: `PROGRAM convert` reads models of one file and of several, tied or not, in three dtypes; all tensors
must equal those of Transformers, bit for bit.
"""
import json
import os
import subprocess
import sys
import tempfile

import torch

SHAPE = dict(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
             rms_norm_eps=1e-5)
SHARDS = 2


def names():
    """Names and shapes in the order of llama.params."""
    D, F, P = 16, 24, 8
    yield "model.embed_tokens.weight", (40, D)
    for i in range(2):
        for name, shape in (("input_layernorm", (D,)), ("self_attn.q_proj", (D, D)),
                            ("self_attn.k_proj", (P, D)), ("self_attn.v_proj", (P, D)),
                            ("self_attn.o_proj", (D, D)), ("post_attention_layernorm", (D,)),
                            ("mlp.gate_proj", (F, D)), ("mlp.up_proj", (F, D)),
                            ("mlp.down_proj", (D, F))):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", (D,)
    yield "lm_head.weight", (40, D)


def numbered():
    out = {}
    for j, (name, shape) in enumerate(names()):
        i = torch.arange(torch.Size(shape).numel())
        out[name] = (((31 * j + i) % 255 - 127) / 64).reshape(shape).bfloat16()
    return out


def save(folder, state, files):
    os.makedirs(folder, exist_ok=True)
    every = list(state)
    each = -(-len(every) // files)
    if files == 1:
        torch.save(state, os.path.join(folder, "pytorch_model.bin"))
        return
    where = {}
    for k in range(files):
        file = f"pytorch_model-{k + 1:05}-of-{files:05}.bin"
        part = every[k * each:(k + 1) * each]
        torch.save({name: state[name] for name in part}, os.path.join(folder, file))
        where.update(dict.fromkeys(part, file))
    with open(os.path.join(folder, "pytorch_model.bin.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 0}, "weight_map": where}, f, indent=1)


def fixture(folder):
    state = numbered()
    for i in range(2):
        state[f"model.layers.{i}.self_attn.rotary_emb.inv_freq"] = torch.tensor([1.0, 0.01])
    save(folder, state, SHARDS)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(SHAPE, architectures=["LlamaForCausalLM"], model_type="llama",
                       hidden_act="silu", tie_word_embeddings=False), f)
    torch.save({"model.norm.weight": state["model.norm.weight"]},
               os.path.join(folder, "legacy.bin"), _use_new_zipfile_serialization=False)
    print("torch", torch.__version__)


def check(program):
    import safetensors.torch
    import transformers
    for tied in (False, True):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for files in (1, 3):
                config = transformers.LlamaConfig(**SHAPE, tie_word_embeddings=tied)
                model = transformers.LlamaForCausalLM(config).to(dtype)
                with tempfile.TemporaryDirectory() as root:
                    old, new = os.path.join(root, "old"), os.path.join(root, "new")
                    save(old, dict(model.state_dict()), files)
                    config.save_pretrained(old)
                    subprocess.run([program, "convert", old, new, "--to", "hf"], check=True,
                                   stdout=subprocess.DEVNULL)
                    got = safetensors.torch.load_file(os.path.join(new, "model.safetensors"))
                    want = dict(model.state_dict())
                    if tied:
                        del want["lm_head.weight"]
                    assert got.keys() == want.keys(), got.keys() ^ want.keys()
                    for name in want:
                        assert got[name].dtype == dtype and torch.equal(got[name], want[name]), name
                    if dtype == torch.float32:  # in other dtypes the RoPE frequencies are rounded, too
                        again = transformers.LlamaForCausalLM.from_pretrained(new, dtype=dtype)
                        ids = torch.arange(24)[None] % 40
                        assert torch.equal(again(ids).logits, model(ids).logits)
                print(f"tied {tied}, {dtype}, {files} files: equal")


if __name__ == "__main__":
    {"fixture": fixture, "check": check}[sys.argv[1]](sys.argv[2])
