#!/usr/bin/env python3
"""One training setting of a Llama in plain PyTorch: steady-state tokens per second.

bench/against_torch.py compares it with Llamero on the CPU, tools/gpu with `llamero bench` on a GPU.  It
prints one JSON object; the median leaves out the first steps, which touch memory for the first time.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), 1e-5)


class Block(nn.Module):
    def __init__(self, dim, heads, kv_heads, hidden):
        super().__init__()
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
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != G)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, D))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(
            Block(a.dim, a.heads, a.kv_heads, a.hidden) for _ in range(a.layers))
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


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    with torch.device(a.device):
        model = Llama(a)
    if a.mode == "bfloat16":
        model = model.bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = torch.compile(model) if a.compile else model
    synchronize = torch.cuda.synchronize if a.device == "cuda" else lambda: None
    seconds = []
    for _ in range(a.steps):
        ids = torch.randint(a.vocab, (a.batch, a.seq_len + 1), device=a.device)
        synchronize()
        begin = time.perf_counter()
        with torch.autocast(a.device, torch.bfloat16, enabled=a.mode == "autocast"):
            loss = run(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=a.device != "cpu")
        synchronize()
        seconds.append(time.perf_counter() - begin)
    steady = statistics.median(seconds[a.skip:])
    memory = torch.cuda.max_memory_allocated() if a.device == "cuda" else 0
    print(json.dumps({"torch": torch.__version__, "mode": a.mode, "compile": a.compile,
                      "loss": loss.item(), "step_seconds": steady, "memory_bytes": memory,
                      "tokens_per_second": a.batch * a.seq_len / steady}))


if __name__ == "__main__":
    main()
