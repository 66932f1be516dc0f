#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares how weights in FP8 are dequantized with PyTorch.

    python tests/oracle/fp8_weights.py PROGRAM

Quantizes a small Llama as the checkpoints of each kind are: a scale for each tensor, row or block of 128 x 128,
under the names of Transformers' fp8 and fbgemm_fp8 and of compressed-tensors, in float32 or bfloat16, in E4M3 or
E5M2, in one file or with weights and scales in two.  `PROGRAM convert` must write what PyTorch computes from the
same files: every bit in float32 and in bfloat16.  `eval` and the first step of `train` must have the loss of the
model that was converted.  quantization_config of other kinds must be rejected.

    pip install torch safetensors
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

WIDTH, HIDDEN, HEADS, GROUPS, LAYERS, VOCAB, BLOCK = 192, 320, 3, 1, 2, 259, 128
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
CONFIG = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=WIDTH, intermediate_size=HIDDEN,
              num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=GROUPS, vocab_size=VOCAB,
              max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=256,
              eos_token_id=257)


def compressed(strategy, **more):
    return dict(quant_method="compressed-tensors", format="float-quantized", config_groups={
        "group_0": {"targets": ["Linear"], "weights": dict(num_bits=8, type="float", strategy=strategy, **more)}})


# name: quantization_config, suffix of the scales, their granularity, their dtype, the weights' dtype
KINDS = {
    "fp8, blocks": (dict(quant_method="fp8", weight_block_size=[BLOCK, BLOCK]), "_scale_inv", "block", torch.float32,
                    E4M3),
    "fp8, tensor": (dict(quant_method="fp8", activation_scheme="static"), "_scale", "tensor", torch.float32, E4M3),
    "fp8, tensor, E5M2": (dict(quant_method="fp8"), "_scale", "tensor", torch.float32, E5M2),
    "fbgemm_fp8": (dict(quant_method="fbgemm_fp8"), "_scale", "row", torch.float32, E4M3),
    "compressed-tensors, tensor": (compressed("tensor"), "_scale", "tensor", torch.bfloat16, E4M3),
    "compressed-tensors, channel": (compressed("channel"), "_scale", "row", torch.bfloat16, E4M3),
    "compressed-tensors, block": (compressed("block", block_structure=[BLOCK, BLOCK]), "_scale", "block",
                                  torch.bfloat16, E4M3),
}
REJECTED = [dict(quant_method="gptq", bits=4), dict(quant_method="awq", bits=4), dict(quant_method="mxfp4"),
            dict(quant_method="bitsandbytes", load_in_4bit=True),
            dict(quant_method="compressed-tensors", format="pack-quantized"),
            dict(quant_method="fp8", weight_block_size=[64, 64])]


def shapes():
    kv = WIDTH // HEADS * GROUPS
    yield "model.embed_tokens.weight", (VOCAB, WIDTH), False
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        for name, shape in {"q_proj": (WIDTH, WIDTH), "k_proj": (kv, WIDTH), "v_proj": (kv, WIDTH),
                            "o_proj": (WIDTH, WIDTH)}.items():
            yield f"{layer}self_attn.{name}.weight", shape, True
        for name, shape in {"gate_proj": (HIDDEN, WIDTH), "up_proj": (HIDDEN, WIDTH),
                            "down_proj": (WIDTH, HIDDEN)}.items():
            yield f"{layer}mlp.{name}.weight", shape, True
        yield layer + "input_layernorm.weight", (WIDTH,), False
        yield layer + "post_attention_layernorm.weight", (WIDTH,), False
    yield "model.norm.weight", (WIDTH,), False
    yield "lm_head.weight", (VOCAB, WIDTH), False


def spread(scales, shape, granularity):
    """The scale of each element."""
    if granularity == "block":
        scales = scales.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:shape[0], :shape[1]]
    return scales.float().expand(shape)


