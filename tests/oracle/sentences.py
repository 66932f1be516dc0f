#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token IDs and decoded texts with sentencepiece and Hugging Face's tokenizers.

    python tests/oracle/sentences.py build/llamero LLAMA2.model MEGABYTES [TEXT...]

encodes that many megabytes of mixed text (the given texts, 24 scripts, emoji, code, long runs, invalid
UTF-8) with Llama 2's file (which is not in this repository) and with small models trained here, which
use different options of a model file; decodes the results, and random IDs.  The same for tokenizer.json
files: the variants of Llama 2's in use, with added tokens, with patterns.  Prints one line per
comparison; fails if any differs.

    python tests/oracle/sentences.py build/llamero --golden tests/tokenizer/data TEXT...

writes the small models and the libraries' results for some texts, for the tests in C."""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import sentencepiece
import tokenizers

SEED = 20260101
SCRIPTS = [(0x41, 0x7A), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x587),
           (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF),
           (0xA80, 0xAFF), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xE00, 0xE7F),
           (0xF00, 0xFFF), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x1780, 0x17FF),
           (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x20000, 0x2A6DF)]
EMOJI = [(0x1F300, 0x1FAFF), (0x2600, 0x27BF), (0x1F1E6, 0x1F1FF), (0xFE00, 0xFE0F),
         (0x200D, 0x200D)]
SPACES = " \t\n\r\x0b\x0c\xa0\u1680\u2003\u200b\u2028\u202f\u3000\u2581\ufeff"
ODD = "\u2581\ufb01\uff21\u00bd\u2460\u212b\ufdfa\u0301\ufffd\u00ad\u200e\x01\x7f"
WORDS = ("the of and to in a is that It's DON'T int main(void) { return 0; } for (i = 0; i < n; i++)"
         " x += 1; def f(self): self.x == None <s> </s> <unk> <mask> <sep> <0x0A> [INST] the").split()


def between(rng, ranges):
    return chr(rng.randint(*rng.choice(ranges)))


def word(rng):
    low, high = rng.choice(SCRIPTS)
    middle = rng.randint(low, high)
    return "".join(chr(min(max(middle + rng.randint(-20, 20), low), high))
                   for _ in range(rng.randint(1, 9)))


def any_character(rng):
    code = rng.randint(1, rng.choice([0x7F, 0x7FF, 0xFFFF, 0x10FFFF]))
    return "\ufffe" if 0xD800 <= code <= 0xDFFF else chr(code)


def mixed(rng):
    kinds = (
        lambda: rng.choice(WORDS),
        lambda: " " + rng.choice(WORDS),
        lambda: " " + word(rng),
        lambda: " ".join(word(rng) for _ in range(rng.randint(1, 12))),
        lambda: "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5))),
        lambda: rng.choice(" \n\t-=") * rng.choice([1, 2, 3, 7, 120]),
        lambda: str(rng.randint(0, 10 ** rng.randint(1, 12))),
        lambda: "".join(between(rng, EMOJI) for _ in range(rng.randint(1, 4))),
        lambda: "".join(rng.choice(ODD) for _ in range(rng.randint(1, 4))),
        lambda: "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\r\n ")
                        for _ in range(rng.randint(1, 6))),
        lambda: "".join(any_character(rng) for _ in range(rng.randint(1, 6))),
        lambda: rng.choice("eao\u0301\u4e2d\u2581") * rng.choice([1, 2, 3, 50, 150]),
    )
    return "".join(rng.choice(kinds)() for _ in range(rng.randint(1, 30)))


def broken(rng):
    """A text's bytes, with some changed, removed or truncated."""
    raw = bytearray(mixed(rng).encode())
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(raw))
        if rng.random() < 0.5:
            raw[at] = rng.choice([0xFF, 0xC0, 0xE2, 0x96, 0x81, 0xED, 0xA0, 0xF5, 0xF0, 0x80])
        else:
            del raw[at]
        if not raw:
            raw = bytearray(b"\xff")
    return bytes(raw).replace(b"\0", b"\xfe")


