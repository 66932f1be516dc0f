#!/usr/bin/env python3
"""Prefill and decoding of Llamero, llama.cpp and Transformers with the same weights, alternated.

    python3 bench/against_llama_cpp.py --llama-cpp FOLDER [--shape 124m|1b] [--dtype bf16|f32]
                                       [--rounds 3] [--python PYTHON] [--keep FOLDER]

FOLDER has llama.cpp's llama-batched-bench, built for this processor (GGML_NATIVE; the sources are in
llama-cpp-python's archive on PyPI).  PYTHON has torch and transformers; without it only the two
others run.  The weights are random.  Llamero and Transformers read them as a Hugging Face folder,
llama.cpp the file that `llamero convert` makes of it.

Each round runs every program once for each batch size: prompts of --prompt tokens, then --tokens
tokens after each.  Llamero also samples tokens and computes their log-probabilities; the others only
compute logits.  A decoding step reads the weights once (of the embedding only the head's use of it)
and each text's keys and values; GB/s are these bytes over the time of a step, and "share" compares
them with what `llamero bench` reads from memory with as many threads.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import array
import json
import os
import pathlib
import random
import re
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHAPES = {
    "124m": dict(width=768, blocks=12, heads=12, kv_heads=4, hidden=2048, vocab=32000, tied=False),
    "1b": dict(width=2048, blocks=16, heads=32, kv_heads=8, hidden=8192, vocab=128256, tied=True)}
BYTES = {"bf16": 2, "f32": 4}
TRANSFORMERS = """
import json, sys, time, torch, transformers
folder, dtype, batch, prompt, tokens, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
torch.set_num_threads(threads)
dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
with torch.inference_mode():
    def run(count):
        cache = transformers.DynamicCache(config=model.config)
        ids = torch.full((batch, prompt), 300)
        begin = time.perf_counter()
        ids = model(ids, past_key_values=cache, logits_to_keep=1).logits.argmax(-1)
        middle = time.perf_counter()
        for _ in range(count):
            ids = model(ids, past_key_values=cache).logits.argmax(-1)
        return middle - begin, time.perf_counter() - middle
    run(1)
    print(json.dumps(run(tokens)))
"""


def tensors(s):
    width, hidden, keys = s["width"], s["hidden"], s["width"] // s["heads"] * s["kv_heads"]
    yield "model.embed_tokens.weight", [s["vocab"], width]
    for i in range(s["blocks"]):
        for name, shape in {
                "input_layernorm": [width], "self_attn.q_proj": [width, width],
                "self_attn.k_proj": [keys, width], "self_attn.v_proj": [keys, width],
                "self_attn.o_proj": [width, width], "post_attention_layernorm": [width],
                "mlp.gate_proj": [hidden, width], "mlp.up_proj": [hidden, width],
                "mlp.down_proj": [width, hidden]}.items():
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", [width]
    if not s["tied"]:
        yield "lm_head.weight", [s["vocab"], width]


def write_weights(path, s, dtype):
    """Normally distributed with a standard deviation of 0.02; norms are 1."""
    rng, each = random.Random(1), BYTES[dtype]
    block = array.array("f", (rng.gauss(0, 0.02) for _ in range(1 << 20))).tobytes()
    one = struct.pack("<f", 1)[4 - each:]
    if each == 2:
        halves = bytearray(len(block) // 2)
        halves[0::2], halves[1::2] = block[2::4], block[3::4]
        block = bytes(halves)
    header, at = {}, 0
    for name, shape in tensors(s):
        size = each
        for n in shape:
            size *= n
        header[name] = {"dtype": dtype.upper(), "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for k, (name, shape) in enumerate(tensors(s)):
            begin, end = header[name]["data_offsets"]
            if len(shape) == 1:
                file.write(one * shape[0])
                continue
            at, left = k * 7919 * each % len(block), end - begin
            while left:
                piece = block[at:at + left]
                file.write(piece)
                left, at = left - len(piece), 0


def write_tokenizer(path, vocab):
    """A byte-level BPE of `vocab` tokens: all bytes, pairs that begin with a space, other pairs, triples.
    A prompt of "a a a" has a token for each letter."""
    codes = [*range(33, 127), *range(161, 173), *range(174, 256)]
    codes += [256 + i for i in range(256 - len(codes))]
    letters = sorted(map(chr, codes), key=lambda c: c != "\u0120")
    merges = [(a, b) for a in letters for b in letters]
    merges += [(a + b, c) for a, b in merges[:512] for c in letters]
    merges = merges[:vocab - 1 - len(letters)]
    words = ["<|endoftext|>"] + sorted(letters) + [a + b for a, b in merges]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 0, "content": words[0], "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {w: i for i, w in enumerate(words)}, "merges": list(map(list, merges))}}))


def write_model(a, folder):
    """The Hugging Face folder, and the file for llama.cpp."""
    s, model = SHAPES[a.shape], pathlib.Path(folder, f"{a.shape}-{a.dtype}")
    gguf = model.with_suffix(".gguf")
    if gguf.exists():
        return model, gguf
    model.mkdir(exist_ok=True)
    write_weights(model / "model.safetensors", s, a.dtype)
    write_tokenizer(model / "tokenizer.json", s["vocab"])
    (model / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": s["width"],
        "num_hidden_layers": s["blocks"], "num_attention_heads": s["heads"],
        "num_key_value_heads": s["kv_heads"], "intermediate_size": s["hidden"],
        "vocab_size": s["vocab"], "tie_word_embeddings": s["tied"], "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "max_position_embeddings": 8192, "hidden_act": "silu",
        "bos_token_id": 0, "eos_token_id": 0,
        "dtype": {"bf16": "bfloat16", "f32": "float32"}[a.dtype]}))
    subprocess.run([a.binary, "convert", model, gguf], check=True, capture_output=True)
    return model, gguf


def run_llamero(a, model, batch, folder):
    """Seconds of all prompts, and of a step."""
    prompts = pathlib.Path(folder, "prompts.txt")
    prompts.write_text(("a" + " a" * (a.prompt - 1) + "\n") * batch)
    out = subprocess.run([a.binary, "generate", model, "--prompts", prompts, "--batch", str(batch),
                          "--max-tokens", str(a.tokens + 1), "--temperature", "0", "data.bos=false",
                          f"device.threads={a.threads}"],
                         check=True, capture_output=True, text=True).stderr
    found = re.search(r"read (\d+) tokens of \d+ texts in ([\d.]+) s and generated (\d+) in ([\d.]+)", out)
    assert int(found[1]) == batch * a.prompt and int(found[3]) == batch * (a.tokens + 1), found[0]
    return float(found[2]), float(found[4]) / a.tokens


def run_llama_cpp(a, gguf, batch):
    program = pathlib.Path(a.llama_cpp, "llama-batched-bench")
    room = batch * (a.prompt + a.tokens)
    kv = a.dtype if a.dtype == "f32" else a.kv
    out = subprocess.run([program, "-m", gguf, "-c", str(room), "-b", "2048", "-ub", "512", "-npp",
                          str(a.prompt), "-ntg", str(a.tokens), "-npl", str(batch), "-t",
                          str(a.threads), "-ctk", kv, "-ctv", kv, "--output-format", "jsonl"],
                         check=True, capture_output=True, text=True)
    line = next(json.loads(s) for s in out.stdout.splitlines() if s.startswith("{"))
    if not a.described:
        a.described = next((s for s in out.stderr.splitlines() if "system_info" in s), "?")
    return line["t_pp"], line["t_tg"] / a.tokens


def run_transformers(a, model, batch):
    out = subprocess.run([a.python, "-c", TRANSFORMERS, model, a.dtype] +
                         list(map(str, (batch, a.prompt, a.tokens, a.threads))),
                         check=True, capture_output=True, text=True).stdout
    prefill, decode = json.loads(out.splitlines()[-1])
    return prefill, decode / a.tokens


def bytes_of_step(a, batch):
    """Weights, and the keys and values of every text's context, at its mean length."""
    s = SHAPES[a.shape]
    elements = s["vocab"] * s["width"]  # the head
    for name, shape in tensors(s):
        elements += shape[0] * shape[-1] if len(shape) == 2 and "layers" in name else 0
    keys = s["blocks"] * 2 * s["width"] // s["heads"] * s["kv_heads"]
    return BYTES[a.dtype] * (elements + batch * keys * (a.prompt + a.tokens / 2))


