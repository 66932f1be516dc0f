#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares token IDs with Hugging Face's tokenizers, for the pipelines of common models.

    python tests/oracle/pipelines.py build/llamero MEGABYTES TEXT...

trains a small vocabulary on the texts for each pipeline below, with its own normalizer and
pre_tokenizer, adds tokens that are hard to match, and encodes mixed texts (see sentences.py).
Prints one line per comparison; fails if any differs.

    python tests/oracle/pipelines.py build/llamero --golden tests/tokenizer/data TEXT...

writes the pipelines and the library's IDs for some texts, for the tests in C."""
import json
import pathlib
import random
import sys
import tempfile

import tokenizers

from sentences import SEED, added_token, as_bytes, broken, compare, corpus, encode, mixed

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
QWEN2 = SHORT + (r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
                 r"|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START = r"[^\r\n\p{L}\p{N}]?"
O200K = "|".join([START + UPPER + "*" + LOWER + "+" + SHORT + "?",
                  START + UPPER + "+" + LOWER + "*" + SHORT + "?", r"\p{N}{1,3}",
                  r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = O200K.replace(SHORT + "?", "").replace("{1,3}", "")
DEEPSEEK = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
            "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(regex, space=False):
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True,
            "use_regex": regex}


def digits(each):
    return {"type": "Digits", "individual_digits": each}


def punctuation(behavior):
    return {"type": "Punctuation", "behavior": behavior}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


NFC, NFD = {"type": "NFC"}, {"type": "NFD"}
# The normalizer, the pre_tokenizer, and ignore_merges.
PIPELINES = {
    "gpt2": (None, byte_level(True), False),
    "llama3": (None, sequence(split(LLAMA3), byte_level(False)), True),
    "gpt4": (None, sequence(split(LLAMA3, "Removed", True), byte_level(False)), False),
    "neox": (NFC, byte_level(True), False),
    "starcoder": (None, sequence(digits(True), byte_level(True)), False),
    "command_r": (NFC, sequence(digits(True), byte_level(True)), False),
    "falcon": (None, sequence(punctuation("Contiguous"), byte_level(True), digits(False),
                              split("[0-9][0-9][0-9]")), False),
    "qwen2": (NFC, sequence(split(QWEN2), byte_level(False)), False),
    "deepseek_v1": (None, sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"),
                                   split("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
                                   digits(True), byte_level(False)), False),
    "deepseek_v3": ({"type": "Sequence", "normalizers": []},
                    sequence(split(r"\p{N}{1,3}"),
                             split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
                             split(DEEPSEEK), byte_level(False)), False),
    "o200k": (None, sequence(split(O200K), byte_level(False)), False),
    "tekken": (None, sequence(split(TEKKEN), byte_level(False)), True),
    "bloom": (None, sequence(split(BLOOM), byte_level(False)), False),
    "prefixed": (None, byte_level(True, True), False),
    "prefixed_digits": (NFD, sequence(digits(False), byte_level(True, True)), False),
    "strings": (None, sequence(split("the", "MergedWithPrevious", kind="String"),
                               split(" ", "MergedWithNext", kind="String"),
                               punctuation("MergedWithPrevious"), byte_level(False)), False),
    "removed": (None, sequence(split(r"\s+", "Removed"), punctuation("Removed"),
                               split("[a-m]", "Contiguous"), byte_level(False)), False),
    "inverted": (None, sequence(split("[aeiou]+", "MergedWithNext", True),
                                split(r"\S", "MergedWithPrevious", True),
                                byte_level(False)), False),
    "after": (None, sequence(byte_level(False), split("[^a-z]{2}", "MergedWithNext"),
                             punctuation("Isolated"), digits(True)), False),
    "lines": (None, sequence(split(r"^[^\n]{1,5}|.$|[^\S\n]+|\d\D"), byte_level(False)), False),
}


def pipeline(name, paths, size):
    """A tokenizer.json trained on the texts."""
    normalizer, pre, whole = PIPELINES[name]
    model = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())
    model.update(normalizer=normalizer, pre_tokenizer=pre, decoder=byte_level(True, True))
    t = tokenizers.Tokenizer.from_str(json.dumps(model))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    t.train(paths, trainer)
    model = json.loads(t.to_str())
    model["model"]["ignore_merges"] = whole
    return model


def with_tokens(model):
    """Added tokens of every kind: inside words, overlapping, of spaces, equal to existing tokens."""
    vocab = model["model"]["vocab"]
    first = max(vocab.values()) + 1
    rows = [("<tool>", {}), ("<tool>x", {}), ("<|im_start|>", {"special": True}), ("the", {}),
            ("  ", {"normalized": True}), ("    ", {"normalized": True}), ("\n\n", {}),
            ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("<mask>", {"lstrip": True,
                                                                              "rstrip": True}),
            ("it", {"single_word": True}), ("\u00c5", {"normalized": True}),
            ("e\u0301", {"normalized": True}), ("o\u0308", {}), ("x\u2581", {"single_word": True}),
            ("<s>", {"special": True, "single_word": True, "lstrip": True})]
    added = []
    for text, more in rows:
        number = vocab.get(text, first)
        first += number == first
        added.append(added_token(number, text, **{"special": False, **more}))
    return dict(model, added_tokens=model["added_tokens"] + added)


ODD = ["", " ", "  ", "   ", "\n", "\n\n\n", "a", "\u0301", "e\u0301", "\u1100\u1161\u11a8", "it",
       "it's it", "withit", "the<tool>x<tool>", "<<tool>xx", "<l>  <r>  <l>", " <r>  \n\n",
       "<r>    <r>", "<s>it<s>", "<|im_start|>the", "  <mask>  <mask>", "o\u0308o\u0308",
       "A\u030a\u00c5\u212b", "x\u2581", "ax\u2581b", "123456 7\u00b2\u00bd\u0663\u0664\u2167",
       "a\u00b2", "\u4e00\u3042\u4e00", "!!..,,\u3002\u2026", "'\u017f 'S", "\u180e\u180ea",
       "\u1df5\u0300\u0327\u0334\u0323" * 9, "<tool", "tool>", "\u2581\u2581", "a\r\nb\r\n\r\n",
       "\U0001e4d0\U0001e4d1 \U00031350\U00031351", "\u11de0", "\U00011de1\U00011de21",
       "\ufb1d\u0f73\u0958", "<mask>" * 3, "<r>the<l>", "it <r> it", "_it", "it\u200d", "\u00e9it",
       "it\u00e9", "it\u20ac"]


def strings(rng, megabytes, paths):
    tokens = ["<tool>", "the", "  ", "<l>", "<r>", " <mask> ", "it", "A\u030a", "e\u0301", "<s>",
              "    ", "\n\n"]
    made = list(ODD)
    for text in corpus(rng, megabytes, paths):
        if rng.random() < 0.3:
            at = rng.randint(0, len(text))
            text = text[:at] + rng.choice(tokens) + rng.choice(["", " ", "a"]) + text[at:]
        made.append(text)
    return made


def theirs_of(model):
    t = tokenizers.Tokenizer.from_str(json.dumps(model))
    t.encode_special_tokens = True
    return t


def check(program, megabytes, paths):
    rng = random.Random(SEED)
    texts = strings(rng, megabytes, paths)
    raw = [broken(rng) for _ in range(5000)]
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in PIPELINES:
            model = pipeline(name, paths, 3000)
            for kind, changed in (("", model), (", added tokens", with_tokens(model))):
                file = str(pathlib.Path(folder, "tokenizer.json"))
                pathlib.Path(file).write_text(json.dumps(changed))
                theirs = theirs_of(changed)
                want = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
                bad += compare(f"{name}{kind}", texts, encode(program, file, texts), want)
                encode(program, file, raw)
    return bad != 0


def golden(folder, paths):
    """One vocabulary for all: only the beginning of each file differs."""
    rng = random.Random(SEED)
    model = with_tokens(pipeline("o200k", paths, 400))
    tail = json.dumps({key: model[key] for key in ("added_tokens", "decoder", "model")})[1:]
    texts = [t for t in ODD if t] + [mixed(rng)[:50] for _ in range(8)]
    heads, rows = {}, [{"text": text} for text in texts]
    for name, (normalizer, pre, _) in PIPELINES.items():
        head = heads[name] = json.dumps({"normalizer": normalizer, "pre_tokenizer": pre})[:-1] + ","
        theirs = theirs_of(json.loads(head + tail))
        for row in rows:
            row[name] = theirs.encode(row["text"], add_special_tokens=False).ids
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    pathlib.Path(folder, "pipelines.json").write_text(
        f'{{"versions": {{"tokenizers": "{tokenizers.__version__}"}},\n'
        f'"tail": {json.dumps(tail)},\n"heads": {json.dumps(heads, indent=0)},\n'
        f'"rows": [\n{lines}\n]}}\n')
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    if sys.argv[2] == "--golden":
        sys.exit(golden(sys.argv[3], sys.argv[4:]))
    sys.exit(check(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))