def corpus(rng, megabytes, paths):
    """Strings, most of them short: half from the texts, if given, the rest generated."""
    made, left = [], int(megabytes * 1e6)
    for path in paths:
        text = pathlib.Path(path).read_bytes().decode(errors="replace").replace("\0", "")
        at, most = 0, int(megabytes * 0.5e6 / len(paths))
        while at < len(text) and most > 0:
            n = rng.choice([1, 20, 80, 400, 400, 3000])
            made.append(text[at:at + n])
            size = len(made[-1].encode())
            at, most, left = at + n, most - size, left - size
    while left > 0:
        made.append(mixed(rng))
        left -= len(made[-1].encode())
    for c in "a ", " ", "\u2581", "\n", "\u4e2d\u6587", "ab", "=":
        made.append(c * 20000)
    return [""] + made


def as_bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def encode(program, file, texts, *options):
    done = subprocess.run([program, "tokenizer", "encode", "--tokenizer", file, "--null", *options],
                          input=b"".join(as_bytes(t) + b"\0" for t in texts),
                          stdout=subprocess.PIPE, check=True)
    return [[int(i) for i in line.split()] for line in done.stdout.decode().splitlines()]


def decode(program, file, lists):
    """Decodes lists of IDs: one line each as input, each text ends in NUL."""
    lines = "".join(" ".join(map(str, ids)) + "\n" for ids in lists)
    done = subprocess.run([program, "tokenizer", "decode", "--tokenizer", file, "--null"],
                          input=lines.encode(), stdout=subprocess.PIPE, check=True)
    return done.stdout.split(b"\0")[:-1]


def compare(name, given, got, want):
    wrong = [i for i in range(len(given)) if got[i] != want[i]]
    size = sum(len(as_bytes(t)) if isinstance(t, (str, bytes)) else len(t) for t in given)
    print(f"{name}: {len(given)} of {size / 1e6:.2f} M, {len(wrong)} differences", flush=True)
    for i in wrong[:3]:
        print(f"  {given[i][:100]!r}\n  ours   {got[i][:40]}\n  theirs {want[i][:40]}")
    return len(wrong) + (len(got) != len(given))


def random_ids(rng, size, count):
    """Random lists of IDs, which no text encodes to; without IDs that contain a NUL byte."""
    return [[rng.choice([rng.randrange(size), rng.randrange(min(size, 270))])
             for _ in range(rng.randint(0, 12))] for _ in range(count)]


def without_nul(lists, bad):
    return [[i for i in ids if i not in bad] for ids in lists]


def check_model(program, name, file, texts, raw, rng):
    theirs = sentencepiece.SentencePieceProcessor(model_file=file)
    want = [theirs.encode(t) for t in texts]
    bad = compare(f"{name}, texts", texts, encode(program, file, texts), want)
    bad += compare(f"{name}, broken UTF-8", raw, encode(program, file, raw),
                   [theirs.encode(t) for t in raw])
    nul = {i for i in range(theirs.vocab_size()) if "\0" in theirs.id_to_piece(i)
           or theirs.id_to_piece(i) == "<0x00>"}
    lists = without_nul(want[:20000] + random_ids(rng, theirs.vocab_size(), 20000), nul)
    back = [t.encode() for t in theirs.decode(lists)]
    return bad + compare(f"{name}, ids", lists, decode(program, file, lists), back)


def learn_models(folder, paths, size=600):
    """Small BPE models with different options of a model file."""
    common = {"input": ",".join(paths), "model_type": "bpe", "vocab_size": size,
              "character_coverage": 0.99, "minloglevel": 2, "num_threads": 2,
              "max_sentence_length": 20000, "input_sentence_size": 4000}
    options = {
        "identity": {"normalization_rule_name": "identity", "byte_fallback": True,
                     "remove_extra_whitespaces": False, "split_digits": True,
                     "allow_whitespace_only_pieces": True},
        "nfkc": {"normalization_rule_name": "nmt_nfkc"},
        "folded": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True,
                   "add_dummy_prefix": False},
        "defined": {"normalization_rule_name": "nfkc", "byte_fallback": True,
                    "remove_extra_whitespaces": False,
                    "user_defined_symbols": ["<mask>", "<sep>", "\u2581\u2581", "the", "\ufb01"],
                    "control_symbols": ["[INST]"], "bos_id": 3, "eos_id": 1, "unk_id": 2},
        "words": {"normalization_rule_name": "identity", "split_by_whitespace": False,
                  "add_dummy_prefix": False, "remove_extra_whitespaces": False,
                  "unk_surface": "?!"},
    }
    files = {}
    for name, more in options.items():
        prefix = str(pathlib.Path(folder, name))
        sentencepiece.SentencePieceTrainer.train(model_prefix=prefix, **common, **more)
        pathlib.Path(prefix + ".vocab").unlink()
        files[name] = prefix + ".model"
    return files


