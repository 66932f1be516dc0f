// SPDX-License-Identifier: Apache-2.0
#include "formats/wandb_log.h"

#include <string.h>
#include <zlib.h>

enum { BLOCK_BYTES = 32768, HEADER_BYTES = 7 };
enum { FULL = 1, FIRST = 2, MIDDLE = 3, LAST = 4 };

static const char file_header[HEADER_BYTES + 1] = ":W&B\xe1\xbe\0";

void wandb_log_begin(struct text *t) { text_add(t, file_header, HEADER_BYTES); }

static uint32_t chunk_crc(int type, const void *data, size_t len)
{
    unsigned char byte = (unsigned char)type;
    return (uint32_t)crc32(crc32(0, &byte, 1), data, (unsigned)len);
}

static void add_chunk(struct text *t, int type, const char *data, size_t len)
{
    uint32_t crc = chunk_crc(type, data, len);
    const char header[HEADER_BYTES] = {
        (char)(crc & 255), (char)(crc >> 8 & 255), (char)(crc >> 16 & 255),
        (char)(crc >> 24), (char)(len & 255),      (char)(len >> 8),
        (char)type,
    };
    text_add(t, header, sizeof header);
    text_add(t, data, len);
}

void wandb_log_add(struct text *t, uint64_t offset, const void *record, size_t len)
{
    static const char zeros[HEADER_BYTES];
    const char *at = record;
    size_t room = BLOCK_BYTES - (size_t)(offset % BLOCK_BYTES), n;
    bool is_first = true, is_last;
    if (room < HEADER_BYTES) text_add(t, zeros, room), room = BLOCK_BYTES;
    do {
        room -= HEADER_BYTES;
        is_last = len <= room;
        n = is_last ? len : room;
        add_chunk(t, is_first ? (is_last ? FULL : FIRST) : (is_last ? LAST : MIDDLE), at, n);
        at += n, len -= n;
        is_first = false, room = BLOCK_BYTES;
    } while (!is_last);
}

bool wandb_log_open(struct wandb_log_reader *r, const char *bytes, size_t len)
{
    *r = (struct wandb_log_reader){.bytes = bytes, .len = len, .at = HEADER_BYTES};
    return len >= HEADER_BYTES && !memcmp(bytes, file_header, HEADER_BYTES);
}

void wandb_log_close(struct wandb_log_reader *r) { text_release(&r->record); }

/* Appends the chunk at *at to the record and returns its type; 0: none that is whole. */
static int next_chunk(struct wandb_log_reader *r, size_t *at)
{
    size_t room = BLOCK_BYTES - *at % BLOCK_BYTES;
    if (room < HEADER_BYTES) *at += room, room = BLOCK_BYTES;
    if (*at > r->len || r->len - *at < HEADER_BYTES) return 0;
    const unsigned char *h = (const unsigned char *)r->bytes + *at;
    uint32_t crc = h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 24;
    size_t len = h[4] | (size_t)h[5] << 8;
    if (HEADER_BYTES + len > room || HEADER_BYTES + len > r->len - *at) return 0;
    const char *data = r->bytes + *at + HEADER_BYTES;
    if (crc != chunk_crc(h[6], data, len)) return 0;
    text_add(&r->record, data, len);
    *at += HEADER_BYTES + len;
    return h[6];
}

bool wandb_log_next(struct wandb_log_reader *r)
{
    size_t at = r->at;
    text_clear(&r->record);
    int type = next_chunk(r, &at);
    if (type == FIRST) do
            type = next_chunk(r, &at);
        while (type == MIDDLE);
    else if (type != FULL)
        return false;
    if (type != FULL && type != LAST) return false;
    r->at = at;
    return true;
}
