#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token IDs with llama.cpp's, for the pre-tokenizers that GGUF files name.

    python tests/oracle/gguf_tokenizers.py PROGRAM STRINGS TEXT... [--files TOKENIZER...]

trains a small vocabulary on the texts for each pipeline of pipelines.py, and a checkpoint of one step with it;
converts that to GGUF, and encodes STRINGS random strings and the texts in llama.cpp.  TOKENIZER is a tokenizer of a
published model.  Prints a line for each, with the name in tokenizer.ggml.pre or the reason for the refusal; fails if
one differs whose conversion does not warn that llama.cpp will not normalize text.

    pip install tokenizers gguf xllamacpp    (0.23.3, 0.19.0, 2026.10.11549)
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import xllamacpp

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pipelines import PIPELINES, pipeline
from public_tokenizers import export
from sentences import SEED, encode, mixed

def texts_of(count, paths):
    rng = random.Random(SEED)
    made = [text for path in paths for text in pathlib.Path(path).read_text().splitlines() if text][:count]
    return made + [mixed(rng)[:200].replace("\0", "") for _ in range(count)]


def tokens_in_llama_cpp(path, texts):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.warmup, params.n_gpu_layers = 64, False, 0
    params.cpuparams.n_threads = 2
    server = xllamacpp.Server(params)

    def tokens(text):
        body = json.dumps(dict(content=text, add_special=False, parse_special=False)).encode()
        request = urllib.request.Request(server.listening_address + "/tokenize", body,
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]

    return [tokens(text) for text in texts]


def check(program, name, tokenizer, texts):
    with tempfile.TemporaryDirectory() as folder:
        step, path = export(program, tokenizer, pathlib.Path(folder)), folder + "/model.gguf"
        done = subprocess.run([program, "convert", step, path, "--to", "gguf"], capture_output=True, text=True)
        if done.returncode:
            print(f"{name:14} refused: {done.stderr.strip().split(': ')[-1]}", flush=True)
            return 0
        pre = gguf.GGUFReader(path).get_field("tokenizer.ggml.pre").contents()
        want, got = encode(program, tokenizer, texts), tokens_in_llama_cpp(path, texts)
    wrong = [i for i in range(len(texts)) if got[i] != want[i]]
    warned = "llama.cpp" in done.stderr
    print(f"{name:14} {pre:12} {len(texts)} texts, {len(wrong)} differ{', as a warning says' if warned else ''}",
          flush=True)
    for i in wrong[:0 if warned else 2]:
        print(f"  {texts[i]!r}\n  ours      {want[i][:40]}\n  llama.cpp {got[i][:40]}")
    return 0 if warned else len(wrong)


def main(program, count, *more):
    at = more.index("--files") if "--files" in more else len(more)
    paths, files = list(more[:at]), more[at + 1:]
    texts, bad = texts_of(int(count), paths), 0
    with tempfile.TemporaryDirectory() as folder:
        for name in PIPELINES:
            file = pathlib.Path(folder, "tokenizer.json")
            file.write_text(json.dumps(pipeline(name, paths, 2000)))
            bad += check(program, name, str(file), texts)
    for file in files:
        bad += check(program, os.path.basename(file), file, texts)
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