RULES = ["FB01\t66 69", "FF21\t41", "BD\t20 31 2F 32", "A0\t20", "AD\t", "41 30A\tC5",
         "2581\t20", "200B\t"]


def golden(folder, paths):
    """Minimal models, and the library's results."""
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as work:
        rules = pathlib.Path(work, "rules.tsv")
        rules.write_text("".join(rule + "\n" for rule in RULES))
        common = {"input": ",".join(paths), "model_type": "bpe", "minloglevel": 2,
                  "input_sentence_size": 2000, "character_coverage": 0.98}
        own = {"normalization_rule_tsv": str(rules)}
        options = {
            "sentence_bytes": {"vocab_size": 420, "byte_fallback": True,
                               "normalization_rule_name": "identity",
                               "remove_extra_whitespaces": False},
            "sentence_mapped": {"vocab_size": 150, "unk_surface": "?!", **own},
            "sentence_defined": {"vocab_size": 160, "remove_extra_whitespaces": False,
                                 "user_defined_symbols": ["<mask>", "\u2581\u2581", "the"],
                                 "control_symbols": ["[INST]"], "add_dummy_prefix": False, **own},
        }
        rows = []
        for name, more in options.items():
            prefix = str(pathlib.Path(folder, name))
            sentencepiece.SentencePieceTrainer.train(model_prefix=prefix, **common, **more)
            pathlib.Path(prefix + ".vocab").unlink()
            theirs = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
            texts = [as_bytes(mixed(rng)[:60]) for _ in range(40)] + [broken(rng)[:60] for _ in
                                                                      range(20)]
            for raw in texts + [b"", b" ", b"  a  b ", b" \xc2\xa0x", b"the  <mask>", b"ab</s>"]:
                ids = theirs.encode(raw)
                rows.append({"model": name, "hex": raw.hex(), "ids": ids,
                             "text": theirs.decode(ids).encode().hex()})
            for ids in random_ids(rng, theirs.vocab_size(), 40):
                rows.append({"model": name, "ids": ids, "text": theirs.decode(ids).encode().hex()})
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        pathlib.Path(folder, "sentences.json").write_text(
            f'{{"versions": {{"sentencepiece": "{sentencepiece.__version__}"}},\n'
            f'"rows": [\n{lines}\n]}}\n')
    return 0


def llama2_json(llama2):
    """Llama 2's tokenizer.json, converted from its model as the libraries do."""
    theirs = sentencepiece.SentencePieceProcessor(model_file=llama2)
    size = theirs.vocab_size()
    pieces = [theirs.id_to_piece(i) for i in range(size)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces[259:]:
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        cuts = [c for c in cuts if c[0] in vocab and c[1] in vocab]
        merges += sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]]))
    added = [added_token(i, pieces[i]) for i in range(3)]
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    normalizer = {"type": "Sequence",
                  "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, space]}
    decoders = [{"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"},
                {"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    template = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A",
                                                                             "type_id": 0}}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": None,
            "post_processor": {"type": "TemplateProcessing", "single": template, "pair": template,
                               "special_tokens": {"<s>": {"id": "<s>", "ids": [1],
                                                          "tokens": ["<s>"]}}},
            "decoder": {"type": "Sequence", "decoders": decoders},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>",
                      "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": vocab, "merges": [list(m) for m in merges]}}


def added_token(number, content, **more):
    return {"id": number, "content": content, "single_word": False, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True, **more}


