#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares how fast one core encodes text with build/bench/tokenizer, tiktoken and tokenizers.

    python3 bench/tokenizer.py TOKENIZER [FILE ...] [--binary build/bench/tokenizer] [--rounds 5] [--write FOLDER]

TOKENIZER is a tiktoken file that splits as Llama 3's does.  Without FILEs two corpora are generated:
"english", words of this repository's documentation, each drawn by the word before it; and "mixed": code of this
repository, 36 scripts, emoji, digits and control characters.  A script's words are drawn from its Unicode ranges,
and texts draw them by Zipf's law, with spaces or, as in Chinese or Thai, without.  --write keeps the corpora.

Rates are megabytes per second of user time; the programs alternate, and the median of the rounds is printed.
tiktoken and tokenizers are left out if they are not installed; a cell of theirs whose IDs differ in number from
ours is marked with !.
"""
import argparse
import base64
import collections
import itertools
import json
import pathlib
import random
import resource
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           r"\s+(?!\S)|\s+")
DOCUMENT_BYTES = 4000

# Name: ranges of letters, ranges of marks (each follows a letter), mean letters in a word, what separates words.
SCRIPTS = {
    "latin": (["az"], [], 6, " "), "french": (["az", "az", "az", "àü"], [], 6, " "),
    "vietnamese": (["az", "az", "ạỹ"], [], 4, " "), "polish": (["az", "az", "Āž"], [], 7, " "),
    "greek": (["αω", "αω", "άώ"], [], 7, " "), "cyrillic": (["ая"], [], 7, " "),
    "armenian": (["աև"], [], 7, " "), "georgian": (["აჰ"], [], 7, " "), "hebrew": (["את"], ["ְּ"], 5, " "),
    "arabic": (["ءي"], ["ًْ"], 5, " "), "syriac": (["ܐܬ"], [], 5, " "), "thaana": (["ހޥ"], ["ަް"], 5, " "),
    "devanagari": (["कह", "अऔ"], ["ा्"], 4, " "), "bengali": (["কন", "পর"], ["াৄ"], 4, " "),
    "gurmukhi": (["ਕਨ"], ["ਾੂ"], 4, " "), "gujarati": (["કન"], ["ાૅ"], 4, " "), "oriya": (["କନ"], ["ାୄ"], 4, " "),
    "tamil": (["கங", "டத", "மஹ"], ["ாூ"], 5, " "), "telugu": (["కన"], ["ాౄ"], 5, " "),
    "kannada": (["ಕನ"], ["ಾೄ"], 5, " "), "malayalam": (["കന"], ["ാൄ"], 6, " "), "sinhala": (["කන"], ["ාූ"], 4, " "),
    "thai": (["กฮ"], ["ัู"], 4, ""), "lao": (["ຕຟ"], ["ັູ"], 3, ""), "khmer": (["កអ"], ["ាៅ"], 3, ""),
    "myanmar": (["ကအ"], ["ါှ"], 3, ""), "tibetan": (["ཀཨ"], ["ཱུ"], 2, "་"), "ethiopic": (["ሀፗ"], [], 4, " "),
    "hangul": (["가힣"], [], 3, " "), "hiragana": (["ぁん"], [], 3, ""), "katakana": (["ァヴ"], [], 4, "・"),
    "han": (["一龥"], [], 2, ""), "cherokee": (["Ꭰ\u13f4"], [], 5, " "), "mongolian": (["ᠠᡂ"], [], 6, " "),
    "tifinagh": (["ⴰⵥ"], [], 5, " "), "gothic": (["𐌰𐍉"], [], 5, " "),
}
EMOJI = ["\U0001f600\U0001f64f", "\U0001f300\U0001f5ff", "\U0001f680\U0001f6c5", "☀⛿"]
STOPS = {"": "。", " ": ". "}


class Zipf:
    """Draws item k with probability proportional to 1 / (k + 3)."""

    def __init__(self, items):
        self.items = items
        self.sums = list(itertools.accumulate(1 / (k + 3) for k in range(len(items))))

    def draw(self, rng, count):
        return rng.choices(self.items, cum_weights=self.sums, k=count)


def script_words(rng, name):
    ranges, marks, mean, _ = SCRIPTS[name]
    letters = [chr(c) for r in ranges for c in range(ord(r[0]), ord(r[1]) + 1)]
    rng.shuffle(letters)
    letters, words = Zipf(letters), []
    marks = [chr(c) for r in marks for c in range(ord(r[0]), ord(r[1]) + 1)]
    for _ in range(40000):
        length = max(1, round(rng.gauss(mean, mean / 3)))
        word = letters.draw(rng, length)
        word = [c + (rng.choice(marks) if marks and rng.random() < 0.4 else "") for c in word]
        words.append("".join(word))
    words.sort(key=lambda w: len(w) + rng.random() * mean)  # frequent words tend to be short
    return Zipf(words)


def script_document(rng, name, words):
    separator, parts, size = SCRIPTS[name][3], [], 0
    while size < DOCUMENT_BYTES:
        clause = separator.join(words.draw(rng, max(2, round(rng.gauss(8, 4)))))
        if rng.random() < 0.1:
            clause += separator + str(rng.randrange(10 ** rng.randint(1, 5)))
        if rng.random() < 0.1:
            clause += "".join(chr(rng.randint(*map(ord, rng.choice(EMOJI)))) for _ in range(rng.randint(1, 3)))
        clause += rng.choice([", ", STOPS.get(separator, " "), STOPS.get(separator, " "), "\n"])
        parts.append(clause)
        size += len(clause.encode())
    return "".join(parts)


def symbol_document(rng):
    """Emoji with modifiers and joiners, control characters, tables, numbers."""
    draw = {
        "emoji": lambda: chr(rng.randint(*map(ord, rng.choice(EMOJI)))) + rng.choice(["", "", "\ufe0f", "\U0001f3fd"]),
        "joined": lambda: "\u200d".join(["\U0001f468", "\U0001f469", "\U0001f467"]),
        "control": lambda: chr(rng.choice([0x1b, 0x7, 0x8, 0xc, 0x7f, 0x85, 0x200e, 0xad, 0xfeff])),
        "rule": lambda: rng.choice("-=*#~_|") * rng.randint(2, 30) + "\n",
        "number": lambda: str(rng.random())[:rng.randint(3, 18)] + rng.choice([" ", "\t", ", ", "\n"]),
        "hex": lambda: f"{rng.getrandbits(64):x}" + rng.choice([" ", "-", "\n"]),
        "space": lambda: rng.choice([" ", "\n", "\t", "\u3000", "\u00a0"]) * rng.randint(1, 8),
    }
    kinds, out, size = list(draw), [], 0
    while size < DOCUMENT_BYTES:
        kind = rng.choice(kinds)
        out += [draw[kind]() for _ in range(rng.randint(1, 6))]
        size = sum(len(o.encode()) for o in out)
    return "".join(out)


def mixed_corpus(rng, size):
    words = {name: script_words(rng, name) for name in SCRIPTS}
    code = [p.read_text() for folder in ("src", "tests", "tools", "bench") for p in sorted((ROOT / folder).rglob("*"))
            if p.suffix in (".c", ".h", ".cu", ".py", ".toml")]
    code = "\n".join(code).replace("\0", "")
    documents, total = [], 0
    while total < size:
        kind = rng.random()
        if kind < 0.3:
            at = rng.randrange(len(code) - DOCUMENT_BYTES)
            document = code[at:at + DOCUMENT_BYTES]
        elif kind < 0.4:
            document = symbol_document(rng)
        else:
            name = rng.choice(list(SCRIPTS))
            document = script_document(rng, name, words[name])
        documents.append(document)
        total += len(document.encode())
    return documents


def english_corpus(rng, size):
    text = " ".join(line for p in sorted((ROOT / "docs").glob("*.md")) for line in p.read_text().splitlines()
                    if line and line[0].isalpha() and "|" not in line)
    following, words = collections.defaultdict(list), text.split()
    for a, b in zip(words, words[1:]):
        following[a].append(b)
    documents, total = [], 0
    while total < size:
        document, length, word = [], 0, rng.choice(words[:-1])
        while length < DOCUMENT_BYTES and word in following:
            document.append(word)
            length += len(word) + 1
            word = rng.choice(following[word])
        documents.append(" ".join(document) + "\n")
        total += length
    return documents


def user_seconds(call):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    result = call()
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before, result


def peers(path):
    """Returns {name: function of the list of texts that returns the number of IDs}."""
    ranks = {base64.b64decode(a): int(b) for a, b in map(bytes.split, path.read_bytes().splitlines())}
    out = {}
    try:
        import tiktoken
        encoding = tiktoken.Encoding("llama3", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
        out["tiktoken"] = lambda texts: sum(len(encoding.encode_ordinary(t)) for t in texts)
    except ImportError:
        pass
    try:
        import tokenizers
        from transformers.convert_slow_tokenizer import TikTokenConverter
        fast = TikTokenConverter(str(path), pattern=PATTERN).converted()
        fast.model.ignore_merges = True
        out["tokenizers"] = lambda texts: sum(len(fast.encode(t, add_special_tokens=False).ids) for t in texts)
        assert tokenizers
    except ImportError:
        pass
    return out


def measure(arguments, file, documents):
    """Returns {program: (median rate, number of IDs)}."""
    data = b"\0".join(d.encode() for d in documents)
    file.write_bytes(data)
    rates, counts = collections.defaultdict(list), {}
    for _ in range(arguments.rounds):
        out = subprocess.run([arguments.binary, arguments.tokenizer, file, "1"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.splitlines()[-1].split()
        rates["llamero"].append(float(out[5]))
        counts["llamero"] = int(out[3])
        for name, encode in arguments.peers.items():
            seconds, counts[name] = user_seconds(lambda: encode(documents))
            rates[name].append(len(data) / 1e6 / seconds)
    return {name: (statistics.median(rates[name]), counts[name]) for name in rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--binary", default=ROOT / "build/bench/tokenizer", type=pathlib.Path)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--megabytes", default=8, type=int)
    parser.add_argument("--write", type=pathlib.Path)
    arguments = parser.parse_args()
    corpora = {f.name: f.read_text().split("\0") for f in arguments.files}
    if not corpora:
        size = arguments.megabytes * 10 ** 6
        corpora = {"english": english_corpus(random.Random(1), size), "mixed": mixed_corpus(random.Random(2), size)}
    arguments.peers = peers(arguments.tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.write or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, documents in corpora.items():
            for program, (rate, count) in measure(arguments, folder / f"{name}.txt", documents).items():
                print(json.dumps({"corpus": name, "program": program, "MB/s": round(rate, 1), "ids": count}))


if __name__ == "__main__":
    main()
