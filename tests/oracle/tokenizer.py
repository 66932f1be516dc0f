#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token IDs with tiktoken and Hugging Face's tokenizers.

    python tests/oracle/tokenizer.py build/llamero LLAMA3.model TEXT...

encodes the texts, whole and by line, and 100,000 random strings: with Llama 3's file (which is not in
this repository), with a tokenizer.json trained on the first text, and with variants of it: GPT-2's
splitter, a custom pattern, ignore_merges.  Prints one line per comparison; fails if any differs.

    python tests/oracle/tokenizer.py build/llamero --golden tests/tokenizer/data TEXT...

trains a small vocabulary on the texts, and writes it as small.json and small/tokenizer.model, with the IDs of
some random strings in golden.json; tests/tokenizer/test_encoder.c reads them."""
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tiktoken
import tokenizers

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
           r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
RANDOM, SEED = 100_000, 20260101
SPACES = (" \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u1680\u2000\u2009\u200b\u2028\u2029"
          "\u202f\u205f\u3000\ufeff")
SUFFIXES = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'\u017f", "\u2019s", "'x", "'", "''ll"]
SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF),
           (0x600, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x3040, 0x30FF),
           (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x2160, 0x2188), (0x660, 0x669), (0xFF10, 0xFF19),
           (0x20000, 0x2A6DF)]
EMOJI = [(0x1F300, 0x1FAFF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF), (0xFE00, 0xFE0F),
         (0x200D, 0x200D)]
WORDS = ("the of and to in a is that It's DON'T we'Ll they'VE i'm int main(void) return "
         "<|mask|> --").split()


def between(rng, ranges):
    low, high = rng.choice(ranges)
    return chr(rng.randint(low, high))


def any_character(rng):
    while True:
        code = rng.randint(1, rng.choice([0x7F, 0x7FF, 0xFFFF, 0x10FFFF]))
        if not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def random_text(rng):
    """Concatenated pieces of every kind; most have a few characters, some are long."""
    combined = "\u00c5ngstr\u00f6m \ud55c\uad6d"
    kinds = (
        lambda: rng.choice(WORDS),
        lambda: " " + rng.choice(WORDS),
        lambda: "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5))),
        lambda: rng.choice(" \n\t") * rng.choice([1, 2, 3, 7, 120]),
        lambda: "".join(c.upper() if rng.random() < 0.5 else c for c in rng.choice(SUFFIXES)),
        lambda: str(rng.randint(0, 10 ** rng.randint(1, 12))),
        lambda: "".join(between(rng, SCRIPTS) for _ in range(rng.randint(1, 8))),
        lambda: "".join(between(rng, EMOJI) for _ in range(rng.randint(1, 4))),
        lambda: "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\r\n ")
                        for _ in range(rng.randint(1, 6))),
        lambda: "".join(any_character(rng) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice("eao\u0301\u4e2d") * rng.choice([1, 2, 3, 50, 150]),
        lambda: unicodedata.normalize(rng.choice(["NFD", "NFC"]), combined),
    )
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 9)))


def ours(program, file, texts):
    """The IDs of each text."""
    given = b"".join(t.encode() + b"\0" for t in texts)
    done = subprocess.run([program, "tokenizer", "encode", "--tokenizer", file, "--null"],
                          input=given, stdout=subprocess.PIPE, check=True)
    return [[int(i) for i in line.split()] for line in done.stdout.decode().splitlines()]


def plain(model):
    """A tokenizers.Tokenizer of our tokenizer.json without special tokens."""
    model = dict(model, added_tokens=[], post_processor=None)
    return tokenizers.Tokenizer.from_str(json.dumps(model))


def like_gpt2(model):
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return dict(model, pre_tokenizer=pre)


def own_pattern(model):
    """A splitter that llamero does not know (o200k's), so PCRE2 runs its pattern."""
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    start, end = r"[^\r\n\p{L}\p{N}]?", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    pattern = "|".join([start + upper + "*" + lower + "+" + end,
                        start + upper + "+" + lower + "*" + end, r"\p{N}{1,3}",
                        r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
    split, byte_level = model["pre_tokenizer"]["pretokenizers"]
    steps = [dict(split, pattern={"Regex": pattern}), byte_level]
    return dict(model, pre_tokenizer={"type": "Sequence", "pretokenizers": steps})


def whole_words(model):
    return dict(model, model=dict(model["model"], ignore_merges=True))


def letter_to_byte():
    own = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in own]
    return {**{chr(b): b for b in own}, **{chr(256 + i): b for i, b in enumerate(others)}}


def ranks_of(model):
    """tiktoken's ranks for a tokenizer.json: its tokens without the special ones."""
    byte_of, added = letter_to_byte(), {t["content"] for t in model["added_tokens"]}
    return {bytes(byte_of[c] for c in token): rank
            for token, rank in model["model"]["vocab"].items() if token not in added}


def read_ranks(path):
    lines = pathlib.Path(path).read_bytes().splitlines()
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, lines)}


