#!/usr/bin/env python3
"""One training setting of a Llama in plain PyTorch: steady-state tokens per second.

bench/against_torch.py compares it with Llamero on the CPU, tools/gpu with `llamero bench` on a GPU.  Like the
latter it trains on one batch of uniformly random token IDs.  The last line it prints is a JSON object; --output
writes it to a file too, after every step.  The median leaves out the first steps, which touch memory for the first
time and compile.

With --mode bfloat16 weights, gradients and AdamW's moments are bfloat16, less than Llamero keeps; --masters
adds float32 master weights, gradients and moments, as Llamero has them by default.  --attention auto times cuDNN and
FlashAttention on a GPU at the model's sizes, and uses the faster.  FlexAttention, which takes long to compile, comes
last: if it is faster, all steps are measured again with it.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                          enable_gqa=q.shape[1] != k.shape[1])


def only_backend(name):
    """Allows scaled_dot_product_attention only this backend, in compiled code too."""
    b = torch.backends.cuda
    b.enable_cudnn_sdp(name == "cudnn")
    b.enable_flash_sdp(name == "flash")
    b.enable_mem_efficient_sdp(False)
    b.enable_math_sdp(False)


def flex(a):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, a.seq_len, a.seq_len,
                             device=a.device)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask,
                                          enable_gqa=q.shape[1] != k.shape[1])


def attention(a, name):
    """The function of q, k, v [B, heads, T, K]."""
    if name == "flex":
        return flex(a)
    if name != "sdpa":
        only_backend(name)
    return sdpa


def time_attention(a, name):
    """Seconds of forward and backward of one layer; raises what the backend raises."""
    def operand(heads):
        return torch.randn(a.batch, heads, a.seq_len, a.dim // a.heads, device=a.device,
                           dtype=torch.bfloat16, requires_grad=True)
    q, k, v = operand(a.heads), operand(a.kv_heads), operand(a.kv_heads)
    run = attention(a, name)
    run = torch.compile(run) if name == "flex" else run
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run(q, k, v).backward(q.detach())
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[3:])


def choose_attention(a, names, seen):
    """Name of the fastest so far; adds to `seen` what was measured or raised for each name."""
    for name in names:
        try:
            seen[name] = time_attention(a, name)
        except Exception as error:  # which ones a backend raises is not documented
            seen[name] = (str(error) or repr(error)).splitlines()[0][:200]
    timed = [name for name, seconds in seen.items() if isinstance(seconds, float)]
    return min(timed, key=seen.get) if timed else "sdpa"


class Masters:
    """float32 copies of the weights, which AdamW updates; the weights are rounded from them."""

    def __init__(self, weights):
        self.weights = weights
        self.copies = [w.detach().float() for w in weights]
        for copy in self.copies:
            copy.grad = torch.zeros_like(copy)

    def take_gradients(self):
        torch._foreach_copy_([c.grad for c in self.copies], [w.grad for w in self.weights])

    @torch.no_grad()
    def round_to_weights(self):
        torch._foreach_copy_(self.weights, self.copies)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), 1e-5)


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden, attend):
        super().__init__()
        self.attend = attend
        self.heads, self.kv_heads, self.size = heads, kv_heads, dim // heads
        rows = (heads + 2 * kv_heads) * self.size
        self.attention_norm, self.ffn_norm = RMSNorm(dim), RMSNorm(dim)
        self.qkv = nn.Linear(dim, rows, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def rotate(self, x, cos, sin):
        half = self.size // 2
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)

    def forward(self, x, cos, sin):
        B, T, D = x.shape
        H, G, K = self.heads, self.kv_heads, self.size
        q, k, v = self.qkv(self.attention_norm(x)).split([H * K, G * K, G * K], -1)
        q = self.rotate(q.view(B, T, H, K).transpose(1, 2), cos, sin)
        k = self.rotate(k.view(B, T, G, K).transpose(1, 2), cos, sin)
        v = v.view(B, T, G, K).transpose(1, 2)
        y = self.attend(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, a, attend):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(
            Block(a.dim, a.heads, a.kv_heads, a.hidden, attend) for _ in range(a.layers))
        self.norm = RMSNorm(a.dim)
        self.head = nn.Linear(a.dim, a.vocab, bias=False)
        if a.tied:
            self.head.weight = self.embed.weight
        self.recompute = a.recompute
        half = a.dim // a.heads // 2
        angle = torch.outer(torch.arange(a.seq_len), 500000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())
        for w in self.parameters():
            if w.dim() > 1:
                nn.init.normal_(w, std=0.02)

    def forward(self, ids, labels):
        x = self.embed(ids)
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.cos, self.sin, use_reentrant=False)
            else:
                x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--mode", choices=["float32", "autocast", "bfloat16"], default="autocast")
    p.add_argument("--masters", action="store_true", help="float32 masters, with --mode bfloat16")
    p.add_argument("--attention", choices=["auto", "sdpa", "cudnn", "flash", "flex"],
                   default="auto")
    p.add_argument("--output", help="file of the JSON object, rewritten after every step")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--tied", action="store_true")
    p.add_argument("--recompute", action="store_true")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--skip", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    for name, value in dict(batch=4, seq_len=1024, dim=768, layers=12, heads=12, kv_heads=4,
                            hidden=2048, vocab=32000).items():
        p.add_argument("--" + name.replace("_", "-"), type=int, default=value)
    return p.parse_args()


def write(path, result):
    with open(path + ".new", "w") as file:
        json.dump(result, file)
    os.replace(path + ".new", path)


def measure(a, name, seen, writes_each):
    """The result of all steps with this attention; writes_each: also after every step."""
    torch.manual_seed(1)
    with torch.device(a.device):
        model = Llama(a, attention(a, name))
    if a.mode == "bfloat16":
        model = model.bfloat16()
    weights = list(model.parameters())
    masters = Masters(weights) if a.masters else None
    updated = masters.copies if masters else weights
    optimizer = torch.optim.AdamW(updated, lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if a.compile else model
    synchronize = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    ids = torch.randint(a.vocab, (2, a.batch, a.seq_len), device=a.device)
    result = {"torch": torch.__version__, "mode": a.mode, "compile": a.compile, "attention": name,
              "attention_seconds": seen, "masters": "float32" if a.masters else "none",
              "state": str(updated[0].dtype).removeprefix("torch."), "complete": False}
    seconds = []
    for i in range(a.steps):
        synchronize()
        begin = time.perf_counter()
        with torch.autocast(a.device, torch.bfloat16, enabled=a.mode == "autocast"):
            loss = run(ids[0], ids[1])
        loss.backward()
        if masters:
            masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(updated, 1.0)
        optimizer.step()
        if masters:
            masters.round_to_weights()
        model.zero_grad(set_to_none=a.device != "cpu")
        synchronize()
        seconds.append(time.perf_counter() - begin)
        steady = statistics.median(seconds[a.skip:] or seconds)
        memory = torch.cuda.max_memory_allocated() if a.device == "cuda" else 0
        result |= {"loss": loss.item(), "seconds": seconds, "step_seconds": steady,
                   "memory_bytes": memory, "tokens_per_second": a.batch * a.seq_len / steady,
                   "complete": i + 1 == a.steps}
        if a.output and (writes_each or result["complete"]):
            write(a.output, result)
    return result


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    is_auto = a.attention == "auto" and a.device == "cuda" and a.mode != "float32"
    seen = {}
    name = choose_attention(a, ("cudnn", "flash"), seen) if is_auto else a.attention
    result = measure(a, "sdpa" if name == "auto" else name, seen, True)
    if is_auto:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        if choose_attention(a, ("flex",), seen) == "flex":
            torch._dynamo.reset()
            result = measure(a, "flex", seen, False)
        elif a.output:
            write(a.output, result)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
