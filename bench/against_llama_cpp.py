#!/usr/bin/env python3
"""Prefill and decoding of Llamero, llama.cpp and Transformers with the same weights, alternated.

    python3 bench/against_llama_cpp.py [--python PYTHON] [--shape 124m|1b] [--dtype bf16|f32]
                                       [--rounds 3] [--results FILE] [--keep FOLDER]

PYTHON has llama-cpp-python, or torch and transformers, or all of them.  pip compiles the first for
this processor; other packages' wheels of llama.cpp may do without its newer instructions: compare
the list that is printed.  --llama-cpp FOLDER takes a llama-batched-bench instead.  The weights are
random.  Llamero and Transformers read them as a Hugging Face folder, llama.cpp the GGUF file that
`llamero convert` makes of it.

Each round runs every program once for each batch size: prompts of --prompt tokens, then --tokens
tokens after each.  Llamero reads the prompts of all texts, the others those of 8 if the batch is a
multiple of 8, llama-batched-bench one: the rest get copies of their keys and values.  Llamero also samples tokens and computes their log-
probabilities; the others compute logits, of which Transformers takes the largest.  --results keeps
the figures in a file and adds those of earlier runs, so that rounds can be run one at a time.

The bound of a decoding step is the longer of two times.  One reads the weights once (of the
embedding only the head's use of it) and each text's keys and values, the other multiplies; at the
bandwidth and FLOP/s that `llamero bench` measures in each round with as many threads.
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
PROMPTS_READ = 8  # by llama.cpp and Transformers
TRANSFORMERS = """
import json, sys, time, torch, transformers
folder, dtype, batch, read, prompt, tokens, threads = *sys.argv[1:3], *map(int, sys.argv[3:])
torch.set_num_threads(threads)
dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa")
with torch.inference_mode():
    def run(read, repeat, prompt, tokens):
        cache = transformers.DynamicCache(config=model.config)
        ids = torch.full((read, prompt), 300)
        begin = time.perf_counter()
        ids = model(ids, past_key_values=cache, logits_to_keep=1).logits.argmax(-1)
        prefill = time.perf_counter() - begin
        cache.batch_repeat_interleave(repeat)
        ids = ids.repeat_interleave(repeat, 0)
        begin = time.perf_counter()
        for _ in range(tokens):
            ids = model(ids, past_key_values=cache).logits.argmax(-1)
        return prefill, time.perf_counter() - begin
    run(1, 1, 64, 1)
    prefill, decode = run(read, batch // read, prompt, tokens)
versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
print(json.dumps([prefill / (read * prompt), decode / tokens, versions]))
"""
LLAMA_CPP = """
import json, sys, time, llama_cpp as c
gguf, kv, batch, read, prompt, tokens, threads = *sys.argv[1:3], *map(int, sys.argv[3:])
quiet = c.llama_log_callback(lambda level, text, data: None)
c.llama_log_set(quiet, None)
c.llama_backend_init()
model = c.llama_model_load_from_file(gguf.encode(), c.llama_model_default_params())
p = c.llama_context_default_params()
p.n_ctx, p.n_seq_max, p.kv_unified = batch * (prompt + tokens + 1), batch, False
p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = 2048, 512, threads, threads
p.type_k = p.type_v = {"f32": 0, "f16": 1, "bf16": 30}[kv]  # enum ggml_type
context = c.llama_init_from_model(model, p)
assert c.llama_n_ctx(context) >= p.n_ctx and c.llama_n_threads(context) == threads
memory, room = c.llama_get_memory(context), c.llama_batch_init(p.n_batch, 0, 1)

def decode(tokens):  # of (text, position, whether logits are computed)
    for i in range(0, len(tokens), p.n_batch):
        part = tokens[i:i + p.n_batch]
        room.n_tokens = len(part)
        for k, (text, position, logits) in enumerate(part):
            room.token[k], room.pos[k], room.logits[k] = 300 + text, position, logits
            room.n_seq_id[k], room.seq_id[k][0] = 1, text
        assert c.llama_decode(context, room) == 0
    c.llama_synchronize(context)

decode([(0, i, i == 63) for i in range(64)])
c.llama_memory_clear(memory, False)
begin = time.perf_counter()
decode([(t, i, i == prompt - 1) for t in range(read) for i in range(prompt)])
prefill = time.perf_counter() - begin
for t in range(read, batch):
    c.llama_memory_seq_cp(memory, t % read, t, -1, -1)
decode([(t, prompt, True) for t in range(batch)])  # this makes the copies
for t in range(batch):
    c.llama_memory_seq_rm(memory, t, prompt, -1)
begin = time.perf_counter()
for i in range(tokens):
    decode([(t, prompt + i, True) for t in range(batch)])
info = c.llama_print_system_info().decode().split("|")
print(json.dumps([prefill / (read * prompt), (time.perf_counter() - begin) / tokens,
                  f"llama-cpp-python {c.__version__}: " + ", ".join(x.split("=")[0].strip() for x in info[:-1])]))
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
    """Seconds of a prompt's token and of a decoding step, and what ran."""
    prompts = pathlib.Path(folder, "prompts.txt")
    prompts.write_text(("a" + " a" * (a.prompt - 1) + "\n") * batch)
    out = subprocess.run([a.binary, "generate", model, "--prompts", prompts, "--batch", str(batch),
                          "--max-tokens", str(a.tokens + 1), "--temperature", "0", "data.bos=false",
                          f"device.threads={a.threads}"],
                         check=True, capture_output=True, text=True).stderr
    found = re.search(r"read (\d+) tokens of \d+ texts in ([\d.]+) s and generated (\d+) in ([\d.]+)", out)
    assert int(found[1]) == batch * a.prompt and int(found[3]) == batch * (a.tokens + 1), found[0]
    return float(found[2]) / int(found[1]), float(found[4]) / a.tokens, a.kernels


def run_python(a, program, model, dtype, batch):
    read = PROMPTS_READ if batch % PROMPTS_READ == 0 else batch
    out = subprocess.run([a.python, "-c", program, model, dtype] +
                         list(map(str, (batch, read, a.prompt, a.tokens, a.threads))),
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def run_batched_bench(a, gguf, kv, batch):
    program = pathlib.Path(a.llama_cpp, "llama-batched-bench")
    shared = ["-pps"] if batch > PROMPTS_READ else []
    out = subprocess.run([program, "-m", gguf, "-c", str(batch * (a.prompt + a.tokens)), "-b", "2048",
                          "-ub", "512", "-npp", str(a.prompt), "-ntg", str(a.tokens), "-npl", str(batch),
                          "-t", str(a.threads), "-ctk", kv, "-ctv", kv, "--output-format", "jsonl"] + shared,
                         check=True, capture_output=True, text=True)
    line = next(json.loads(s) for s in out.stdout.splitlines() if s.startswith("{"))
    info = next((s for s in out.stderr.splitlines() if "system_info" in s), "llama-batched-bench")
    return line["t_pp"] / (a.prompt * (1 if shared else batch)), line["t_tg"] / a.tokens, info


def choose_programs(a, model, gguf, folder):
    """Functions of the batch size."""
    kv = a.dtype if a.dtype == "f32" else a.kv
    programs = {"llamero": lambda batch: run_llamero(a, model, batch, folder)}
    if a.llama_cpp:
        programs["llama.cpp"] = lambda batch: run_batched_bench(a, gguf, kv, batch)
    for name, module, run in (
            ("llama.cpp", "llama_cpp", lambda batch: run_python(a, LLAMA_CPP, gguf, kv, batch)),
            ("transformers", "transformers", lambda batch: run_python(a, TRANSFORMERS, model, a.dtype, batch))):
        if a.python and name not in programs:
            find = f"import importlib.util as u, sys; sys.exit(u.find_spec('{module}') is None)"
            if subprocess.run([a.python, "-c", find]).returncode == 0:
                programs[name] = run
    return {name: run for name, run in programs.items() if name in (a.programs or programs)}


def work_of_step(a, batch):
    """Bytes that a decoding step reads and its FLOPs: weights, and the keys and values of every text's
    context, at its mean length."""
    s = SHAPES[a.shape]
    elements = s["vocab"] * s["width"]  # the head
    for name, shape in tensors(s):
        elements += shape[0] * shape[-1] if len(shape) == 2 and "layers" in name else 0
    context, head = a.prompt + a.tokens / 2, s["width"] // s["heads"]
    keys = batch * context * s["blocks"] * 2 * head * s["kv_heads"]
    flops = 2 * elements * batch + 2 * keys * s["heads"] / s["kv_heads"]
    return BYTES[a.dtype] * (elements + keys), flops


def measure_machine(a):
    """Bytes/s read from memory, FLOP/s, and the processor."""
    out = subprocess.run([a.binary, "bench", "--json", "--rounds", "1", "model.dim=64", "model.n_layers=1",
                          "model.n_heads=1", "model.n_kv_heads=1", "model.ffn_hidden=64",
                          "model.vocab_size=256", "training.seq_len=64", f"device.threads={a.threads}"],
                         check=True, capture_output=True, text=True).stdout
    found = json.loads(out)
    a.kernels = f"{found['processor']}, kernels {found['kernels']}"
    return found["ceilings"]["bytes"]["read"]["all"], found["ceilings"]["flops"][a.dtype]["all"], a.kernels


def print_figures(a, figures):
    """Of lists [program, batch, seconds of a prompt's token, seconds of a step, what ran]; of the program
    "machine": bytes/s and FLOP/s."""
    bandwidth, peak = (statistics.median(f[i] for f in figures if f[0] == "machine") for i in (2, 3))
    runs = [f for f in figures if f[0] != "machine"]
    print(f"{a.shape}, {a.dtype}, {a.threads} threads, prompts of {a.prompt} tokens: minimum, median, maximum.  "
          f"Memory is read at {bandwidth / 1e9:.1f} GB/s, registers multiply at {peak / 1e9:.0f} GFLOP/s")
    for name, what in {run[0]: run[4] for run in runs}.items():
        print(f"{name}: {what}")
    for batch in sorted({run[1] for run in runs}):
        read, flops = work_of_step(a, batch)
        bound = max(read / bandwidth, flops / peak)
        print(f"{batch} at a time: a step reads {read / 1e6:.0f} MB ({1e3 * read / bandwidth:.1f} ms) and computes "
              f"{flops / 1e9:.1f} GFLOP ({1e3 * flops / peak:.1f} ms): at most {batch / bound:.0f} tokens/s")
        for name in dict.fromkeys(run[0] for run in runs if run[1] == batch):
            times = [run[2:4] for run in runs if run[:2] == [name, batch]]
            prefill, decode = sorted(1 / t[0] for t in times), sorted(batch / t[1] for t in times)
            share = statistics.median(decode) * bound / batch
            print("  %-12s %d rounds, prefill %.0f / %.0f / %.0f tokens/s, decode %.1f / %.1f / %.1f tokens/s, "
                  "%.1f %% of the bound" % (name, len(times), prefill[0], statistics.median(prefill), prefill[-1],
                                            decode[0], statistics.median(decode), decode[-1], 100 * share))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--python", help="with llama-cpp-python, torch and transformers, or some of them")
    p.add_argument("--llama-cpp", metavar="FOLDER", help="has a llama-batched-bench")
    p.add_argument("--programs", nargs="+", help="only these: llamero, llama.cpp, transformers")
    p.add_argument("--shape", choices=SHAPES, default="124m")
    p.add_argument("--dtype", choices=BYTES, default="bf16")
    p.add_argument("--kv", default="f16", help="llama.cpp's keys and values with bf16 weights")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 8, 64])
    p.add_argument("--prompt", type=int, default=1024)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--results", metavar="FILE", help="adds rounds to this file, and prints all that it has")
    p.add_argument("--keep", metavar="FOLDER", help="where models are kept between runs")
    p.add_argument("--binary", default=ROOT / "build/llamero")
    a = p.parse_args()
    key = [a.shape, a.dtype, a.threads, a.prompt, a.tokens]
    results = pathlib.Path(a.results or os.devnull)
    earlier = [json.loads(s) for s in results.read_text().splitlines()] if results.exists() else []
    figures = [f[5:] for f in earlier if f[:5] == key]

    def note(figure):
        figures.append(figure)
        print(*figure, file=sys.stderr)
        with results.open("a") as file:
            file.write(json.dumps(key + figure) + "\n")

    with tempfile.TemporaryDirectory() as scratch:
        programs = choose_programs(a, *write_model(a, a.keep or scratch), scratch)
        for _ in range(a.rounds):
            note(["machine", 0, *measure_machine(a)])
            for batch in a.batch:
                for name, run in programs.items():
                    note([name, batch, *run(batch)])
    print_figures(a, figures)


if __name__ == "__main__":
    main()
