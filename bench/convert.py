#!/usr/bin/env python3
"""Times `llamero convert` on a large model: Hugging Face -> native -> torch DCP.

    python3 bench/convert.py FOLDER [--binary build/llamero] [--layers 18] [--dtype float32]

Makes a model of Llama 3 8B's shapes in FOLDER, with --layers blocks in --dtype: 20 GB are 18 blocks in
float32 or 41 in bfloat16.  FOLDER needs space for two such models (three in bfloat16, because a run's
weights are float32).  Then it times, each with its input evicted from the page cache: `cp` of the model,
file by file with fsync; its conversion to a run; and the conversion of that run to a directory of
torch.distributed.checkpoint in the model's dtype.  Each input is deleted after its last use.

Memory is sampled from /proc/PID/status every 20 ms: the process's own (RssAnon), mapped file pages
(RssFile), which the kernel can reclaim, and the peak of both together (VmHWM).  Rates are bytes of the
written model per second.  Prints one JSON object.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import time

BYTES = {"float32": 4, "bfloat16": 2}
NAMES = {"float32": "F32", "bfloat16": "BF16"}
SHARD = 5 * 10 ** 9
WIDTH, HIDDEN, KEYS, VOCABULARY = 4096, 14336, 1024, 128256


def tensors(layers):
    yield "model.embed_tokens.weight", [VOCABULARY, WIDTH]
    for i in range(layers):
        for name, shape in {
                "input_layernorm": [WIDTH], "self_attn.q_proj": [WIDTH, WIDTH],
                "self_attn.k_proj": [KEYS, WIDTH], "self_attn.v_proj": [KEYS, WIDTH],
                "self_attn.o_proj": [WIDTH, WIDTH], "post_attention_layernorm": [WIDTH],
                "mlp.gate_proj": [HIDDEN, WIDTH], "mlp.up_proj": [HIDDEN, WIDTH],
                "mlp.down_proj": [WIDTH, HIDDEN]}.items():
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", [WIDTH]
    yield "lm_head.weight", [VOCABULARY, WIDTH]


def size_of(shape, each):
    for n in shape:
        each *= n
    return each


def random_values(each):
    """Random values of `each` bytes, with magnitudes of at most 1."""
    block = bytearray(os.urandom(1 << 26))
    block[each - 1::each] = block[each - 1::each].translate(
        bytes((0x3c | byte & 0x80) - (byte & 1) for byte in range(256)))
    return bytes(block)


def make(folder, layers, dtype):
    folder.mkdir(parents=True)
    each, block = BYTES[dtype], random_values(BYTES[dtype])
    files, used = [[]], 0
    for name, shape in tensors(layers):
        size = size_of(shape, each)
        if used + size > SHARD:
            files, used = files + [[]], 0
        files[-1].append((name, shape, size))
        used += size
    file_of, total = {}, 0
    for k, rows in enumerate(files):
        file, at, head = f"model-{k + 1:05}-of-{len(files):05}.safetensors", 0, {}
        for name, shape, size in rows:
            head[name] = {"dtype": NAMES[dtype], "shape": shape, "data_offsets": [at, at + size]}
            file_of[name], at = file, at + size
        text = json.dumps(head).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for left in range(at, 0, -len(block)):
                out.write(block[:left])
            out.flush()
            os.fsync(out.fileno())
        total += at
    index = {"metadata": {"total_size": total}, "weight_map": file_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": layers,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": VOCABULARY,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
        "tie_word_embeddings": False, "torch_dtype": dtype}))


def evict(folder):
    """Evicts the files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def total_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def copy(folder, copied):
    """Times cp, one file at a time, which needs space for one file only."""
    evict(folder)
    seconds = 0.0
    for path in sorted(folder.rglob("*")):
        begin = time.monotonic()
        subprocess.run(["cp", path, copied], check=True)
        with open(copied, "rb") as file:
            os.fsync(file.fileno())
        seconds += time.monotonic() - begin
        copied.unlink()
    return {"seconds": round(seconds, 1), "MB_per_s": round(total_bytes(folder) / seconds / 1e6, 1)}


def sample_memory(process):
    peaks = {"VmHWM": 0, "RssAnon": 0, "RssFile": 0}
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for key, value in re.findall(r"^(\w+):\s+(\d+) kB$", status, re.M):
            if key in peaks:
                peaks[key] = max(peaks[key], int(value))
        time.sleep(0.02)
    return peaks


def convert(binary, source, to, target, *more):
    evict(source)
    begin = time.monotonic()
    process = subprocess.Popen([binary, "convert", source, to, "--to", target, *more],
                               stdout=subprocess.PIPE)
    peaks = sample_memory(process)
    process.communicate()
    if process.returncode:
        sys.exit(f"llamero convert: exit code {process.returncode}")
    seconds = time.monotonic() - begin
    written = total_bytes(to)
    return {"seconds": round(seconds, 1), "bytes": written,
            "MB_per_s": round(written / seconds / 1e6, 1),
            **{f"{key}_MB": round(value / 1024, 1) for key, value in peaks.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--binary", default="build/llamero")
    parser.add_argument("--layers", type=int, default=18)
    parser.add_argument("--dtype", choices=BYTES, default="float32")
    a = parser.parse_args()
    source, native, dcp = (a.folder / name for name in ("hf", "native", "dcp"))
    result = {"layers": a.layers, "dtype": a.dtype,
              "largest_tensor_MB": round(VOCABULARY * WIDTH * BYTES[a.dtype] / 2 ** 20, 1)}

    def report(key, value):
        result[key] = value
        print(f"{key}: {value}", file=sys.stderr, flush=True)

    make(source, a.layers, a.dtype)
    report("bytes", total_bytes(source))
    report("cp", copy(source, a.folder / "copy"))
    report("native", convert(a.binary, source, native, "native"))
    shutil.rmtree(source)
    report("dcp", convert(a.binary, native, dcp, "dcp", "--dtype", a.dtype))
    shutil.rmtree(native)
    shutil.rmtree(dcp)
    json.dump(result, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
