// SPDX-License-Identifier: Apache-2.0
#include "data/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { ROOM = 1 << 16, LONGEST = 1 << 30, GZIP = 15 + 16 /* window bits, and its header */ };

struct lines {
    char *path;
    FILE *file;
    bool gzip; /* else zstd */
    z_stream gz;
    ZSTD_DStream *zstd;
    unsigned char *packed; /* read and not yet unpacked: [used, have) */
    size_t used, have;
    bool inside; /* a member or frame has begun and not ended */
    bool full;   /* the last piece filled its room: more may wait inside */
    struct text plain;
    size_t at; /* in plain */
    bool ended;
};

static bool ends_in(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);
    return n > m && !strcmp(path + n - m, suffix);
}

bool lines_is_compressed(const char *path) { return ends_in(path, ".gz") || ends_in(path, ".zst"); }

enum status lines_open(struct lines **out, const char *path)
{
    *out = NULL;
    FILE *file = fopen(path, "rbe");
    if (!file) FAIL(IO, "%s: %s", path, strerror(errno));
    return lines_take(out, file, path);
}

enum status lines_take(struct lines **out, FILE *file, const char *path)
{
    struct lines *l = *out = heap(sizeof *l);
    l->file = file;
    l->path = heap_string(path, strlen(path));
    l->packed = heap(ROOM);
    l->inside = true; /* no bytes at all are a file cut off */
    enum status st = STATUS_OK;
    if (ends_in(path, ".gz")) {
        l->gzip = inflateInit2(&l->gz, GZIP) == Z_OK;
        if (!l->gzip) FAIL_OUT(MEMORY, "%s: zlib does not start", path);
    } else {
        l->zstd = ZSTD_createDStream();
        if (!l->zstd) FAIL_OUT(MEMORY, "%s: zstd does not start", path);
    }
    return STATUS_OK;
out:
    lines_close(l);
    *out = NULL;
    return st;
}

void lines_close(struct lines *l)
{
    if (!l) return;
    if (l->gzip) inflateEnd(&l->gz);
    if (l->file) fclose(l->file);
    ZSTD_freeDStream(l->zstd);
    text_release(&l->plain);
    free(l->packed);
    free(l->path);
    free(l);
}

/* Unpacks into the ROOM bytes at `to`. */
static enum status unpack_gzip(struct lines *l, char *to, size_t *made)
{
    if (!l->inside) inflateReset(&l->gz); /* members may follow each other */
    l->gz.next_in = l->packed + l->used, l->gz.avail_in = (uInt)(l->have - l->used);
    l->gz.next_out = (unsigned char *)to, l->gz.avail_out = ROOM;
    int result = inflate(&l->gz, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        FAIL(DATA, "%s: %s", l->path, l->gz.msg ? l->gz.msg : zError(result));
    l->used = l->have - l->gz.avail_in;
    l->inside = result != Z_STREAM_END;
    *made = ROOM - l->gz.avail_out;
    return STATUS_OK;
}

static enum status unpack_zstd(struct lines *l, char *to, size_t *made)
{
    ZSTD_inBuffer in = {l->packed, l->have, l->used};
    ZSTD_outBuffer out = {to, ROOM, 0};
    size_t pending = ZSTD_decompressStream(l->zstd, &out, &in);
    if (ZSTD_isError(pending)) FAIL(DATA, "%s: %s", l->path, ZSTD_getErrorName(pending));
    l->used = in.pos;
    l->inside = pending != 0;
    *made = out.pos;
    return STATUS_OK;
}

static enum status refill(struct lines *l)
{
    l->used = 0;
    l->have = fread(l->packed, 1, ROOM, l->file);
    if (ferror(l->file)) FAIL(IO, "%s: %s", l->path, strerror(errno));
    l->ended = !l->have;
    if (l->ended && l->inside) FAIL(DATA, "%s: the file is cut off", l->path);
    return STATUS_OK;
}

static enum status more(struct lines *l)
{
    memmove(l->plain.data, l->plain.data + l->at, l->plain.len - l->at);
    l->plain.len -= l->at;
    l->at = 0;
    if (l->plain.len > LONGEST) FAIL(DATA, "%s: a line of more than %d bytes", l->path, LONGEST);
    text_reserve(&l->plain, ROOM);
    if (l->used == l->have && !l->full) TRY(refill(l));
    if (l->ended) return STATUS_OK;
    size_t made = 0;
    char *to = l->plain.data + l->plain.len;
    TRY(l->gzip ? unpack_gzip(l, to, &made) : unpack_zstd(l, to, &made));
    l->full = l->inside && made == ROOM;
    l->plain.len += made;
    return STATUS_OK;
}

enum status lines_next(struct lines *l, const char **line, size_t *len, bool *end)
{
    size_t searched = 0;
    text_reserve(&l->plain, ROOM);
    for (;;) {
        const char *begin = l->plain.data + l->at, *stop = NULL;
        size_t have = l->plain.len - l->at;
        stop = memchr(begin + searched, '\n', have - searched);
        *end = l->ended && !have;
        if (*end) return STATUS_OK;
        if (stop || l->ended) {
            *line = begin;
            *len = stop ? (size_t)(stop - begin) : have;
            l->at += *len + (stop != NULL);
            return STATUS_OK;
        }
        searched = have;
        TRY(more(l));
    }
}
