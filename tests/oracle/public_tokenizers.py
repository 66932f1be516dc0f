#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the token IDs of public tokenizers with those of their own libraries, and of exports with Transformers'.

    python tests/oracle/public_tokenizers.py PROGRAM FOLDER [STRINGS [TEXT...]]

Reads every tokenizer in FOLDER.  PyPI packages contain the tiktoken files llama3.model and llama4.model
(llama-models), gpt2.tiktoken and multilingual.tiktoken (openai-whisper), p50k.tiktoken, cl100k.tiktoken and
o200k.tiktoken (litellm), qwen.tiktoken (dashscope); tekken*.json (mistral-common); tokenizer.json files
(litellm: Claude's, DeepSeek's); SentencePiece models (mistral-common), named *.model*.  The references are tiktoken,
tokenizers and sentencepiece.  Encodes STRINGS random strings (default 3,000), a text of 1 MB, and the TEXTs, which may
hold several documents separated by NUL; then trains one step and opens the checkpoint with AutoTokenizer.  Prints the
differences and a table.

    pip install tiktoken transformers sentencepiece
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

import sentencepiece
import tiktoken
import tiktoken_ext.openai_public as openai_public
import tokenizers
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
            "p50k.tiktoken": GPT2, "cl100k.tiktoken": cl100k, "o200k.tiktoken": o200k, "qwen.tiktoken": QWEN}


def by_ranks(ranks, pattern, first=0, form=None):
    encoding = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(text):
        ids = encoding.encode_ordinary(unicodedata.normalize(form, text) if form else text)
        return [first + i for i in ids] if first else ids
    return encode


def reference(path, pattern):
    """Returns the library's name, and its function from a text to IDs; None if no library reads the file."""
    if pattern:
        rows = (line.split() for line in path.read_bytes().splitlines() if line)
        form = "NFC" if path.name == "qwen.tiktoken" else None
        return "tiktoken", by_ranks({base64.b64decode(a): int(b) for a, b in rows}, pattern, 0, form)
    if path.suffix == ".json":
        file = json.loads(path.read_text())
        if "config" in file:
            config, first = file["config"], file["config"]["default_num_special_tokens"]
            rows = file["vocab"][:config["default_vocab_size"] - first]
            ranks = {base64.b64decode(row["token_bytes"]): row["rank"] for row in rows}
            return "tiktoken", by_ranks(ranks, config["pattern"], first)
        theirs = tokenizers.Tokenizer.from_file(str(path))
        theirs.encode_special_tokens = True
        return "tokenizers", lambda text: theirs.encode(text, add_special_tokens=False).ids
    if ".model" in path.name:
        return "sentencepiece", sentencepiece.SentencePieceProcessor(model_file=str(path)).encode
    return None, None


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


def compare_export(program, path, texts):
    """The number of texts for which AutoTokenizer gives other IDs; None without a tokenizer.json."""
    with tempfile.TemporaryDirectory() as scratch:
        written = export(program, path, pathlib.Path(scratch))
        if not (written / "tokenizer.json").exists():
            return None
        auto = transformers.AutoTokenizer.from_pretrained(written)
        added = [token.content for token in auto.added_tokens_decoder.values()]
        plain = [text for text in texts if not any(token in text for token in added)]
        return count_differences(
            f"{path.name} exported", plain, encode(program, written, plain),
            lambda text: auto.encode(text, add_special_tokens=False, split_special_tokens=True))


def main():
    program, folder = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2])
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3000
    rng, known, rows = random.Random(20261124), patterns(), []
    texts = [random_text(rng) for _ in range(count)]
    texts.append("".join(random_text(rng) for _ in range(1 << 14)))
    for path in sys.argv[4:]:
        texts += pathlib.Path(path).read_text().split("\0")
    for path in sorted(folder.iterdir()):
        library, expected = reference(path, known.get(path.name)) if path.is_file() else (None, None)
        if not library:
            continue
        different = count_differences(path.name, texts, encode(program, path, texts), expected)
        rows.append((path.name, library, different, compare_export(program, path, texts)))
        print(*rows[-1], flush=True)
    assert rows, "no file was found"
    print(f"\n{len(texts)} texts of {sum(len(t.encode()) for t in texts) / 1e6:.1f} MB; texts with different IDs:")
    print(f"{'tokenizer':40} {'library':14} {'library':>8} {'AutoTokenizer':>14}")
    for name, library, different, exported in rows:
        print(f"{name:40} {library:14} {different:8} {'not exported' if exported is None else exported:>14}")
    sys.exit(any(row[2] or row[3] for row in rows))


if __name__ == "__main__":
    main()
