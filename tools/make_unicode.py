#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_unicode.py FOLDER writes FOLDER/unicode_table.inc, unicode_forms.inc, unicode_newer.inc,
unicode_letters.inc and unicode_graphemes.inc.

    unicode_table      classes and marks of code points, for splitting and added tokens
    unicode_forms      decompositions, compositions and combining classes, for normalization forms
    unicode_newer      code points that PCRE2's Unicode 14 lacks in general categories and scripts
    unicode_letters    lower-case letters, and the marks that StripAccents removes
    unicode_graphemes  properties that extended grapheme clusters depend on

Requires `tiktoken`, `tokenizers` and `regex` from PyPI: the tables reproduce the results of the
first two, for the version of Unicode that each of them has; only the properties of grapheme
clusters are those of `regex`, compared with tokenizers where it shows them.  The tables' headers
name the versions.  Requires a Python with Unicode 14."""
import pathlib
import struct
import sys
import unicodedata

import regex
import tiktoken
import tokenizers
from tokenizers import normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CODES))
BLOCK = 128
HEAD = (f"/* Made by tools/make_unicode.py with tiktoken {tiktoken.__version__} and tokenizers "
        f"{tokenizers.__version__}")
LICENCE = "// SPDX-License-Identifier: Apache-2.0"
HANGUL = range(0xAC00, 0xD7A4)
# Categories that have lost no code point since Unicode 14.
CATEGORIES = "L N P S M Lu Ll Lt Lm Lo Nd Sm Sc So".split()
SCRIPTS = "Arabic Cyrillic Devanagari Han Hiragana Katakana Latin".split()


def matches(pattern):
    """Code points that match a one-character pattern in tiktoken, which drops unmatched text."""
    bytes_only = {bytes([b]): b for b in range(256)}
    e = tiktoken.Encoding("classes", pat_str=pattern, mergeable_ranks=bytes_only, special_tokens={})
    return set(map(ord, e.decode(e.encode_ordinary(TEXT))))


def matched(pattern):
    """The same for a Split pre-tokenizer of tokenizers."""
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "removed", invert=True)
    return {ord(piece) for piece, _ in split.pre_tokenize_str(TEXT)}


def cut(pre):
    """Code points that the pre-tokenizer splits from a letter."""
    return {c for c in CODES if len(pre.pre_tokenize_str("a" + chr(c))) == 2}


def words():
    """Word characters: a single_word added token does not match next to them."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE({"q": 0}, []))
    t.add_tokens([tokenizers.AddedToken("<m>", single_word=True, normalized=False)])
    return {c for c in CODES if 1 not in t.encode(chr(c) + "<m>").ids}


def moves_behind(code, mark):
    """Whether canonical ordering moves `code` past the `mark` that follows it."""
    return normalizers.NFD().normalize_str("a" + chr(code) + mark)[1] == mark


def combining(code):
    known = moves_behind(code, "\u0334") or \
        normalizers.NFD().normalize_str("a\u0327" + chr(code))[-1] == "\u0327"
    return unicodedata.combining(chr(code)) if known else 0


def numbers(name, kind, values, most=24, form=str):
    print(f"{kind} {name}[{len(values)}] = {{")
    for at in range(0, len(values), most):
        print("    " + ", ".join(map(form, values[at:at + most])) + ",")
    print("};")


