#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares training and evaluation of a masked diffusion model with PyTorch.

    python tests/oracle/diffusion.py build/llamero

trains a tiny Llama in float32 with objective.name = "diffusion" and evaluates it.  The script draws
the same masks (Philox in NumPy), computes the loss from its definition with Transformers' model and
torch's AdamW, and compares losses, gradient norms, the weights after the last step and the bound of
`eval`.  Fails if one of them differs by more than 1e-5 relative to its size, or weights by 5e-5:
AdamW divides small gradients by their size, so after 20 steps in float32 they are off from those in
float64 by 6e-6 (plain loops) to 2e-5 (AVX-512).

The loss (Nie et al. 2025, "Large Language Diffusion Models", section 2): for each row t is uniform in
[0, 1), p = (1 - 0.001) t + 0.001; each token is masked with probability p; the sum over the masked
tokens of cross-entropy / p, divided by all tokens of the batch.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

STEPS, ROWS, TOKENS, SEED = 20, 4, 24, 7
VOCAB, MASK = 259, 258  # the tokenizer "bytes"
RNG_MASK, RNG_DIFFUSION = 4, 12
BOUND = 1e-3
ADAMW = dict(lr=3e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)


def philox(key, counter):
    """Philox4x32-10 (Salmon et al. 2011)."""
    k, c = [key & 0xFFFFFFFF, key >> 32], list(counter)
    for _ in range(10):
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [high >> 32 ^ c[1] ^ k[0], high & 0xFFFFFFFF, low >> 32 ^ c[3] ^ k[1], low & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(purpose, row, position):
    bits = philox(SEED, (position & 0xFFFFFFFF, position >> 32, row & 0xFFFFFFFF,
                         row >> 32 ^ purpose << 24))
    return ((bits[0] << 32 | bits[1]) >> 11) * 2.0 ** -53


def loss_of(model, rows, first):
    """The loss of rows first, first + 1, ... of the run."""
    p = [BOUND + (1 - BOUND) * uniform(RNG_DIFFUSION, first + i, 0) for i in range(len(rows))]
    masked = torch.tensor([[uniform(RNG_MASK, first + i, j) < p[i] for j in range(TOKENS)]
                           for i in range(len(rows))])
    everything = torch.zeros(len(rows), 1, TOKENS, TOKENS)
    logits = model(input_ids=torch.where(masked, MASK, rows), attention_mask=everything,
                   use_cache=False).logits
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows.flatten(),
                                               reduction="none").view(rows.shape)
    return (losses * masked / torch.tensor(p)[:, None]).sum() / rows.numel()


def off(got, want):
    return abs(got / want - 1)


def check(what, difference, limit=1e-5):
    print(f"{what:40} {difference:.1e}")
    assert difference < limit, what


def main(program):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = pathlib.Path(tempfile.mkdtemp())
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=TOKENS,
        initializer_range=0.1, attn_implementation="eager")).float()
    model.save_pretrained(folder / "start")
    ids = torch.randint(0, 256, (STEPS * ROWS, TOKENS))
    numpy.save(folder / "ids.npy", ids.numpy().astype("<i4"))
    settings = f"""
        model.name=llama3 model.flavor=debugmodel
        model.rope_theta=10000 model.rope_scaling=none model.norm_eps=1e-6
        model.dim=32 model.n_layers=2 model.n_heads=4 model.n_kv_heads=2 model.ffn_hidden=64
        checkpoint.initial_load_path={folder}/start training.dataset_path={folder}/ids.npy
        data.tokenizer=bytes data.bos=false data.eos=false data.streams=1 data.shuffle_window=1
        data.seed={SEED} objective.name=diffusion objective.mask_token=<|mask|>
        training.mixed_precision_param=float32 training.seq_len={TOKENS} training.steps={STEPS}
        training.local_batch_size=2 training.global_batch_size={ROWS} optimizer.lr={ADAMW['lr']}
        lr_scheduler.warmup_steps=0 lr_scheduler.decay_ratio=0 metrics.log_freq=1
        checkpoint.enable=true checkpoint.interval={STEPS} job.dump_folder={folder}/run""".split()
    (folder / "run.toml").write_text("")
    subprocess.run([program, "train", folder / "run.toml", *settings, "--quiet"], check=True)
    steps = [line for line in map(json.loads, (folder / "run/metrics.jsonl").open())
             if "grad_norm" in line]
    assert len(steps) == STEPS
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms = [], []
    for i, got in enumerate(steps):
        optimizer.zero_grad()
        loss = loss_of(model, ids[i * ROWS:(i + 1) * ROWS], i * ROWS)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        losses.append(off(got["loss"], loss.item()))
        norms.append(off(got["grad_norm"], norm))
    check(f"loss of {STEPS} steps", max(losses))
    check("gradient norms", max(norms))
    saved = safetensors.torch.load_file(
        next((folder / f"run/checkpoint/step-{STEPS}").glob("model*.safetensors")))
    weights = dict(model.named_parameters())
    with torch.no_grad():
        check("weights after the last step",
              max(((saved[name] - w).norm() / w.norm()).item() for name, w in weights.items()), 5e-5)
        evaluated = json.loads(subprocess.run(
            [program, "eval", folder / "run", folder / "ids.npy", "--json"],
            check=True, stdout=subprocess.PIPE).stdout)
        bound = loss_of(model, ids, 0).item()
    assert evaluated["tokens"] == ids.numel() and evaluated["is_bound"]
    check("eval: loss", off(evaluated["loss"], bound))
    check("eval: bits per byte", off(evaluated["bits_per_byte"], bound / math.log(2)))


if __name__ == "__main__":
    main(sys.argv[1])
