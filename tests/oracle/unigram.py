#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares Unigram models, normalizers and added tokens with sentencepiece and Hugging Face's tokenizers.

    python tests/oracle/unigram.py build/llamero MEGABYTES STRINGS TEXT...

trains small models on the texts with sentencepiece, and encodes MEGABYTES of mixed text (see sentences.py), STRINGS
random strings and texts with broken UTF-8; decodes the IDs.  The same for tokenizer.json files: the normalizers and
pre_tokenizers of models in use, with Unigram, BPE with byte_fallback and byte-level BPE, each without and with added
tokens that are hard to match.  Then opens a checkpoint of each SentencePiece model with AutoTokenizer, which gives
other IDs where `convert` warns so.  Prints one line per comparison and a table; fails if any other differs.

    python tests/oracle/unigram.py build/llamero --golden tests/tokenizer/data TEXT...

writes a small model, and the libraries' results for some texts, for the tests in C.

    pip install sentencepiece tokenizers transformers    (0.2.3, 0.23.3, 5.24.0)
"""
import base64
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import sentencepiece
import tokenizers

from sentences import (SEED, added_token, as_bytes, broken, check_model, compare, corpus, decode, encode, llama2_json,
                       mixed, random_ids, without_nul)

SPACE = "\u2581"
# What HF's Precompiled makes of grapheme clusters, and what normalization forms change.
HARD = ["e\u0301A\u030a\u00c5\u212b", "\u1100\u1161\u11a8\uac00\u11a8", "\ufb01\u0301 \ufdfa \u2460\u00bd",
        "\u00a9\u200d\u00ae\u00a9\u0301", "\u0915\u094d\u0937 \u0915\u0301\u094d\u0937\u0301", "\u0600a \u06dd1",
        "\r\n\r\u0301\n", "\U0001f1e6\U0001f1e7\U0001f1e8", "\u0130I\u0131\u03a3\u03c2 \u1e9e", "\u037a\u00a8\u0344",
        "\u3131\u314f\u3134", "\uff21\uff76\uff9e \u3000 a\u2003b", " \u2581 a", "\u200b", "\u00ad", " ", "  ", "a  b ",
        "the<sep>the", "<sep>", " <sep>", "<sep> the", "``a'' ''", "\u1d2c\u0301\u2126", "<s>a</s>", "<unk><unk>x",
        "<0x41>", "\U0001d15e\u0f73\u0958\ufb1d", "\u0e33\u0eb3\u0903a\u0903", "\u05e9\u05c1\u05bc", "\u0345\u0391\u0345"]


def learn(folder, paths, name, **more):
    prefix = str(pathlib.Path(folder, name))
    options = {"model_type": "unigram", "vocab_size": 1500, "character_coverage": 0.999, **more}
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(paths), model_prefix=prefix, minloglevel=2, num_threads=2, max_sentence_length=20000,
        input_sentence_size=4000, hard_vocab_limit=options["model_type"] != "unigram", **options)
    pathlib.Path(prefix + ".vocab").unlink()
    return prefix + ".model"


KINDS = {
    "identity": {"normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False,
                 "split_digits": True, "allow_whitespace_only_pieces": True},
    "nmt_nfkc": {},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "byte_fallback": True, "add_dummy_prefix": False},
    "defined": {"normalization_rule_name": "identity", "byte_fallback": True, "remove_extra_whitespaces": False,
                "user_defined_symbols": ["<mask>", "<sep>", SPACE * 2, "the"], "control_symbols": ["[INST]"],
                "bos_id": 3, "eos_id": 1, "unk_id": 2},
    "mapped symbols": {"normalization_rule_name": "nfkc", "user_defined_symbols": ["<sep>", "\ufb01", "\u00bd"],
                       "remove_extra_whitespaces": False},
    "words": {"normalization_rule_name": "identity", "split_by_whitespace": False, "add_dummy_prefix": False,
              "remove_extra_whitespaces": False, "unk_surface": "?!"},
}


def pieces_of(model):
    theirs = sentencepiece.SentencePieceProcessor(model_file=model)
    return [(theirs.id_to_piece(i), theirs.get_score(i)) for i in range(theirs.vocab_size())]


def charsmap_of(model):
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(pathlib.Path(model).read_bytes())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def step(kind, **more):
    return {"type": kind, **more}


def replace(old, new, kind="Regex"):
    return step("Replace", pattern={kind: old}, content=new)


def steps(*all_steps):
    return step("Sequence", normalizers=list(all_steps))


def metaspace(scheme="always", split=True):
    return step("Metaspace", replacement=SPACE, prepend_scheme=scheme, split=split)


def sequence(*pre):
    return step("Sequence", pretokenizers=list(pre))


ESCAPE = replace(" ", SPACE, "String")
PREPEND = step("Prepend", prepend=SPACE)


def pipelines(nfkc, folded):
    """Normalizers and pre_tokenizers of models in use, and others that are hard."""
    table, fold = step("Precompiled", precompiled_charsmap=nfkc), step("Precompiled", precompiled_charsmap=folded)
    one_space = replace(" {2,}", " ")
    white = step("WhitespaceSplit")
    quotes = replace("``", '"', "String"), replace("''", '"', "String")
    lower, accents = step("Lowercase"), step("StripAccents")
    return {
        "xlm_roberta": (steps(table, one_space), metaspace()),
        "t5": (table, sequence(white, metaspace())),
        "albert": (steps(*quotes, step("NFKD"), accents, lower, table, one_space), sequence(white, metaspace())),
        "deberta_v3": (steps(step("Strip", strip_left=True, strip_right=True), table, one_space), metaspace()),
        "bigbird": (steps(fold, step("Strip", strip_left=False, strip_right=True), replace(" {2,}", SPACE)),
                    metaspace("always", False)),
        "nfkc": (step("NFKC"), metaspace("first", False)),
        "nfd": (steps(step("NFD"), accents), metaspace("first", True)),
        "nfkd": (steps(step("NFKD"), step("NFC")), metaspace("never", True)),
        "nmt": (steps(step("Nmt"), step("NFKC"), one_space, step("Strip", strip_left=True, strip_right=True), PREPEND, ESCAPE), None),
        "plain": (steps(PREPEND, ESCAPE), None),
        "digits": (lower, sequence(step("Digits", individual_digits=True), step("Punctuation", behavior="Isolated"),
                                   metaspace("always", False))),
        "whitespace": (None, sequence(step("Whitespace"), metaspace())),
        "split": (fold, sequence(step("Split", pattern={"Regex": "(the|<sep>)"}, behavior="Isolated", invert=False),
                                 metaspace("never", True))),
        "raw": (None, None),
    }


def with_tokens(model):
    """Added tokens of every kind: overlapping, of changed characters, of spaces, equal to existing tokens.  Of tokens
    with one normalized text tokenizers chooses any; where tokens overlap with stripped spaces it panics."""
    normal = tokenizers.Tokenizer.from_str(json.dumps(model)).normalizer
    seen = set()
    kinds, vocab = model["model"], model["model"]["vocab"]
    ids = {piece: i for i, (piece, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab
    first = max(ids.values()) + 1
    rows = [("<sep>", {"normalized": True}), ("<sep>x", {"special": True, "normalized": True}), ("the", {}),
            ("\u00c5", {"normalized": True}), ("\u00e5", {"normalized": True, "special": True}),
            ("Ab", {"normalized": True, "lstrip": True}), ("ab", {"single_word": True, "normalized": True}),
            ("\ufb01", {"normalized": True, "lstrip": True}), ("  ", {"normalized": True}),
            (" a", {"normalized": True}), ("<l>", {"lstrip": True}), ("<r>", {"rstrip": True}), ("it", {"single_word": True}),
            ("\u2581x", {"normalized": True}), ("\n\n", {"normalized": True})]
    added = []
    for text, more in rows:
        matched = normal.normalize_str(text) if normal and more.get("normalized") else text
        if not matched or (matched, bool(more.get("normalized"))) in seen or ("!" in vocab and len(text) == 1):
            continue
        seen.add((matched, bool(more.get("normalized"))))
        number = ids.get(text, first)
        first += number == first
        ids = {**ids, text: number}
        added.append(added_token(number, text, **{"special": False, **more}))
    return dict(model, added_tokens=model["added_tokens"] + added, model=kinds)


def unigram_json(model):
    pieces = pieces_of(model)
    unknown = next(i for i, (piece, _) in enumerate(pieces) if piece == "<unk>")
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added_token(i, pieces[i][0]) for i in range(3)],
            "post_processor": None, "decoder": metaspace(),
            "model": {"type": "Unigram", "unk_id": unknown, "byte_fallback": "<0x00>" in dict(pieces),
                      "vocab": [list(row) for row in pieces]}}


def byte_level_json(paths):
    t = tokenizers.Tokenizer(tokenizers.models.BPE())
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=1500, show_progress=False, special_tokens=["<|end|>"],
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    t.train(paths, trainer)
    return json.loads(t.to_str())


def json_files(paths, models, bpe):
    """(kind, name, tokenizer.json)"""
    byte_level = byte_level_json(paths)
    unigram, with_bytes, merges = unigram_json(models["nmt_nfkc"]), unigram_json(models["folded"]), llama2_json(bpe)
    for name, (normalizer, pre) in pipelines(charsmap_of(models["nmt_nfkc"]), charsmap_of(models["folded"])).items():
        for kind, base in (("Unigram", unigram), ("Unigram, bytes", with_bytes), ("BPE, bytes", merges)):
            yield kind, name, dict(base, normalizer=normalizer, pre_tokenizer=pre)
        if normalizer and (not pre or pre["type"] == "Metaspace"):
            yield "byte-level BPE", name, dict(byte_level, normalizer=normalizer)


def check_json(program, name, model, texts, rng, folder):
    file = str(pathlib.Path(folder, "tokenizer.json"))
    pathlib.Path(file).write_text(json.dumps(model))
    theirs = tokenizers.Tokenizer.from_file(file)
    theirs.encode_special_tokens = True
    done = subprocess.run([program, "tokenizer", "encode", "--tokenizer", file, "--null"], input=b"x\0",
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=False)
    if done.returncode:
        reason = done.stderr.decode().strip().split(": ", 2)[-1]
        print(f"{name}: refused: {reason}", flush=True)
        return 0, reason
    want = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)]
    bad = compare(name, texts, encode(program, file, texts), want)
    nul = {i for i in range(theirs.get_vocab_size()) if (theirs.id_to_token(i) or "\0") == "<0x00>"}
    missing = {i for i in range(33000) if theirs.id_to_token(i) is None}
    lists = without_nul(want[:3000] + random_ids(rng, theirs.get_vocab_size(), 3000), nul | missing)
    lists = [ids for ids in lists if all(0 <= i < theirs.get_vocab_size() for i in ids)]
    if "byte-level" not in name:
        back = [theirs.decode(ids, skip_special_tokens=False).encode() for ids in lists]
        bad += compare(f"{name}, ids", lists, decode(program, file, lists), back)
    return bad, ""


def warns(program, written, folder):
    """Whether `convert` warns that AutoTokenizer gives other IDs for some texts, when only tokenizer.model is given."""
    bare, again = pathlib.Path(folder, "bare"), pathlib.Path(folder, "again")
    subprocess.run([program, "convert", written, bare, "--to", "hf"], check=True, capture_output=True)
    for path in bare.glob("tokenizer*.json"):
        path.unlink()
    done = subprocess.run([program, "convert", bare, again, "--to", "hf"], check=True, capture_output=True, text=True)
    return "AutoTokenizer gives other IDs" in done.stderr


def check_export(program, name, source, texts, folder):
    """AutoTokenizer on a checkpoint's folder must give the source's IDs, unless `convert` warns that it does not;
    SentencePieceBackend in any case."""
    import transformers
    from public_tokenizers import export
    written = export(program, source, pathlib.Path(folder))
    config = json.loads((written / "tokenizer_config.json").read_text())
    backend = transformers.SentencePieceBackend.from_pretrained(written, legacy=True, special_tokens_pattern="bos")
    assert backend("x").input_ids[0] == backend.bos_token_id
    names = backend.all_special_tokens + [s for s in ("[INST]",) if s in backend.get_vocab()]
    plain = [t for t in texts if not any(s in t for s in names)]
    bad = compare(f"{name}, SentencePieceBackend", plain, encode(program, source, plain),
                  [backend.encode(t, add_special_tokens=False) for t in plain])
    auto = transformers.AutoTokenizer.from_pretrained(written)
    if not (written / "tokenizer.json").exists():
        assert type(auto).__name__ == config["tokenizer_class"] and auto("x").input_ids == backend("x").input_ids
        return bad + compare(f"{name}, AutoTokenizer without tokenizer.json", plain, encode(program, source, plain),
                             [auto.encode(t, add_special_tokens=False) for t in plain]), ""
    special = [t.content for t in auto.added_tokens_decoder.values() if t.special]
    plain = [t for t in texts if not any(s in t for s in special)]
    want = [auto.encode(t, add_special_tokens=False) for t in plain]
    other = compare(f"{name}, exported", plain, encode(program, source, plain), want)
    warned = warns(program, written, folder)
    bad += 0 if warned else other
    alone = pathlib.Path(folder, "alone")
    alone.mkdir()
    (alone / "tokenizer.json").write_bytes((written / "tokenizer.json").read_bytes())
    bad += compare(f"{name}, exported and read again", plain, encode(program, str(alone), plain), want)
    return bad, f"{other} of {len(plain)} texts differ, as convert warns" if other and warned else ""


RULES = ["FB01\t66 69", "FF21\t41", "BD\t20 31 2F 32", "A0\t20", "AD\t", "41 30A\tC5", "2581\t20", "200B\t"]


def golden(folder, paths):
    """A small model, and pipelines over its pieces."""
    rng = random.Random(SEED)
    with tempfile.TemporaryDirectory() as work:
        rules = pathlib.Path(work, "rules.tsv")
        rules.write_text("".join(rule + "\n" for rule in RULES))
        model = learn(folder, paths, "sentence_unigram", vocab_size=420, byte_fallback=True, character_coverage=0.98,
                      normalization_rule_tsv=str(rules), user_defined_symbols=["<sep>", "the"])
    theirs = sentencepiece.SentencePieceProcessor(model_file=model)
    rows = []
    for raw in [as_bytes(t) for t in HARD] + [as_bytes(mixed(rng)[:60]) for _ in range(60)] + \
            [broken(rng)[:60] for _ in range(20)]:
        ids = theirs.encode(raw)
        rows.append({"hex": raw.hex(), "ids": ids, "text": theirs.decode(ids).encode().hex()})
    file = unigram_json(model)
    file["decoder"] = metaspace()
    texts = HARD + [mixed(rng)[:80] for _ in range(30)]
    heads, ids = {}, [{"text": text} for text in texts]
    for name, (normalizer, pre) in pipelines(charsmap_of(model), charsmap_of(model)).items():
        tokens = with_tokens(dict(file, normalizer=normalizer, pre_tokenizer=pre))
        tokens = {key: tokens[key] for key in ("added_tokens", "normalizer", "pre_tokenizer")}
        heads[name] = json.dumps(tokens, separators=(",", ":"))[:-1] + ","
        reader = tokenizers.Tokenizer.from_str(json.dumps(dict(file, **tokens)))
        reader.encode_special_tokens = True
        for row in ids:
            row[name] = reader.encode(row["text"], add_special_tokens=False).ids
    tail = json.dumps({key: file[key] for key in ("decoder", "model")}, separators=(",", ":"))[1:]
    lines = [",\n".join(json.dumps(row, separators=(",", ":")) for row in some) for some in (rows, ids)]
    pathlib.Path(folder, "unigram.json").write_text(
        f'{{"versions": {{"sentencepiece": "{sentencepiece.__version__}", "tokenizers": "{tokenizers.__version__}"}},\n'
        f'"tail": {json.dumps(tail)},\n"heads": {json.dumps(heads)},\n"sentences": [\n{lines[0]}\n],\n'
        f'"rows": [\n{lines[1]}\n]}}\n')
    return 0


def check(program, megabytes, count, paths):
    rng = random.Random(SEED)
    texts = HARD + corpus(rng, megabytes, paths) + [mixed(rng)[:80] for _ in range(count)]
    raw = [broken(rng) for _ in range(5000)]
    table = collections.defaultdict(lambda: [0, 0, []])
    bad = 0

    def note(kind, name, result):
        nonlocal bad
        bad += result[0]
        table[kind][0] += 1
        table[kind][1] += not result[0] and not result[1]
        table[kind][2] += [f"{name}: {result[1]}"] * bool(result[1]) + [f"{name}: differs"] * bool(result[0])

    with tempfile.TemporaryDirectory() as folder:
        models = {name: learn(folder, paths, name, **options) for name, options in KINDS.items()}
        bpes = {name: learn(folder, paths, name + " bpe", model_type="bpe", **options)
                for name, options in KINDS.items()}
        for name, model in models.items():
            note("SentencePiece Unigram", name, (check_model(program, f"{name} Unigram", model, texts, raw, rng), ""))
        for kind, some in (("Unigram", models), ("BPE", bpes)):
            for name, model in some.items():
                with tempfile.TemporaryDirectory() as scratch:
                    note(f"AutoTokenizer, SentencePiece {kind}", name,
                         check_export(program, f"{name} {kind}", model, texts, scratch))
        for kind, name, model in json_files(paths, models, bpes["identity"]):
            for what, changed in ((name, model), (name + ", added tokens", with_tokens(model))):
                note(f"tokenizer.json, {kind}", what,
                     check_json(program, f"{kind}: {what}", changed, texts, rng, folder))
    print(f"\n{'kind':44} tried equal")
    for kind, (tried, equal, rest) in table.items():
        print(f"{kind:44} {tried:5} {equal:5}", *rest, sep="\n    " if rest else " ")
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    if sys.argv[2] == "--golden":
        sys.exit(golden(sys.argv[3], sys.argv[4:]))
    sys.exit(check(os.path.abspath(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
