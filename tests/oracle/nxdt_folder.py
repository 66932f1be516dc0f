#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shards and joins checkpoints of NxD Training in plain torch.

    python tests/oracle/nxdt_folder.py fixture tests/checkpoint/data/nxdt
    python tests/oracle/nxdt_folder.py check PROGRAM

fixture: a small model for 4 x 2 ranks with each key/value head on 2 of them, q, k and v fused, one file per
rank; and for 1 x 2 ranks, one file per tensor (xser).  Element i of tensor j, in the order of
llama.params, is ((31 j + i) mod 255 - 127) / 64.  Made with torch 2.15.

check: Transformers Llamas, sharded for several numbers of ranks, head orders and names of q, k and v, are
converted to Hugging Face: bits and logits must be the same.  Converted to nxdt, each rank's file must
equal the one that this script writes, and joining them must restore the model, bit for bit.
"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import types
from collections import OrderedDict

import torch

# The module of torch_xla with the class that refers to a tensor in a separate file.
for part in ("torch_xla", "torch_xla.utils", "torch_xla.utils.serialization"):
    sys.modules[part] = types.ModuleType(part)


class TensorReference:
    def __init__(self, tid):
        self.tid = tid


TensorReference.__module__ = "torch_xla.utils.serialization"
TensorReference.__qualname__ = "TensorReference"
sys.modules["torch_xla.utils.serialization"].TensorReference = TensorReference


def save(path, state, xser):
    if not xser:
        torch.save(state, path)
        return
    os.makedirs(path + ".tensors")
    references, info = OrderedDict(), {}
    for tid, (name, t) in enumerate(state.items()):
        torch.save(t, f"{path}.tensors/tensor_{tid}.pt")
        references[name] = TensorReference(tid)
        info[tid] = {"dtype": t.dtype, "shape": t.shape, "expert_model_parallel": False}
    torch.save(references, path)
    torch.save(info, path + ".info.pt")


def load(path):
    state = torch.load(path, weights_only=False)
    if os.path.isdir(path + ".tensors"):
        info = torch.load(path + ".info.pt", weights_only=False)
        for name, t in state.items():
            state[name] = torch.load(f"{path}.tensors/tensor_{t.tid}.pt")
            described = info[t.tid]
            assert described["dtype"] == state[name].dtype and described["shape"] == state[name].shape
            assert described["expert_model_parallel"] is False
        assert len(info) == len(os.listdir(path + ".tensors")) == len(state)
    return {name: t for name, t in state.items()}


