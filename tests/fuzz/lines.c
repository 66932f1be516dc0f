/* lines.c -- any bytes as a compressed file must give lines or a clean error.
 *
 * The first byte selects zstd, gzip, or gzip with the remaining bytes stored in two valid members,
 * because a fuzzer would not find their checksums. */
// SPDX-License-Identifier: Apache-2.0
#include "data/line_reader.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

/* Limits on bytes and lines read: a few compressed bytes may expand to any number of them. */
enum { ENOUGH = 1 << 17, MOST_LINES = 256, NUM_KINDS = 3 };

/* Appends a gzip member of one stored block. */
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

/* Counts the lines, up to `most`; *st is the status of the last read. */
static size_t walk(const void *bytes, size_t len, const char *name, size_t most, enum status *st)
{
    struct line_reader *l;
    const char *line;
    size_t line_len, total = 0, count = 0;
    bool end = false;
    FILE *file = fmemopen((void *)(uintptr_t)bytes, len, "rb");
    BUG_IF(!file);
    *st = line_reader_from_file(&l, file, name);
    BUG_IF(*st);
    while (total < ENOUGH && count < most) {
        *st = line_reader_next(l, &line, &line_len, &end);
        if (*st || end) break;
        count++;
        BUG_IF(memchr(line, '\n', line_len));
        total += line_len + 1;
    }
    line_reader_close(l);
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    enum status st;
    if (!len) return 0;
    int kind = bytes[0] % NUM_KINDS;
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
