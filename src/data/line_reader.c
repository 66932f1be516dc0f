// SPDX-License-Identifier: Apache-2.0
#include "data/line_reader.h"

#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum {
    BUFFER_BYTES = 1 << 16,
    MAX_LINE = 1 << 30,
    GZIP_WINDOW_BITS = 15 + 16 /* 15, and 16 to expect a gzip header */
};

struct line_reader {
    char *path;
    FILE *file;
    bool gzip; /* else zstd */
    z_stream gz;
    ZSTD_DStream *zstd;
    unsigned char *input; /* compressed; [input_used, input_size) is pending */
    size_t input_used, input_size;
    uint64_t bytes_read;               /* of the file, those in `input` included */
    uint64_t plain_bytes;              /* decompressed */
    uint64_t first_bytes, first_plain; /* of the file and decompressed, with the first output */
    bool in_frame;                     /* a gzip member or zstd frame has begun but not ended */
    bool output_full;                  /* the decompressor filled its output and may hold more */
    struct text plain;
    size_t at;        /* in plain */
    size_t max_line;  /* bytes */
    bool is_too_long; /* the beginning of the current line was dropped */
    bool at_eof;
};

bool line_reader_handles(const char *path)
{
    return file_has_suffix(path, ".gz") || file_has_suffix(path, ".zst");
}

enum status line_reader_open(struct line_reader **out, const char *path)
{
    int fd;
    uint64_t size;
    *out = NULL;
    TRY(file_open(path, &fd, &size));
    FILE *file = fdopen(fd, "rb");
    if (!file) close(fd);
    if (!file) FAIL(IO, "%s: %s", path, strerror(errno));
    return line_reader_from_file(out, file, path);
}

enum status line_reader_from_file(struct line_reader **out, FILE *file, const char *path)
{
    struct line_reader *l = *out = heap(sizeof *l);
    l->file = file;
    l->path = heap_strdup(path);
    l->input = heap(BUFFER_BYTES);
    l->in_frame = true; /* an empty file is truncated */
    l->max_line = MAX_LINE;
    enum status st = STATUS_OK;
    if (file_has_suffix(path, ".gz")) {
        l->gzip = inflateInit2(&l->gz, GZIP_WINDOW_BITS) == Z_OK;
        if (!l->gzip) FAIL_OUT(MEMORY, "%s: cannot initialize zlib", path);
    } else {
        l->zstd = ZSTD_createDStream();
        if (!l->zstd) FAIL_OUT(MEMORY, "%s: cannot initialize zstd", path);
    }
    return STATUS_OK;
out:
    line_reader_close(l);
    *out = NULL;
    return st;
}

void line_reader_close(struct line_reader *l)
{
    if (!l) return;
    if (l->gzip) inflateEnd(&l->gz);
    if (l->file) fclose(l->file);
    ZSTD_freeDStream(l->zstd);
    text_release(&l->plain);
    free(l->input);
    free(l->path);
    free(l);
}

/* The offset in the file up to which it is decompressed. */
static unsigned long long offset(const struct line_reader *l)
{
    return l->bytes_read - (l->input_size - l->input_used);
}

/* Decompresses into the BUFFER_BYTES at `to`. */
static enum status inflate_gzip(struct line_reader *l, char *to, size_t *produced)
{
    if (!l->in_frame) inflateReset(&l->gz); /* the next of concatenated members */
    l->gz.next_in = l->input + l->input_used,
    l->gz.avail_in = (uInt)(l->input_size - l->input_used);
    l->gz.next_out = (unsigned char *)to, l->gz.avail_out = BUFFER_BYTES;
    int result = inflate(&l->gz, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        FAIL(DATA, "%s: byte %llu: %s", l->path, offset(l), l->gz.msg ? l->gz.msg : zError(result));
    l->input_used = l->input_size - l->gz.avail_in;
    l->in_frame = result != Z_STREAM_END;
    *produced = BUFFER_BYTES - l->gz.avail_out;
    return STATUS_OK;
}

static enum status inflate_zstd(struct line_reader *l, char *to, size_t *produced)
{
    ZSTD_inBuffer in = {l->input, l->input_size, l->input_used};
    ZSTD_outBuffer out = {to, BUFFER_BYTES, 0};
    size_t pending = ZSTD_decompressStream(l->zstd, &out, &in);
    if (ZSTD_isError(pending))
        FAIL(DATA, "%s: byte %llu: %s", l->path, offset(l), ZSTD_getErrorName(pending));
    l->input_used = in.pos;
    l->in_frame = pending != 0;
    *produced = out.pos;
    return STATUS_OK;
}

static enum status read_input(struct line_reader *l)
{
    l->input_used = 0;
    l->input_size = fread(l->input, 1, BUFFER_BYTES, l->file);
    if (ferror(l->file))
        FAIL(IO, "%s: cannot read from byte %llu on: %s", l->path,
             (unsigned long long)l->bytes_read, strerror(errno));
    l->bytes_read += l->input_size;
    l->at_eof = !l->input_size;
    if (l->at_eof && l->in_frame)
        FAIL(DATA, "%s: the file is truncated: it ends at byte %llu", l->path,
             (unsigned long long)l->bytes_read);
    return STATUS_OK;
}

static enum status decompress_more(struct line_reader *l)
{
    if (l->at) memmove(l->plain.data, l->plain.data + l->at, l->plain.len - l->at);
    l->plain.len -= l->at;
    l->at = 0;
    text_reserve(&l->plain, BUFFER_BYTES);
    if (l->input_used == l->input_size && !l->output_full) TRY(read_input(l));
    if (l->at_eof) return STATUS_OK;
    size_t produced = 0;
    char *to = l->plain.data + l->plain.len;
    TRY(l->gzip ? inflate_gzip(l, to, &produced) : inflate_zstd(l, to, &produced));
    l->output_full = l->in_frame && produced == BUFFER_BYTES;
    l->plain.len += produced;
    l->plain_bytes += produced;
    if (!l->first_plain) l->first_bytes = offset(l), l->first_plain = produced;
    return STATUS_OK;
}

uint64_t line_reader_bytes(const struct line_reader *l)
{
    double used = (double)(l->plain_bytes - (l->plain.len - l->at));
    uint64_t bytes = offset(l), plain = l->plain_bytes;
    /* zstd takes in a block before it puts out the one before: both differences have that lag */
    if (plain > 2 * l->first_plain) bytes -= l->first_bytes, plain -= l->first_plain;
    return plain ? (uint64_t)((double)bytes * used / (double)plain) : 0;
}

void line_reader_set_limit(struct line_reader *l, size_t bytes) { l->max_line = bytes; }

enum status line_reader_next(struct line_reader *l, const char **line, size_t *len, bool *end)
{
    size_t searched = 0;
    text_reserve(&l->plain, BUFFER_BYTES);
    for (;;) {
        const char *begin = l->plain.data + l->at, *stop = NULL;
        size_t available = l->plain.len - l->at;
        stop = memchr(begin + searched, '\n', available - searched);
        *end = l->at_eof && !available && !l->is_too_long;
        if (*end) return STATUS_OK;
        if (stop || l->at_eof) {
            *line = begin;
            *len = stop ? (size_t)(stop - begin) : available;
            l->at += *len + (stop != NULL);
            if (!l->is_too_long) return STATUS_OK;
            l->is_too_long = false;
            FAIL(RECORD, "%s: a line is longer than %zu bytes", l->path, l->max_line);
        }
        searched = available;
        if (available > l->max_line) {
            l->is_too_long = true;
            l->at = l->plain.len, searched = 0;
        }
        TRY(decompress_more(l));
    }
}