def variants(model):
    """The variants of tokenizer.json in use."""
    def metaspace(scheme, split):
        return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme,
                "split": split}
    steps, vocab = model["decoder"]["decoders"], model["model"]["vocab"]
    replaced = model["normalizer"]["normalizers"][1]
    found = [added_token(32000, "<mask>", special=False),
             added_token(vocab["the"], "the", special=False, lstrip=True),
             added_token(vocab["\u4e2d"], "\u4e2d", special=False, rstrip=True, normalized=True),
             added_token(32003, "<mask>x", special=True)]
    few = {piece: i for piece, i in vocab.items()
           if not (len(piece) == 1 and ord(piece) > 127)}
    kept = [m for m in model["model"]["merges"]
            if m[0] in few and m[1] in few and "".join(m) in few]
    yield "llama2", model
    for scheme in "first", "always", "never":
        yield f"metaspace {scheme}", dict(model, normalizer=None,
                                          pre_tokenizer=metaspace(scheme, False))
    yield "metaspace split", dict(model, normalizer=None, pre_tokenizer=metaspace("always", True),
                                  decoder=metaspace("always", True))
    whole = dict(model["model"], ignore_merges=True)
    yield "whole words", dict(model, normalizer=None, pre_tokenizer=metaspace("first", True),
                              model=whole)
    yield "gemma", dict(model, normalizer=replaced, decoder={"type": "Sequence",
                                                             "decoders": steps[:3]},
                        pre_tokenizer={"type": "Split", "pattern": {"String": " "},
                                       "behavior": "MergedWithPrevious", "invert": False})
    yield "added", dict(model, normalizer=None, pre_tokenizer=metaspace("first", False),
                        added_tokens=model["added_tokens"] + found)
    yield "added, prepended", dict(model, added_tokens=model["added_tokens"] + found[:2])
    for fuse in True, False:
        gaps = dict(model["model"], vocab=few, merges=kept, fuse_unk=fuse)
        yield f"gaps, fuse {fuse}", dict(model, model=gaps)
    yield "gaps, no bytes", dict(model, normalizer=None, pre_tokenizer=metaspace("always", False),
                                 model=dict(model["model"], vocab=few, merges=kept,
                                            byte_fallback=False))
    yield "no bytes", dict(model, normalizer=None, pre_tokenizer=metaspace("always", True),
                           model=dict(model["model"], byte_fallback=False, fuse_unk=False))


def check_json(program, name, model, texts, rng, folder):
    file = str(pathlib.Path(folder, "tokenizer.json"))
    pathlib.Path(file).write_text(json.dumps(model))
    theirs = tokenizers.Tokenizer.from_file(file)
    theirs.encode_special_tokens = True
    want = [theirs.encode(t, add_special_tokens=False).ids for t in texts]
    bad = compare(f"{name}, tokenizers, texts", texts, encode(program, file, texts), want)
    nul = {i for i in range(theirs.get_vocab_size()) if (theirs.id_to_token(i) or "\0") == "<0x00>"}
    missing = {i for i in range(33000) if theirs.id_to_token(i) is None}
    lists = without_nul(want[:20000] + random_ids(rng, 32000, 20000), nul | missing)
    back = [theirs.decode(ids, skip_special_tokens=False).encode() for ids in lists]
    return bad + compare(f"{name}, tokenizers, ids", lists, decode(program, file, lists), back)


def check(program, llama2, megabytes, paths):
    rng = random.Random(SEED)
    texts = corpus(rng, megabytes, paths)
    few = corpus(rng, megabytes / 10, paths)
    raw = [broken(rng) for _ in range(20000)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        files = learn_models(folder, paths)
        bad += check_model(program, "Llama 2, sentencepiece", llama2, texts, raw, rng)
        for name, file in files.items():
            bad += check_model(program, f"{name}, sentencepiece", file, few, raw, rng)
        model = llama2_json(llama2)
        for name, changed in variants(model):
            bad += check_json(program, name, changed, texts if name == "llama2" else few, rng,
                              folder)
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if sys.argv[2] == "--golden":
        sys.exit(golden(sys.argv[3], sys.argv[4:]))
    sys.exit(check(sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4:]))