def scale_shape(shape, granularity):
    blocks = tuple((n + BLOCK - 1) // BLOCK for n in shape)
    return {"tensor": (1,), "row": (shape[0], 1), "block": blocks}[granularity]


def quantize(kind, generator):
    """Returns the tensors of the quantized model, and those that they stand for, in float32."""
    _, suffix, granularity, scale_dtype, dtype = kind
    stored, expected = {}, {}
    for name, shape, is_linear in shapes():
        value = torch.randn(shape, generator=generator) * 0.1 + (1.0 if len(shape) == 1 else 0.0)
        if not is_linear:
            stored[name] = value.bfloat16()
            expected[name] = stored[name].float()
            continue
        scales = (torch.rand(scale_shape(shape, granularity), generator=generator) * 0.003 + 0.001).to(scale_dtype)
        each = spread(scales, shape, granularity)
        stored[name] = (value / each).clamp(-400, 400).to(dtype)
        stored[name + suffix] = scales
        expected[name] = stored[name].float() * each
        stored[name.replace(".weight", ".input_scale")] = torch.ones(1)
    return stored, expected


def write(folder, config, tensors, files):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    if files == 1:
        save_file(tensors, folder / "model.safetensors")
        return
    parts = {"a.safetensors": {n: t for n, t in tensors.items() if "scale" not in n},
             "b.safetensors": {n: t for n, t in tensors.items() if "scale" in n}}
    for name, part in parts.items():
        save_file(part, folder / name)
    weight_map = {n: name for name, part in parts.items() for n in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def run(*command):
    return subprocess.run([str(c) for c in command], text=True, capture_output=True)


def loss(program, folder, data):
    out = run(program, "eval", folder, data, "--json", "--seq-len", "64", "--tokenizer", "bytes",
              "training.mixed_precision_param=float32")
    assert out.returncode == 0, out.stderr
    return json.loads(out.stdout)["loss"]


def first_loss(program, folder, data, scratch):
    """The loss of a run's first step."""
    (scratch / "empty.toml").write_text("")
    keys = dict(n_layers=LAYERS, dim=WIDTH, n_heads=HEADS, n_kv_heads=GROUPS, ffn_hidden=HIDDEN)
    dump = scratch / (folder.name + "-run")
    out = run(program, "train", scratch / "empty.toml", f"job.dump_folder={dump}", "data.tokenizer=bytes",
              f"training.dataset_path={data}", "training.steps=1", "training.seq_len=64", "training.local_batch_size=1",
              "validation.enable=false", "metrics.log_freq=1", "training.mixed_precision_param=float32",
              f"checkpoint.initial_load_path={folder}", "checkpoint.enable=true", "--quiet",
              *(f"model.{k}={v}" for k, v in keys.items()))
    assert out.returncode == 0, out.stderr
    return json.loads((dump / "metrics.jsonl").read_text().splitlines()[0])


def check(program, name, kind, files, scratch):
    stored, expected = quantize(kind, torch.Generator().manual_seed(len(name) + files))
    source = scratch / f"source{files}"
    write(source, {"quantization_config": kind[0]}, stored, files)
    wrong = 0
    for dtype in torch.float32, torch.bfloat16:
        target = scratch / f"{files}-{str(dtype)[6:]}"
        out = run(program, "convert", source, target, "--to", "hf", "--dtype", str(dtype)[6:])
        assert out.returncode == 0, out.stderr
        assert "quantization_config" not in (target / "config.json").read_text()
        got = {n: t for f in target.glob("*.safetensors") for n, t in load_file(f).items()}
        assert sorted(got) == sorted(expected), sorted(set(got) ^ set(expected))
        wrong += sum(not torch.equal(got[n], expected[n].to(dtype)) for n in expected)
    data = scratch / "text.txt"
    data.write_text("A few words are enough to compare the loss of two models. " * 20)
    losses = [loss(program, folder, data) for folder in (source, scratch / f"{files}-float32")]
    first = [first_loss(program, folder, data, scratch)["loss"] for folder in (source, scratch / f"{files}-float32")]
    print(f"{name}, {files} file(s): {len(expected)} tensors in float32 and bfloat16, {wrong} differ; "
          f"eval {losses[0]} and {losses[1]}, train {first[0]} and {first[1]}")
    return wrong + (losses[0] != losses[1]) + (first[0] != first[1])


def main():
    program, wrong = pathlib.Path(sys.argv[1]).resolve(), 0
    for name, kind in KINDS.items():
        for files in 1, 2:
            with tempfile.TemporaryDirectory() as scratch:
                wrong += check(program, name, kind, files, pathlib.Path(scratch))
    with tempfile.TemporaryDirectory() as scratch:
        tensors, _ = quantize(KINDS["fbgemm_fp8"], torch.Generator().manual_seed(1))
        for i, config in enumerate(REJECTED):
            folder = pathlib.Path(scratch) / str(i)
            write(folder, {"quantization_config": config}, tensors, 1)
            out = run(program, "convert", folder, folder / "out", "--to", "hf")
            named = config["quant_method"] in out.stderr or "weight_block_size" in out.stderr
            print(f"{config['quant_method']}: {out.stderr.strip().splitlines()[-1][-150:]}")
            wrong += out.returncode == 0 or not named
    sys.exit(wrong > 0)


main()
