#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the token IDs of public tiktoken and Tekken files with tiktoken's, and those of exports with Transformers'.

    python tests/oracle/public_tokenizers.py PROGRAM FOLDER [STRINGS]

FOLDER has any of the files below, which PyPI packages contain: llama3.model and llama4.model (llama-models),
gpt2.tiktoken and multilingual.tiktoken (openai-whisper), p50k.tiktoken, cl100k.tiktoken and o200k.tiktoken
(litellm), qwen.tiktoken (dashscope), tekken.json (mistral-common).  Encodes STRINGS random strings (default 3,000)
and a text of 1 MB with each; then trains one step and opens the checkpoint with AutoTokenizer.

    pip install tiktoken transformers
"""
import base64
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import tiktoken
import tiktoken_ext.openai_public as openai_public
import transformers

GPT2 = openai_public.r50k_pat_str
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)


def patterns():
    """tiktoken's own: its functions would download the ranks, so that is replaced."""
    kept = openai_public.load_tiktoken_bpe
    openai_public.load_tiktoken_bpe = lambda *_, **__: {}
    cl100k, o200k = openai_public.cl100k_base()["pat_str"], openai_public.o200k_base()["pat_str"]
    openai_public.load_tiktoken_bpe = kept
    return {"llama3.model": LLAMA3, "llama4.model": o200k, "gpt2.tiktoken": GPT2, "multilingual.tiktoken": GPT2,
            "p50k.tiktoken": GPT2, "cl100k.tiktoken": cl100k, "o200k.tiktoken": o200k, "qwen.tiktoken": QWEN,
            "tekken.json": None}


def reference(path, pattern):
    """Returns the encoding, and the ID of its first token."""
    if path.name == "tekken.json":
        file = json.loads(path.read_text())
        config, first = file["config"], file["config"]["default_num_special_tokens"]
        count = config["default_vocab_size"] - first
        ranks = {base64.b64decode(v["token_bytes"]): v["rank"] for v in file["vocab"][:count]}
        pattern = config["pattern"]
    else:
        rows = (line.split() for line in path.read_bytes().splitlines() if line)
        ranks, first = {base64.b64decode(a): int(b) for a, b in rows}, 0
    return tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={}), first


POOLS = ["abcXYZ'sStT redDvV lL", "  \n\r\t ", "0123456789\u0663\u0665", "\u00e9\u00c0\u00df\u017f\u00e4\u01fa\u0302",
         "\u6f22\u5b57\u304b\u306a\u30ab\ud55c\uae00", "\U0001f600\U0001f44d\U0001f3fd\u200d\u2708\ufe0f",
         "!?.,;:/\\-_()[]{}'\"", "\u01c5\u01c8\u02b0\u02e0\u00aa\u00ba", "\u0430\u0411\u0432\u0413",
         "\u00a0\u2003\u3000\x85", "\u0627\u0628\u0650\u0939\u093f\u0e01\u0e34"]


def random_text(rng):
    return "".join("".join(rng.choices(rng.choice(POOLS), k=rng.randint(1, 4))) for _ in range(rng.randint(1, 40)))


def encode(program, tokenizer, texts):
    data = b"".join(t.encode() + b"\0" for t in texts)
    out = subprocess.run([program, "tokenizer", "encode", "--tokenizer", tokenizer, "--null"], input=data,
                         stdout=subprocess.PIPE, check=True).stdout.decode()
    return [[int(i) for i in line.split()] for line in out.split("\n")[:len(texts)]]


def count_differences(name, texts, got, expected):
    assert len(got) == len(texts)
    different = [i for i, text in enumerate(texts) if expected(text) != got[i]]
    for i in different[:2]:
        print(f"{name}: {texts[i]!r}: {got[i]}, expected {expected(texts[i])}")
    return len(different)


def export(program, tokenizer, folder):
    text = folder / "text.txt"
    text.write_text("One step over a few words is enough to write a checkpoint.\n" * 40)
    (folder / "empty.toml").write_text("")
    model = ["n_layers=1", "dim=16", "n_heads=2", "n_kv_heads=1", "ffn_hidden=16"]
    subprocess.run([program, "train", folder / "empty.toml", f"job.dump_folder={folder}/run", f"data.tokenizer={tokenizer}",
                    f"training.dataset_path={text}", "training.steps=1", "training.seq_len=8", "checkpoint.enable=true", "checkpoint.interval=1",
                    "training.local_batch_size=1", "validation.enable=false", *("model." + m for m in model)],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "run/checkpoint/step-1"


def main():
    program, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3000
    failures = tried = 0
    for name, pattern in patterns().items():
        path = folder / name
        if not path.exists():
            print(f"{name}: not in {folder}")
            continue
        encoding, first = reference(path, pattern)
        rng = random.Random(20261124)
        texts = [random_text(rng) for _ in range(count)]
        texts.append("".join(random_text(rng) for _ in range(1 << 14)))

        def expected(text):
            text = unicodedata.normalize("NFC", text) if name == "qwen.tiktoken" else text
            return [first + i for i in encoding.encode_ordinary(text)]

        different = count_differences(name, texts, encode(program, path, texts), expected)
        with tempfile.TemporaryDirectory() as scratch:
            written = export(program, path, pathlib.Path(scratch))
            auto = transformers.AutoTokenizer.from_pretrained(written)
            ours = encode(program, written, texts)
            exported = count_differences(
                f"{name} exported", texts, ours,
                lambda text: auto.encode(text, add_special_tokens=False, split_special_tokens=True))
        print(f"{name}: {len(texts)} texts, {different} differ from tiktoken, {exported} exported differ from "
              f"Transformers")
        failures += different + exported
        tried += 1
    assert tried, "no file was found"
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
