// SPDX-License-Identifier: Apache-2.0
#include "data/lines.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

enum { ROOM = 1 << 16, LONGEST = 1 << 30 };

struct lines {
    char *path;
    gzFile gz; /* one of the two */
    FILE *file;
    ZSTD_DStream *zstd;
    ZSTD_inBuffer in;
    unsigned char *packed;
    size_t pending; /* zstd: what it still expects; 0 at the end of a frame */
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
    struct lines *l = *out = heap(sizeof *l);
    l->path = heap_string(path, strlen(path));
    enum status st = STATUS_OK;
    if (ends_in(path, ".gz")) {
        l->gz = gzopen(path, "rbe");
        if (!l->gz) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
        gzbuffer(l->gz, ROOM);
        return STATUS_OK;
    }
    l->file = fopen(path, "rbe");
    if (!l->file) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    l->zstd = ZSTD_createDStream();
    l->packed = heap(ROOM);
    l->in = (ZSTD_inBuffer){l->packed, 0, 0};
    return STATUS_OK;
out:
    lines_close(l);
    *out = NULL;
    return st;
}

void lines_close(struct lines *l)
{
    if (!l) return;
    if (l->gz) gzclose(l->gz);
    if (l->file) fclose(l->file);
    ZSTD_freeDStream(l->zstd);
    text_release(&l->plain);
    free(l->packed);
    free(l->path);
    free(l);
}

static enum status more_gzip(struct lines *l)
{
    int error, n = gzread(l->gz, l->plain.data + l->plain.len, ROOM);
    if (n < 0) FAIL(DATA, "%s: %s", l->path, gzerror(l->gz, &error));
    if (n == 0) {
        gzerror(l->gz, &error);
        if (error == Z_BUF_ERROR) FAIL(DATA, "%s: the file is cut off", l->path);
        l->ended = true;
    }
    l->plain.len += (size_t)n;
    return STATUS_OK;
}

static enum status more_zstd(struct lines *l)
{
    if (l->in.pos == l->in.size) {
        l->in = (ZSTD_inBuffer){l->packed, fread(l->packed, 1, ROOM, l->file), 0};
        if (ferror(l->file)) FAIL(IO, "%s: %s", l->path, strerror(errno));
        if (!l->in.size) {
            if (l->pending) FAIL(DATA, "%s: the file is cut off", l->path);
            l->ended = true;
            return STATUS_OK;
        }
    }
    ZSTD_outBuffer out = {l->plain.data + l->plain.len, ROOM, 0};
    l->pending = ZSTD_decompressStream(l->zstd, &out, &l->in);
    if (ZSTD_isError(l->pending)) FAIL(DATA, "%s: %s", l->path, ZSTD_getErrorName(l->pending));
    l->plain.len += out.pos;
    return STATUS_OK;
}

static enum status more(struct lines *l)
{
    memmove(l->plain.data, l->plain.data + l->at, l->plain.len - l->at);
    l->plain.len -= l->at;
    l->at = 0;
    if (l->plain.len > LONGEST) FAIL(DATA, "%s: a line of more than %d bytes", l->path, LONGEST);
    text_reserve(&l->plain, ROOM);
    if (l->gz)
        TRY(more_gzip(l));
    else
        TRY(more_zstd(l));
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
