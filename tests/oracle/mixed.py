#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token IDs with tiktoken, tokenizers and sentencepiece on a large mixed text.

    python tests/oracle/mixed.py build/llamero build/bench/tokenizer LLAMA3.model LLAMA2.model \\
        MEGABYTES TEXT...

generates that much text (English and code from the files, words of 24 scripts, emoji, long runs,
numbers, unusual spaces; seeded).  First times one core of each library and of llamero on the first
megabytes, alternated, in CPU seconds.  Then encodes all of the text in documents: with Llama 3's file
and its tokenizer.json, with Llama 2's file (including documents of invalid UTF-8) and its
tokenizer.json, and the first fifth with small models that have other models' pipelines.  Decoding
Llama 3's IDs must restore invalid UTF-8.  Prints one line per comparison; fails if any differs."""
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

import sentencepiece
import tokenizers

from pipelines import LLAMA3, PIPELINES, byte_level, pipeline, sequence, split
from sentences import EMOJI, ODD, SCRIPTS, SEED, SPACES, as_bytes, between, llama2_json, word
from tokenizer import letter_to_byte, read_ranks, tiktoken_of

CHUNK, RUNS = 4_000_000, 3


def pools(rng, paths):
    """Pieces of each kind, with their weight in the text."""
    files = [pathlib.Path(p).read_bytes().decode(errors="replace").replace("\0", "") for p in paths]
    cut = [text[at:at + 400] for text in files for at in range(0, len(text), 400)]
    def make(one, count=4000):
        return [one() for _ in range(count)]
    return {
        "files": (cut, 45),
        "scripts": (make(lambda: " ".join(word(rng) for _ in range(30))), 30),
        "emoji": (make(lambda: "".join(between(rng, EMOJI) for _ in range(rng.randint(1, 12)))), 5),
        "numbers": (make(lambda: " " + str(rng.randint(0, 10 ** rng.randint(1, 20)))), 5),
        "odd": (make(lambda: "".join(rng.choice(SPACES + ODD) for _ in range(6))), 5),
        "runs": (make(lambda: rng.choice("ea =-\n\t#\u4e2d\u0301\u2581") *
                      rng.choice([3, 10, 100, 100, 1000])), 2),
    }


def documents(rng, megabytes, paths):
    kinds, left = pools(rng, paths), int(megabytes * 1e6)
    names, weights = list(kinds), [w for _, w in kinds.values()]
    while left > 0:
        size, parts = rng.choice([10, 300, 3000, 3000, 10000, 10000, 100_000]), []
        while size > 0:
            parts.append(rng.choice(kinds[rng.choices(names, weights)[0]][0]))
            size -= len(parts[-1])
        left -= len("".join(parts).encode())
        yield "".join(parts)


def broken(rng, text):
    raw = bytearray(text.encode())
    for _ in range(1 + len(raw) // 200):
        raw[rng.randrange(len(raw))] = rng.choice([0xFF, 0xC0, 0xE2, 0x81, 0xED, 0xF5, 0xF0, 0x80])
    return bytes(raw)


def chunks(texts):
    part, size = [], 0
    for text in texts:
        part.append(text)
        size += len(as_bytes(text))
        if size > CHUNK:
            yield part
            part, size = [], 0
    if part:
        yield part


def given(texts):
    return b"".join(as_bytes(t) + b"\0" for t in texts)


def encode_raw(program, file, texts):
    done = subprocess.run([program, "tokenizer", "encode", "--tokenizer", file, "--null"],
                          input=given(texts), stdout=subprocess.PIPE, check=True)
    return done.stdout


def compare(name, program, file, texts, theirs):
    bad = count = size = tokens = 0
    begin = time.thread_time()
    for part in chunks(texts):
        got = encode_raw(program, file, part).split(b"\n")
        for text, line in zip(part, got, strict=False):
            want = theirs(text)
            tokens += len(want)
            if line != " ".join(map(str, want)).encode():
                bad += 1
                print(f"  {as_bytes(text)[:80]}" if bad < 4 else "", end="\n" if bad < 4 else "")
        count += len(part)
        size += sum(len(as_bytes(t)) for t in part)
    print(f"{name}: {count} documents, {size / 1e6:.1f} MB, {tokens} tokens, {bad} differences "
          f"({time.thread_time() - begin:.0f} s)", flush=True)
    return bad


def comes_back(name, program, file, texts):
    ids = encode_raw(program, file, texts)
    done = subprocess.run([program, "tokenizer", "decode", "--tokenizer", file, "--null"],
                          input=ids, stdout=subprocess.PIPE, check=True)
    bad = done.stdout != given(texts)
    print(f"{name}: {len(texts)} broken documents, {len(given(texts)) / 1e6:.1f} MB, decoded: "
          f"{'no' if bad else 'yes'}", flush=True)
    return bad


def llama3_json(path):
    """Llama 3's tokenizer.json, from its ranks: every split of a token is a merge."""
    ranks = read_ranks(path)
    letter = {byte: text for text, byte in letter_to_byte().items()}
    vocab = {"".join(letter[b] for b in token): rank for token, rank in ranks.items()}
    merges = []
    for token in sorted(ranks, key=ranks.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token))]
        cuts = [(a, b) for a, b in cuts if a in ranks and b in ranks]
        merges += sorted(cuts, key=lambda c: (ranks[c[0]], ranks[c[1]]))
    merges = [["".join(letter[x] for x in half) for half in pair] for pair in merges]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": None, "pre_tokenizer": sequence(split(LLAMA3), byte_level(False)),
            "post_processor": None, "decoder": byte_level(True),
            "model": {"type": "BPE", "dropout": None, "unk_token": None,
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                      "vocab": vocab, "merges": merges}}


