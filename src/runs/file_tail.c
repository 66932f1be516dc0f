// SPDX-License-Identifier: Apache-2.0
#include "runs/file_tail.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void file_tail_release(struct file_tail *t)
{
    text_release(&t->partial);
    *t = (struct file_tail){0};
}

static void start_over(struct file_tail *t, const struct stat *s, uint64_t most)
{
    uint64_t size = (uint64_t)s->st_size;
    text_clear(&t->partial);
    t->device = s->st_dev, t->inode = s->st_ino;
    t->read_to = t->num_skipped = size > most ? size - most : 0;
    t->drops_line = t->num_skipped > 0; /* most likely the middle of a line */
}

/* The next piece of a line; `ends` with its newline. */
static void add_piece(struct file_tail *t, const char *bytes, size_t len, bool ends,
                      const struct file_tail_visitor *v)
{
    if (t->partial.len + len > FILE_TAIL_LINE) t->drops_line = true;
    if (!t->drops_line && ends && !t->partial.len)
        v->line(v->context, bytes, len);
    else if (!t->drops_line)
        text_add(&t->partial, bytes, len);
    if (!t->drops_line && ends && t->partial.len)
        v->line(v->context, t->partial.data, t->partial.len);
    if (ends || t->drops_line) text_clear(&t->partial);
    if (ends) t->drops_line = false;
}

static void split_lines(struct file_tail *t, const char *at, size_t len,
                        const struct file_tail_visitor *v)
{
    const char *end = at + len;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        add_piece(t, at, (size_t)((newline ? newline : end) - at), newline != NULL, v);
        at = newline ? newline + 1 : end;
    }
}

enum status file_tail_read(struct file_tail *t, const char *path, uint64_t most,
                           const struct file_tail_visitor *v)
{
    enum { CHUNK = 1 << 18 };
    int fd;
    uint64_t size;
    char *chunk = NULL;
    struct stat s;
    TRY(file_open(path, &fd, &size));
    enum status st = STATUS_OK;
    if (fstat(fd, &s)) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    size = (uint64_t)s.st_size;
    t->written_s = (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
    bool is_same = t->inode == s.st_ino && t->device == s.st_dev && size >= t->read_to;
    if (!is_same) {
        if (t->inode) v->restart(v->context);
        start_over(t, &s, most);
    }
    if (size == t->read_to) goto out;
    chunk = heap(CHUNK);
    /* To the size of now: a run that writes fast does not keep this loop busy. */
    while (t->read_to < size) {
        size_t want = size - t->read_to < CHUNK ? (size_t)(size - t->read_to) : CHUNK;
        ssize_t got = pread(fd, chunk, want, (off_t)t->read_to);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) FAIL_OUT(IO, "%s: read: %s", path, strerror(errno));
        if (got == 0) break; /* truncated meanwhile: the next look starts over */
        split_lines(t, chunk, (size_t)got, v);
        t->read_to += (uint64_t)got;
    }
out:
    free(chunk);
    close(fd);
    return st;
}