def tiktoken_of(ranks):
    return tiktoken.Encoding("oracle", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})


def train(program, folder, size, texts):
    file = str(pathlib.Path(folder, "small.json"))
    subprocess.run([program, "tokenizer", "train", "--vocab-size", str(size), "--output", file,
                    *texts], check=True)
    return file, json.loads(pathlib.Path(file).read_text())


def compare(name, texts, got, want):
    wrong = [i for i in range(len(texts)) if got[i] != want[i]]
    size = sum(len(t.encode()) for t in texts)
    print(f"{name}: {len(texts)} strings, {size} bytes, {sum(map(len, want))} tokens, "
          f"{len(wrong)} mismatches", flush=True)
    for i in wrong[:5]:
        print(f"  {texts[i][:200]!r}\n  ours   {got[i][:40]}\n  theirs {want[i][:40]}")
        codes = sorted({ord(c) for c in texts[i] if ord(c) > 127})
        print("  " + " ".join(f"U+{c:04X} {unicodedata.category(chr(c))}" for c in codes[:12]))
    return len(wrong)


def check(program, llama3, paths):
    rng = random.Random(SEED)
    files = [pathlib.Path(p).read_bytes().decode(errors="replace").replace("\0", "") for p in paths]
    lines = [line for text in files for line in text.splitlines(keepends=True)]
    strings = [random_text(rng) for _ in range(RANDOM)]
    sets = {"texts": files, "lines": lines, "random": strings}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        file, model = train(program, folder, 8000, paths[:1])
        cases = [("Llama 3, tiktoken", llama3, tiktoken_of(read_ranks(llama3)).encode_ordinary)]
        for name, changed in (("llama3", model), ("gpt2", like_gpt2(model)),
                              ("whole words", whole_words(model)),
                              ("own pattern", own_pattern(model))):
            path = pathlib.Path(folder, name.replace(" ", "") + ".json")
            path.write_text(json.dumps(changed))
            theirs = plain(changed)
            cases.append((f"{name}, tokenizers", str(path),
                          lambda t, theirs=theirs: theirs.encode(t).ids))
        for name, path, encode in cases:
            for kind, texts in sets.items():
                bad += compare(f"{name}, {kind}", texts, ours(program, path, texts),
                               [encode(t) for t in texts])
    return bad != 0


def golden(program, folder, paths):
    rng = random.Random(SEED)
    file, model = train(program, folder, 1000, paths)
    ranks = ranks_of(model)
    pathlib.Path(folder, "small/tokenizer.model").write_bytes(
        b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items()))
    theirs, gpt2, by_rank = plain(model), plain(like_gpt2(model)), tiktoken_of(ranks)
    rows = []
    for text in (random_text(rng)[:60] for _ in range(120)):
        ids = {"llama3": theirs.encode(text).ids, "gpt2": gpt2.encode(text).ids,
               "tiktoken": by_rank.encode_ordinary(text)}
        rows.append(json.dumps({"text": text, **ids}, separators=(",", ":")))
    versions = {m: getattr(sys.modules[m], "__version__", "") for m in ("tiktoken", "tokenizers")}
    pathlib.Path(folder, "golden.json").write_text(
        json.dumps({"versions": versions})[:-1] + ',\n"strings": [\n' + ",\n".join(rows) + "\n]}\n")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if sys.argv[2] == "--golden":
        sys.exit(golden(sys.argv[1], sys.argv[3], sys.argv[4:]))
    sys.exit(check(sys.argv[1], sys.argv[2], sys.argv[3:]))
