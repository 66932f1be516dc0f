#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses, gradients and training curves of tiny Llamas, Qwen2s and Qwen3s, computed by PyTorch and
Transformers.

    python tests/oracle/llama.py tests/oracle/data [NAME...]

writes, for each case or those named, NAME.json (dimensions, tokens, losses, versions) and NAME.bin (every gradient
of the first batch, float32, in the order of "tensors").  tests/oracle/llama.c reads them.
Initial weights are a pure function of (tensor number, element), computed on both sides.
"""
import json
import os
import sys

import numpy
import torch
import transformers

BATCHES, ROWS, STEPS = 5, 2, 50
ADAMW = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
PLAIN = dict(vocab=96, dim=32, layers=2, heads=4, kv_heads=4, head=8, hidden=48, tokens=16,
             theta=10000.0, eps=1e-5, tied=False, causal=True, qk_norm=False, z_loss=0.0,
             attention_bias=None, mlp_bias=False)
CASES = {
    "mha": {},
    "gqa": dict(kv_heads=2, hidden=40),
    "tied": dict(kv_heads=2, tied=True, theta=500000.0, eps=1e-6),
    # Wavelengths on both sides of each limit, and positions beyond the original context.
    "scaled": dict(heads=4, kv_heads=1, head=16, tokens=32, theta=200.0,
                   scaling=dict(factor=8.0, low=1.0, high=2.0, original=16)),
    "masked": dict(kv_heads=2, causal=False),
    "diffusion": dict(kv_heads=2, causal=False, weighted=True),
    # Qwen3: QK norm.  The z-loss is part of what is minimized, not of the losses.
    "qk_norm": dict(kv_heads=2, head=12, qk_norm=True),
    # Qwen2: biases of q, k and v; a Llama may have them everywhere.
    "qwen2": dict(kv_heads=2, attention_bias="qkv"),
    "biases": dict(kv_heads=2, head=12, attention_bias="all", mlp_bias=True),
    "z_loss": dict(kv_heads=2, qk_norm=True, z_loss=0.05),
}


def noise(stream, count):
    """Uniform in [-1, 1) with 24 bits: splitmix64 of stream * 2^32 + i."""
    z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(stream << 32)
    z = (z + numpy.uint64(1)) * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z = z ^ (z >> numpy.uint64(31))
    bits = (z >> numpy.uint64(40)).astype(numpy.float32)
    return bits * numpy.float32(2.0 ** -23) - numpy.float32(1)


def names(case):
    yield "model.embed_tokens.weight"
    for i in range(case["layers"]):
        for part in ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                     "self_attn.o_proj", "post_attention_layernorm", "mlp.gate_proj",
                     "mlp.up_proj", "mlp.down_proj", "self_attn.q_norm", "self_attn.k_norm"):
            if "_norm" in part and not case["qk_norm"]:
                continue
            yield f"model.layers.{i}.{part}.weight"
        with_bias = {None: (), "qkv": ("q", "k", "v"), "all": ("q", "k", "v", "o")}
        for part in with_bias[case["attention_bias"]]:
            yield f"model.layers.{i}.self_attn.{part}_proj.bias"
        for part in ("gate", "up", "down") if case["mlp_bias"] else ():
            yield f"model.layers.{i}.mlp.{part}_proj.bias"
    yield "model.norm.weight"
    if not case["tied"]:
        yield "lm_head.weight"


def build(case):
    rope = dict(rope_type="default", rope_theta=case["theta"])
    if "scaling" in case:
        s = case["scaling"]
        rope = dict(rope_type="llama3", rope_theta=case["theta"], factor=s["factor"],
                    low_freq_factor=s["low"], high_freq_factor=s["high"],
                    original_max_position_embeddings=s["original"])
    family = "Qwen3" if case["qk_norm"] else "Qwen2" if case["attention_bias"] == "qkv" else "Llama"
    biases = dict(attention_bias=case["attention_bias"] == "all", mlp_bias=case["mlp_bias"])
    config = getattr(transformers, family + "Config")(**(biases if family == "Llama" else {}),
        vocab_size=case["vocab"], hidden_size=case["dim"], intermediate_size=case["hidden"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"], head_dim=case["head"],
        max_position_embeddings=case["tokens"], rms_norm_eps=case["eps"],
        rope_parameters=rope, tie_word_embeddings=case["tied"], attn_implementation="eager")
    model = getattr(transformers, family + "ForCausalLM")(config).float()
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for number, name in enumerate(names(case)):
            w = torch.from_numpy(noise(number, weights[name].numel())).view(weights[name].shape)
            is_norm = w.dim() == 1 and not name.endswith(".bias")
            weights[name].copy_(1 + w * 0.25 if is_norm else w * 0.25)
    assert len(weights) == number + 1
    return model


def tokens(case):
    count = BATCHES * ROWS * case["tokens"]
    scale = lambda u, n: ((u.astype(numpy.float64) + 1) / 2 * n).astype(numpy.int64)
    ids = scale(noise(1000, count), case["vocab"])
    labels = scale(noise(1001, count), case["vocab"])
    labels[noise(1002, count) > (0.7 if case["causal"] else -0.4)] = -100
    shape = (BATCHES, ROWS, case["tokens"])
    return torch.from_numpy(ids.reshape(shape)), torch.from_numpy(labels.reshape(shape))


def token_weights(case):
    """Of each token's loss, the same for a row, as masked diffusion has them; 0 beyond its end."""
    rows = (noise(1003, BATCHES * ROWS) + numpy.float32(1.1)) * numpy.float32(4)
    weights = numpy.repeat(rows, case["tokens"]).reshape(BATCHES, ROWS, case["tokens"])
    weights[:, 1, -3:] = 0
    return torch.from_numpy(weights)