def ours_seconds(bench, file, text):
    out = subprocess.run([bench, file, text], stdout=subprocess.PIPE, check=True, text=True).stdout
    return float(re.search(r"^text .* ([0-9.]+) s$", out, re.MULTILINE).group(1))


def time_both(name, bench, file, texts, theirs, folder):
    """Medians over alternated runs of ours and theirs."""
    path, seconds = str(pathlib.Path(folder, "timed")), ([], [])
    pathlib.Path(path).write_bytes(given(texts))
    for _ in range(RUNS):
        seconds[0].append(ours_seconds(bench, file, path))
        begin = time.thread_time()
        for text in texts:
            theirs(text)
        seconds[1].append(time.thread_time() - begin)
    size = sum(len(as_bytes(t)) for t in texts) / 1e6
    mine, other = map(statistics.median, seconds)
    print(f"{name}: {size:.1f} MB, ours {size / mine:.1f} MB/s, theirs {size / other:.2f} MB/s, "
          f"{other / mine:.1f} times (load {os.getloadavg()[0]:.1f})", flush=True)


def plain_encode(model):
    t = tokenizers.Tokenizer.from_str(json.dumps(model))
    t.encode_special_tokens = True
    return lambda text: t.encode(text, add_special_tokens=False).ids


def main(program, bench, llama3, llama2, megabytes, paths):
    rng = random.Random(SEED)
    texts = ["", " "] + list(documents(rng, megabytes, paths))
    raw = [broken(rng, t).replace(b"\0", b"\xff") for t in texts[2:200]]
    bad, timed = 0, next(chunks(texts))
    with tempfile.TemporaryDirectory() as folder:
        spm = sentencepiece.SentencePieceProcessor(model_file=llama2)
        cases = [("Llama 3, tiktoken", llama3, tiktoken_of(read_ranks(llama3)).encode_ordinary),
                 ("Llama 2, sentencepiece", llama2, spm.encode)]
        models = {"Llama 3": llama3_json(llama3), "Llama 2": llama2_json(llama2)}
        models.update({name: pipeline(name, paths, 8000) for name in PIPELINES
                       if name in ("qwen2", "deepseek_v3", "o200k", "falcon", "starcoder")})
        for name, model in models.items():
            file = str(pathlib.Path(folder, name + ".json"))
            pathlib.Path(file).write_text(json.dumps(model))
            cases.append((f"{name}.json, tokenizers", file, plain_encode(model)))
        for name, file, theirs in cases:
            time_both(name, bench, file, timed, theirs, folder)
        for name, file, theirs in cases:
            few = texts if name.startswith("Llama") else texts[:len(texts) // 5]
            more = raw if theirs == spm.encode else []
            bad += compare(name, program, file, few + more, theirs)
        bad += comes_back("Llama 3", program, llama3, raw)
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:5], float(sys.argv[5]), sys.argv[6:]))
