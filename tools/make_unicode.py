#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_unicode.py > src/tokenizer/unicode_table.inc -- classes of code points for the splitters.

Needs the `tiktoken` module from PyPI: its classes are the ones to agree with, whatever version of
Unicode they are of; tiktoken's version is written into the table's head."""
import tiktoken

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, CODES))
BLOCK = 128


def matches(pattern):
    """The code points that a pattern of one character matches: the rest leaves no tokens."""
    bytes_only = {bytes([b]): b for b in range(256)}
    e = tiktoken.Encoding("classes", pat_str=pattern, mergeable_ranks=bytes_only, special_tokens={})
    return set(map(ord, e.decode(e.encode_ordinary(TEXT))))


kinds = {c: k for k, p in ((1, r"\p{L}"), (2, r"\p{N}"), (3, r"\s")) for c in matches(p)}
blocks, index = {}, []
for begin in range(0, 0x110000, BLOCK):
    block = tuple(kinds.get(code, 0) for code in range(begin, begin + BLOCK))
    index.append(blocks.setdefault(block, len(blocks)))
print(f"/* Made by tools/make_unicode.py with tiktoken {tiktoken.__version__}: 0 other, 1 letter, "
      "2 number, 3 white space. */")
print("// SPDX-License-Identifier: Apache-2.0")
print(f"static const unsigned char unicode_index[{len(index)}] = {{")
for at in range(0, len(index), 24):
    print("    " + ", ".join(map(str, index[at:at + 24])) + ",")
print("};\nconst unsigned char unicode_ascii[128] = {")
for at in range(0, 128, 32):
    print("    " + ", ".join(str(kinds.get(code, 0)) for code in range(at, at + 32)) + ",")
print("};\nstatic const unsigned char unicode_blocks[][128] = {")
for block in blocks:
    print("    {")
    for at in range(0, BLOCK, 32):
        print("        " + ", ".join(map(str, block[at:at + 32])) + ",")
    print("    },")
print("};")