def loss_of(model, case, ids, labels, weights=None):
    mask = None
    if not case["causal"]:
        mask = torch.zeros(ids.shape[0], 1, ids.shape[1], ids.shape[1], dtype=model.dtype)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    if weights is None:
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(),
                                                 labels.flatten()), logits
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(),
                                               reduction="none")
    return (losses * weights.flatten()).sum() / (weights > 0).sum(), logits


def minimized(case, loss, logits, labels):
    """The loss and, where a label is, the mean of z_loss logsumexp(logits)^2."""
    lse = torch.logsumexp(logits.flatten(0, 1).float(), -1)[labels.flatten() != -100]
    return loss + case["z_loss"] * (lse ** 2).mean()


def check_mask(model, case, ids):
    """Checks that the first position attends to the last token if and only if it should."""
    other = ids.clone()
    other[:, -1] = (other[:, -1] + 1) % case["vocab"]
    with torch.no_grad():
        a, b = (loss_of(model, case, x, x)[1][:, 0] for x in (ids, other))
    assert torch.equal(a, b) == case["causal"]


def run(name, folder):
    case = {**PLAIN, **CASES[name]}
    ids, labels = tokens(case)
    weights = [None] * BATCHES
    extra = {}
    if case.get("weighted"):
        weights = token_weights(case)
        labels[weights == 0] = -100
        extra = dict(weights=weights.flatten().tolist())
    model = build(case)
    check_mask(model, case, ids[0])
    loss, logits = loss_of(model, case, ids[0], labels[0], weights[0])
    minimized(case, loss, logits, labels[0]).backward()
    parameters = dict(model.named_parameters())
    tensors, gradients = [], []
    for tensor in names(case):
        tensors.append([tensor, *(list(parameters[tensor].shape) + [1])[:2]])
        gradients.append(parameters[tensor].grad.numpy().ravel())
    with torch.no_grad():
        half = build(case).bfloat16()
        # Transformers keeps RoPE frequencies in float32; restore them after the cast.
        half.model.rotary_emb = build(case).model.rotary_emb
        bf16_loss, _ = loss_of(half, case, ids[0], labels[0], weights[0])

    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        i = step % BATCHES
        step_loss, logits = loss_of(model, case, ids[i], labels[i], weights[i])
        minimized(case, step_loss, logits, labels[i]).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        losses.append(step_loss.item())
    answer = dict(script="tests/oracle/llama.py", torch=torch.__version__,
                  transformers=transformers.__version__, **case, batches=BATCHES, rows=ROWS,
                  adamw=dict(ADAMW, max_norm=1.0), tensors=tensors,
                  ids=ids.flatten().tolist(), labels=labels.flatten().tolist(), **extra,
                  loss=loss.item(), bf16_loss=bf16_loss.item(), losses=losses, norms=norms)
    with open(os.path.join(folder, name + ".json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}"
                                   for k, v in answer.items()) + "\n}\n")
    numpy.concatenate(gradients).astype("<f4").tofile(os.path.join(folder, name + ".bin"))
    print(name, loss.item(), bf16_loss.item(), losses[-1], norms[0])


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for case_name in sys.argv[2:] or CASES:
        run(case_name, sys.argv[1])