def memory_bandwidth(a):
    out = subprocess.run([a.binary, "bench", "--json", "--rounds", "1", "model.dim=64", "model.n_layers=1",
                          "model.n_heads=1", "model.n_kv_heads=1", "model.ffn_hidden=64",
                          "model.vocab_size=256", "training.seq_len=64", f"device.threads={a.threads}"],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)["ceilings"]["bytes"]["read"]["all"]


def print_rates(a, results, read):
    for (name, batch), runs in results.items():
        prefill = [batch * a.prompt / p for p, _ in runs]
        decode = [batch / d for _, d in runs]
        rate = statistics.median(bytes_of_step(a, batch) / d for _, d in runs)
        print(f"{name:13} {batch:3} texts  prefill {min(prefill):8.0f} {statistics.median(prefill):8.0f} "
              f"{max(prefill):8.0f} tokens/s  decode {min(decode):8.1f} {statistics.median(decode):8.1f} "
              f"{max(decode):8.1f} tokens/s  {rate / 1e9:6.2f} GB/s, share {100 * rate / read:5.1f} %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--llama-cpp", metavar="FOLDER")
    p.add_argument("--python")
    p.add_argument("--shape", choices=SHAPES, default="124m")
    p.add_argument("--dtype", choices=BYTES, default="bf16")
    p.add_argument("--kv", default="f16", help="llama.cpp's keys and values with bf16 weights")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64])
    p.add_argument("--prompt", type=int, default=1024)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--keep", metavar="FOLDER", help="where models are kept between runs")
    p.add_argument("--binary", default=ROOT / "build/llamero")
    a = p.parse_args()
    a.described = ""
    results, reads = {}, []
    with tempfile.TemporaryDirectory() as scratch:
        model, gguf = write_model(a, a.keep or scratch)
        for _ in range(a.rounds):
            reads.append(memory_bandwidth(a))
            for batch in a.batch:
                runs = {"llamero": lambda: run_llamero(a, model, batch, scratch)}
                if a.llama_cpp:
                    runs["llama.cpp"] = lambda: run_llama_cpp(a, gguf, batch)
                if a.python:
                    runs["transformers"] = lambda: run_transformers(a, model, batch)
                for name, run in runs.items():
                    results.setdefault((name, batch), []).append(run())
                    print(name, batch, results[name, batch][-1], file=sys.stderr)
    read = statistics.median(reads)
    print(f"{a.shape}, {a.dtype}, {a.threads} threads, prompts of {a.prompt} tokens; memory is read at "
          f"{read / 1e9:.2f} GB/s")
    if a.described:
        print(f"llama.cpp: {a.described}")
    print_rates(a, results, read)


if __name__ == "__main__":
    main()
