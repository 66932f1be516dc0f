/* lines.c -- any bytes as a packed file: lines, or a clear refusal.
 *
 * The first byte says whether of zstd or of gzip, or of gzip with the rest as the text of two
 * members, whose checksums no fuzzer would find. */
// SPDX-License-Identifier: Apache-2.0
#include "data/lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Bytes and lines that are read: a few packed bytes may be any number of them. */
enum { ENOUGH = 1 << 17, MOST_LINES = 256, KINDS = 3 };

/* A member of one stored block. */
static void add_member(struct text *packed, const uint8_t *bytes, size_t len)
{
    static const unsigned char head[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255, 1};
    uint16_t sizes[] = {(uint16_t)len, (uint16_t)~len};
    uint32_t tail[] = {(uint32_t)crc32(0, bytes, (unsigned)len), (uint32_t)len};
    BUG_IF(len > UINT16_MAX);
    text_add(packed, head, sizeof head);
    text_add(packed, sizes, sizeof sizes);
    text_add(packed, bytes, len);
    text_add(packed, tail, sizeof tail);
}

/* How many lines there are, up to `most`; *st: why there are no more. */
static size_t walk(const void *bytes, size_t len, const char *name, size_t most, enum status *st)
{
    struct lines *l;
    const char *line;
    size_t line_len, total = 0, count = 0;
    bool end = false;
    FILE *file = fmemopen((void *)(uintptr_t)bytes, len, "rb");
    BUG_IF(!file);
    *st = lines_take(&l, file, name);
    BUG_IF(*st);
    while (total < ENOUGH && count < most) {
        *st = lines_next(l, &line, &line_len, &end);
        if (*st || end) break;
        count++;
        BUG_IF(memchr(line, '\n', line_len));
        total += line_len + 1;
    }
    lines_close(l);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    enum status st;
    if (!len) return 0;
    int kind = bytes[0] % KINDS;
    size_t rest = len - 1;
    const uint8_t *text = bytes + 1;
    if (kind < 2) {
        walk(text, rest, kind ? "fuzz.zst" : "fuzz.gz", MOST_LINES, &st);
        BUG_IF(st && st != STATUS_DATA);
        return 0;
    }
    struct text packed = {0};
    size_t breaks = 0;
    for (size_t i = 0; i < rest; i++) breaks += text[i] == '\n';
    add_member(&packed, text, rest / 3);
    add_member(&packed, text + rest / 3, rest - rest / 3);
    size_t count = walk(packed.data, packed.len, "fuzz.gz", SIZE_MAX, &st);
    BUG_IF(st || count != breaks + (rest && text[rest - 1] != '\n'));
    text_release(&packed);
    return 0;
}