class Sharding:
    """tp, pp, virtual pp, replicas of each key/value head; style: plain, linear, fused, coalesced."""

    def __init__(self, config, tp, pp, copies=1, style="linear", order="trn1", virtual=1):
        self.config, self.tp, self.pp, self.copies = config, tp, pp, copies
        self.style, self.order, self.virtual = style, order, virtual
        self.kv = config["num_key_value_heads"]
        self.head = config["hidden_size"] // config["num_attention_heads"]

    def key_rows(self, rank, rows):
        """Row numbers, in the whole tensors, of a rank's k and v."""
        if self.copies == 1:
            each = rows // self.tp
            return list(range(rank * each, (rank + 1) * each))
        one = rank % self.kv if self.order == "trn1" else rank // self.copies
        return list(range(one * self.head, (one + 1) * self.head))

    def query_rows(self, rank):
        heads = self.config["num_attention_heads"]
        each = heads // self.tp
        if self.copies == 1 or self.order == "trn2":
            mine = range(rank * each, (rank + 1) * each)
        else:
            # The query heads of a key/value head are divided among the ranks that hold it.
            group = heads // self.kv
            first = rank % self.kv * group + rank // self.kv * each
            mine = range(first, first + each)
        return [h * self.head + i for h in mine for i in range(self.head)]

    def stage(self, layer):
        stages = self.pp * self.virtual
        layers = self.config["num_hidden_layers"]
        sizes = [layers // stages + (s >= stages - layers % stages) for s in range(stages)]
        ends = list(itertools.accumulate(sizes))
        return next(s for s in range(stages) if layer < ends[s]) % self.pp

    def of_rank(self, state, rank, pp):
        out = OrderedDict()
        part = lambda t, dim: t.chunk(self.tp, dim)[rank]
        if pp == 0:
            out["model.embed_tokens.weight"] = part(state["model.embed_tokens.weight"], 0)
        for i in range(self.config["num_hidden_layers"]):
            if self.stage(i) != pp:
                continue
            at = f"model.layers.{i}."
            get = lambda name: state[f"{at}{name}.weight"]
            q = get("self_attn.q_proj")[self.query_rows(rank)]
            k, v = (get(f"self_attn.{x}_proj") for x in "kv")
            k, v = (t[self.key_rows(rank, t.shape[0])] for t in (k, v))
            out[at + "input_layernorm.weight"] = get("input_layernorm")
            if self.style == "plain":
                for x, t in zip("qkv", (q, k, v)):
                    out[f"{at}self_attn.{x}_proj.weight"] = t
            elif self.style == "linear":
                for x, t in zip("qkv", (q, k, v)):
                    out[f"{at}self_attn.qkv_proj.weight_{x}"] = t
            else:
                name = "weight_qkv" if self.style == "fused" else "weight"
                out[f"{at}self_attn.qkv_proj.{name}"] = torch.cat((q, k, v))
            out[at + "self_attn.o_proj.weight"] = get("self_attn.o_proj")[:, self.query_rows(rank)]
            out[at + "post_attention_layernorm.weight"] = get("post_attention_layernorm")
            out[at + "mlp.gate_up_proj.weight"] = torch.cat(
                (part(get("mlp.gate_proj"), 0), part(get("mlp.up_proj"), 0)))
            out[at + "mlp.down_proj.weight"] = part(get("mlp.down_proj"), 1)
        if pp == self.pp - 1:
            out["model.norm.weight"] = state["model.norm.weight"]
            out["lm_head.weight"] = part(state["lm_head.weight"], 0)
        return OrderedDict((name, t.contiguous().clone()) for name, t in out.items())

    def write(self, state, folder, xser):
        os.makedirs(folder + "/model")
        for rank, pp in itertools.product(range(self.tp), range(self.pp)):
            save(f"{folder}/model/dp_rank_00_tp_rank_{rank:02d}_pp_rank_{pp:02d}.pt",
                 self.of_rank(state, rank, pp), xser)
        for marker in ("checkpoint", "done"):
            with open(f"{folder}/{marker}", "w") as f:
                f.write("1")
        with open(folder + "/config.json", "w") as f:
            json.dump(self.config, f)

    def join(self, folder):
        """Joins the ranks' files to one model; independent of of_rank."""
        shards = {}
        for rank, pp in itertools.product(range(self.tp), range(self.pp)):
            path = f"{folder}/model/dp_rank_00_tp_rank_{rank:02d}_pp_rank_{pp:02d}.pt"
            for name, t in load(path).items():
                shards.setdefault(name, []).append(t)
        out = {}
        heads = self.config["num_attention_heads"]
        for name, all_ in shards.items():
            whole = lambda dim=0: torch.cat(all_, dim)
            if "qkv_proj" in name:
                if name.endswith(("weight_q", "weight_k", "weight_v")):
                    parts = {name[-1]: all_}
                else:
                    q = heads // self.tp * self.head
                    k = (all_[0].shape[0] - q) // 2
                    split = [t.split((q, k, k)) for t in all_]
                    parts = {x: [s[i] for s in split] for i, x in enumerate("qkv")}
                stem = name.split("qkv_proj")[0]
                for x, ts in parts.items():
                    t = self.queries(torch.cat(ts)) if x == "q" else self.keys(torch.cat(ts))
                    out[f"{stem}{x}_proj.weight"] = t
            elif "gate_up_proj" in name:
                halves = [t.chunk(2) for t in all_]
                for i, x in enumerate(("gate_proj", "up_proj")):
                    out[name.replace("gate_up_proj", x)] = torch.cat([h[i] for h in halves])
            elif "o_proj" in name:
                out[name] = self.queries(whole(1).T).T
            elif "down_proj" in name:
                out[name] = whole(1)
            elif "norm" in name:
                assert all(torch.equal(t, all_[0]) for t in all_)
                out[name] = all_[0]
            elif re.search("[qkv]_proj", name):
                out[name] = self.queries(whole()) if "q_proj" in name else self.keys(whole())
            else:
                out[name] = whole()
        return out

    def keys(self, rows):
        if self.copies == 1:
            return rows
        if self.order == "trn1":
            first = rows.chunk(self.copies)
            assert all(torch.equal(t, first[0]) for t in first)
            return first[0]
        groups = rows.reshape(self.kv, self.copies, self.head, -1)
        assert all(torch.equal(groups[:, i], groups[:, 0]) for i in range(self.copies))
        return groups[:, 0].reshape(self.kv * self.head, -1)

    def queries(self, rows):
        if self.copies == 1 or self.order == "trn2":
            return rows
        each = self.config["num_attention_heads"] // self.tp * self.head
        return rows.reshape(self.copies, self.kv, each, -1).transpose(0, 1).reshape(rows.shape)


def same(a, b):
    assert a.keys() == b.keys(), set(a) ^ set(b)
    for name in a:
        assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name


def run(program, *words):
    done = subprocess.run([program, "convert", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def check_one(program, folder, sharding, tokens, dtype, xser, tied):
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(7)
    config = LlamaConfig(**{k: v for k, v in sharding.config.items() if k != "architectures"})
    model = LlamaForCausalLM(config).eval()
    state = {name: t.to(dtype) for name, t in model.state_dict().items()}
    model.load_state_dict({name: t.float() for name, t in state.items()})
    source, hf, ours = (os.path.join(folder, x) for x in ("source", "hf", "ours"))
    sharding.write(state, source, xser)
    run(program, source, hf, "--to", "hf")
    back = load_file(hf + "/model.safetensors")
    if tied:
        back["lm_head.weight"] = back["model.embed_tokens.weight"]
    same(back, state)
    again = LlamaForCausalLM.from_pretrained(hf, dtype=torch.float32).eval()
    with torch.no_grad():
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    flags = ["--tp-size", str(sharding.tp), "--pp-size", str(sharding.pp), "--virtual-pp-size",
             str(sharding.virtual), "--kv-size-multiplier", str(sharding.copies), "--hw-backend", sharding.order]
    flags += {"linear": ["--qkv-linear"], "fused": ["--fuse-qkv"],
              "coalesced": ["--coalesce-qkv"], "plain": []}[sharding.style]
    run(program, hf, ours, "--to", "nxdt", *flags, *([] if xser else ["--no-xser"]))
    same(sharding.join(ours), state)
    for rank, pp in itertools.product(range(sharding.tp), range(sharding.pp)):
        name = f"model/dp_rank_00_tp_rank_{rank:02d}_pp_rank_{pp:02d}.pt"
        mine = load(os.path.join(ours, name))
        same(mine, dict(sharding.of_rank(state, rank, pp)))
        assert os.path.isdir(os.path.join(ours, name + ".tensors")) == xser
    torch.save(state, os.path.join(folder, "checkpoint.pt"))
    run(program, os.path.join(folder, "checkpoint.pt"), os.path.join(folder, "full"), "--to", "hf",
        "--config", source + "/config.json")
    whole = load_file(os.path.join(folder, "full/model.safetensors"))
    if tied:
        whole["lm_head.weight"] = whole["model.embed_tokens.weight"]
    same(whole, state)


def shape(heads, kv, layers, tied=False, vocab=64):
    return dict(architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=vocab,
                hidden_size=64, intermediate_size=96, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv, max_position_embeddings=64,
                rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=tied,
                attention_bias=False, mlp_bias=False)


def check(program):
    gqa, mha = shape(8, 2, 3), shape(8, 8, 5)
    cases = [
        (Sharding(gqa, 4, 2, 2, "linear"), torch.bfloat16, True),
        (Sharding(gqa, 4, 2, 2, "fused"), torch.bfloat16, False),
        (Sharding(gqa, 8, 1, 4, "fused"), torch.float32, True),
        (Sharding(gqa, 8, 1, 4, "linear", "trn2"), torch.bfloat16, False),
        (Sharding(gqa, 4, 3, 2, "fused", "trn2"), torch.float16, True),
        (Sharding(gqa, 2, 2, 1, "plain"), torch.float32, False),
        (Sharding(mha, 4, 2, 1, "coalesced", virtual=2), torch.bfloat16, True),
        (Sharding(mha, 2, 2, 1, "linear"), torch.bfloat16, False),
        (Sharding(shape(8, 2, 2, True), 4, 1, 2, "fused"), torch.float32, True),
    ]
    tokens = torch.arange(24).reshape(2, 12) * 5 % 64
    for sharding, dtype, xser in cases:
        with tempfile.TemporaryDirectory() as folder:
            check_one(program, folder, sharding, tokens, dtype, xser, sharding.config["tie_word_embeddings"])
        print(f"tp {sharding.tp} pp {sharding.pp} virtual {sharding.virtual} "
              f"replicas {sharding.copies} {sharding.style} {sharding.order} {'xser' if xser else 'plain'} {dtype}: same bits and logits")


def fixture(folder):
    config = shape(4, 2, 2, vocab=40)
    config.update(hidden_size=16, intermediate_size=24, torch_dtype="bfloat16")
    D, F, P = 16, 24, 8
    names = [("model.embed_tokens.weight", (40, D))]
    for i in range(2):
        for name, dims in (("input_layernorm", (D,)), ("self_attn.q_proj", (D, D)),
                           ("self_attn.k_proj", (P, D)), ("self_attn.v_proj", (P, D)),
                           ("self_attn.o_proj", (D, D)), ("post_attention_layernorm", (D,)),
                           ("mlp.gate_proj", (F, D)), ("mlp.up_proj", (F, D)),
                           ("mlp.down_proj", (D, F))):
            names.append((f"model.layers.{i}.{name}.weight", dims))
    names += [("model.norm.weight", (D,)), ("lm_head.weight", (40, D))]
    state = {}
    for j, (name, dims) in enumerate(names):
        i = torch.arange(torch.Size(dims).numel())
        state[name] = (((31 * j + i) % 255 - 127) / 64).reshape(dims).bfloat16()
    Sharding(config, 4, 2, 2, "fused").write(state, folder + "/fused", False)
    Sharding(config, 1, 2, 1, "fused").write(state, folder + "/xser", True)


if __name__ == "__main__":
    {"fixture": fixture, "check": check}[sys.argv[1]](sys.argv[2])
