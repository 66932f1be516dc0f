/* lines.c -- fuzzes the reader of compressed text files: any bytes must yield lines or a clean
 * error.
 *
 * The first byte selects zstd, gzip, or gzip where the rest is the uncompressed text of two members
 * whose checksums we compute. */
// SPDX-License-Identifier: Apache-2.0
#include "data/lines.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Limits on what is read, because a few compressed bytes can expand to any size. */
enum { MAX_BYTES = 1 << 17, MAX_LINES = 256, KINDS = 3 };

/* Appends a gzip member with one stored block. */
static void add_member(struct text *compressed, const uint8_t *bytes, size_t len)
{
    static const unsigned char head[] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255, 1};
    uint16_t sizes[] = {(uint16_t)len, (uint16_t)~len};
    uint32_t tail[] = {(uint32_t)crc32(0, bytes, (unsigned)len), (uint32_t)len};
    BUG_IF(len > UINT16_MAX);
    text_add(compressed, head, sizeof head);
    text_add(compressed, sizes, sizeof sizes);
    text_add(compressed, bytes, len);
    text_add(compressed, tail, sizeof tail);
}

/* Counts lines, up to `max`; *st: the status of the last read. */
static size_t walk(const void *bytes, size_t len, const char *name, size_t max, enum status *st)
{
    struct lines *l;
    const char *line;
    size_t line_len, total = 0, count = 0;
    bool end = false;
    FILE *file = fmemopen((void *)(uintptr_t)bytes, len, "rb");
    BUG_IF(!file);
    *st = lines_take(&l, file, name);
    BUG_IF(*st);
    while (total < MAX_BYTES && count < max) {
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
        walk(text, rest, kind ? "fuzz.zst" : "fuzz.gz", MAX_LINES, &st);
        BUG_IF(st && st != STATUS_DATA);
        return 0;
    }
    struct text compressed = {0};
    size_t newlines = 0;
    for (size_t i = 0; i < rest; i++) newlines += text[i] == '\n';
    add_member(&compressed, text, rest / 3);
    add_member(&compressed, text + rest / 3, rest - rest / 3);
    size_t count = walk(compressed.data, compressed.len, "fuzz.gz", SIZE_MAX, &st);
    BUG_IF(st || count != newlines + (rest && text[rest - 1] != '\n'));
    text_release(&compressed);
    return 0;
}
