#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_unicode.py > src/tokenizer/unicode_table.inc -- classes of code points for the splitters.

Needs the `regex` module from PyPI; its Unicode version is written into the table's head."""
import regex

L, N, W = (regex.compile(p) for p in (r"\p{L}", r"\p{N}", r"\p{White_Space}"))
BLOCK = 128


def kind(code):
    if 0xD800 <= code <= 0xDFFF:
        return 0
    c = chr(code)
    return 1 if L.match(c) else 2 if N.match(c) else 3 if W.match(c) else 0


blocks, index = {}, []
for begin in range(0, 0x110000, BLOCK):
    block = tuple(kind(code) for code in range(begin, begin + BLOCK))
    index.append(blocks.setdefault(block, len(blocks)))
print(f"/* Made by tools/make_unicode.py with regex {regex.__version__}: 0 other, 1 letter, "
      "2 number, 3 white space. */")
print("// SPDX-License-Identifier: Apache-2.0")
print(f"static const unsigned char unicode_index[{len(index)}] = {{")
for at in range(0, len(index), 24):
    print("    " + ", ".join(map(str, index[at:at + 24])) + ",")
print("};\nstatic const unsigned char unicode_blocks[][128] = {")
for block in blocks:
    print("    {")
    for at in range(0, BLOCK, 32):
        print("        " + ", ".join(map(str, block[at:at + 32])) + ",")
    print("    },")
print("};")