def write_classes(forms):
    kinds = {c: k for k, p in ((1, r"\p{L}"), (2, r"\p{N}"), (3, r"\s")) for c in matches(p)}
    marks = ((4, words()), (8, cut(pre_tokenizers.Punctuation())),
             (16, cut(pre_tokenizers.Digits())), (32, forms["NFC"]), (64, forms["NFD"]),
             (128, set(forms["compatible"])))
    for bit, codes in marks:
        for c in codes:
            kinds[c] = kinds.get(c, 0) | bit
    blocks, index = {}, []
    for begin in range(0, 0x110000, BLOCK):
        block = tuple(kinds.get(code, 0) for code in range(begin, begin + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    print(HEAD + ":\n   0 other, 1 letter, 2 number, 3 white space; and the bits of "
          "enum unicode_mark. */\n" + LICENCE)
    numbers("unicode_index", "static const uint16_t", index)
    numbers("unicode_ascii", "const unsigned char", [kinds.get(c, 0) & 3 for c in range(128)], 32)
    print("static const unsigned char unicode_blocks[][128] = {")
    for block in blocks:
        print("    {")
        for at in range(0, BLOCK, 32):
            print("        " + ", ".join(map(str, block[at:at + 32])) + ",")
        print("    },")
    print("};")


def find_forms():
    """Full decompositions, composing pairs, combining classes; what each form may change."""
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    whole = {c: nfd(chr(c)) for c in CODES if c not in HANGUL}
    whole = {c: text for c, text in whole.items() if text != chr(c)}
    classes = {c: combining(c) for c in CODES if unicodedata.combining(chr(c))}
    classes = {c: k for c, k in classes.items() if k}
    pairs = {}
    for c in whole:
        parts = [int(p, 16) for p in unicodedata.decomposition(chr(c)).split() if p[0] != "<"]
        if len(parts) == 2 and nfc(chr(parts[0]) + chr(parts[1])) == chr(c):
            pairs[tuple(parts)] = c
    seconds = {b for _, b in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    changed = {c for c in whole if nfc(chr(c)) != chr(c)}
    nfkd = {c: normalizers.NFKD().normalize_str(chr(c)) for c in CODES if c not in HANGUL}
    compatible = {c: text for c, text in nfkd.items() if text != whole.get(c, chr(c))}
    return {"whole": whole, "compatible": compatible, "classes": classes, "pairs": pairs,
            "NFC": changed | seconds | set(classes), "NFD": set(whole) | set(HANGUL) | set(classes)}


def write_forms(forms):
    texts, compatible = sorted(forms["whole"].items()), sorted(forms["compatible"].items())
    letters = "".join(dict.fromkeys(text for _, text in texts + compatible))
    print(HEAD + ". */\n" + LICENCE)
    print("/* {code point, offset of its decomposition, number of its code points} */")
    for name, pairs in (("unicode_wholes", texts), ("unicode_compatibles", compatible)):
        if name == "unicode_compatibles":
            print("/* The same for compatibility decompositions, where they differ. */")
        print(f"static const struct unicode_whole {name}[] = {{")
        rows_of([f"{{0x{c:X}, {letters.index(text)}, {len(text)}}}" for c, text in pairs], 5)
    numbers("unicode_decomposed", "static const uint32_t", [ord(c) for c in letters], 12,
            lambda c: f"0x{c:X}")
    print("/* {first, second, primary composite} */")
    print("static const struct unicode_pair unicode_pairs[] = {")
    rows_of([f"{{0x{a:X}, 0x{b:X}, 0x{c:X}}}" for (a, b), c in sorted(forms["pairs"].items())], 4)
    print("/* {first, last, combining class} */")
    print("static const struct unicode_combining unicode_combinings[] = {")
    rows_of([f"{{0x{a:X}, 0x{b:X}, {k}}}" for a, b, k in runs(forms["classes"])], 5)


def rows_of(rows, most):
    for at in range(0, len(rows), most):
        print("    " + ", ".join(rows[at:at + most]) + ",")
    print("};")


def runs(values):
    """{code: value} as (first, last, value)."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1][1] = c
        else:
            out.append([c, c, values[c]])
    return out


def write_newer():
    print(HEAD + ":\n   code points that PCRE2's Unicode 14 lacks in these general categories\n"
          "   and scripts. */\n" + LICENCE)
    print("static const struct newer newer[] = {")
    assigned = {c for c in CODES if unicodedata.category(chr(c)) != "Cn"}
    for name in CATEGORIES + SCRIPTS:
        old = assigned if name in SCRIPTS else {
            c for c in CODES if unicodedata.category(chr(c)).startswith(name)}
        new = matched(rf"\p{{{name}}}")
        assert name in SCRIPTS or not old - new
        spans = [f"\\\\x{{{a:x}}}" + (f"-\\\\x{{{b:x}}}" if b > a else "")
                 for a, b, _ in runs({c: 0 for c in new - old})]
        parts = ["".join(spans[at:at + 3]) for at in range(0, len(spans), 3)]
        if spans:
            print(f'    {{"{name}",\n     "' + '"\n     "'.join(parts) + '"},')
    print("};")


def write_letters():
    lower = {c: normalizers.Lowercase().normalize_str(chr(c)) for c in CODES}
    lower = {c: text for c, text in lower.items() if text != chr(c)}
    accents = {c: 0 for c in CODES if normalizers.StripAccents().normalize_str(chr(c)) == ""}
    print(HEAD + ". */\n" + LICENCE)
    print("/* {code point, {its lower case, one more code point or 0}} */")
    print("static const struct unicode_lower unicode_lowers[] = {")
    rows_of([f"{{0x{c:X}, {{0x{ord(t[0]):X}, {hex(ord(t[1])) if t[1:] else 0}}}}}"
             for c, t in sorted(lower.items())], 4)
    print("/* {first, last} */")
    print("static const struct unicode_range unicode_accents[] = {")
    rows_of([f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in runs(accents)], 6)


def charsmap(rules):
    """A precompiled_charsmap: a double array whose nodes have 1,024 units each."""
    nodes, values, strings = {b"": 0}, {}, bytearray()
    for key, value in rules.items():
        for n in range(1, len(key) + 1):
            nodes.setdefault(key[:n], len(nodes))
        values[key] = len(strings)
        strings += value + b"\0"
    base = {key: 1024 * (i + 1) for key, i in nodes.items()}
    units = [0] * (1024 * (len(nodes) + 1))
    for key in nodes:
        at = base[key[:-1]] ^ key[-1] if key else 0
        jump = at ^ base[key]
        assert jump < 1 << 21
        units[at] = jump << 10 | (0x100 if key in values else 0) | (key[-1] if key else 0)
        if key in values:
            units[base[key]] = 0x80000000 | values[key]
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + bytes(strings)


def joined():
    """Characters that tokenizers' Precompiled takes as one grapheme cluster with a letter before:
    it drops what follows a mapped one."""
    n = normalizers.Precompiled(charsmap({b"a": b"x"}))
    return {c for c in CODES if c and n.normalize_str("a" + chr(c)) == "x"}


GRAPHEMES = ("Control Extend ZWJ Regional_Indicator Prepend SpacingMark L V T LV LVT").split()


def write_graphemes():
    kinds = {}
    for number, name in enumerate(GRAPHEMES):
        kinds.update({ord(m): 3 + number for m in regex.findall(rf"\p{{GCB={name}}}", TEXT)})
    kinds[13], kinds[10] = 1, 2
    pictures = {ord(m) for m in regex.findall(r"\p{Extended_Pictographic}", TEXT)}
    linkers = {ord(m) for m in regex.findall(r"\p{InCB=Linker}", TEXT)}
    consonants = {ord(m) for m in regex.findall(r"\p{InCB=Consonant}", TEXT)}
    conjuncts = {ord(m) for m in regex.findall(r"\p{InCB=Extend}", TEXT)}
    assert not pictures & set(kinds) and not consonants & set(kinds)
    for bit, codes in ((14, pictures), (15, consonants)):
        kinds.update({c: bit for c in codes})
    for bit, codes in ((16, linkers), (17, conjuncts)):
        kinds.update({c: bit for c in codes if kinds.get(c) == 4})
    shown = {c for c, k in kinds.items() if k in (4, 5, 8, 16, 17)}
    joins = joined()
    assert joins <= shown
    kinds = {c: k for c, k in kinds.items() if c in joins or c not in shown}  # the rest is newer
    print(HEAD + f",\n   and regex {regex.__version__}: "
          "{first, last, enum grapheme_kind}. */\n" + LICENCE)
    print("static const struct grapheme_run grapheme_runs[] = {")
    kinds = {c: k for c, k in kinds.items() if k not in (12, 13)}  # of Hangul syllables: arithmetic
    rows_of([f"{{0x{a:X}, 0x{b:X}, {k}}}" for a, b, k in runs(kinds)], 5)


if __name__ == "__main__":
    if len(sys.argv) != 2 or unicodedata.unidata_version != "14.0.0":
        sys.exit(__doc__)
    found = find_forms()
    for file, write in (("table", lambda: write_classes(found)),
                        ("forms", lambda: write_forms(found)), ("newer", write_newer),
                        ("letters", write_letters), ("graphemes", write_graphemes)):
        with open(pathlib.Path(sys.argv[1], f"unicode_{file}.inc"), "w") as sys.stdout:
            write()
