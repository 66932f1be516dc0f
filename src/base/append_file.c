// SPDX-License-Identifier: Apache-2.0
#include "base/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status append_file_open(struct append_file *f, const char *path, int flags)
{
    *f = (struct append_file){.fd = -1};
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    if (fd < 0) FAIL(IO, "%s: %s", path, strerror(errno));
    f->fd = fd, f->path = heap_strdup(path);
    return STATUS_OK;
}

void append_file_init(struct append_file *f, const char *path)
{
    *f = (struct append_file){.fd = -1, .path = heap_strdup(path)};
}

void append_file_suspend(struct append_file *f)
{
    if (f->path && f->fd >= 0) close(f->fd);
    f->fd = -1;
}

void append_file_close(struct append_file *f)
{
    append_file_suspend(f);
    free(f->path);
    text_release(&f->late);
    *f = (struct append_file){.fd = -1};
}

bool append_file_is_late(const struct append_file *f) { return f->late.len || f->num_lost; }

/* Opens the file if it is not open, or was deleted: what is written after that would be lost
 * silently. */
static bool open_if_needed(struct append_file *f)
{
    struct stat s;
    if (f->fd >= 0 && (fstat(f->fd, &s) != 0 || s.st_nlink)) return true;
    int fd = open(f->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    f->error = errno;
    if (fd < 0) return false;
    append_file_suspend(f);
    f->fd = fd;
    return true;
}

/* Writes as much as possible and returns how much that was. */
static size_t write_some(struct append_file *f, const char *bytes, size_t len)
{
    size_t written = 0;
    while (written < len) {
        ssize_t n = write(f->fd, bytes + written, len - written);
        if (n > 0) {
            written += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            f->error = n ? errno : ENOSPC;
            break;
        }
    }
    return written;
}

bool append_file_flush(struct append_file *f)
{
    if (!open_if_needed(f)) return false;
    size_t written = write_some(f, f->late.data, f->late.len);
    if (written) {
        memmove(f->late.data, f->late.data + written, f->late.len - written + 1);
        f->late.len -= written;
    }
    return !f->late.len;
}

/* Keeps a record, of which `written` bytes are in the file.  Those after a lost one are lost, too,
 * so that there is one gap. */
static void keep(struct append_file *f, const char *record, size_t len, size_t written)
{
    if (written || (!f->num_lost && f->late.len + len <= APPEND_FILE_LATE_BYTES)) {
        text_add(&f->late, record + written, len - written);
        f->num_late++;
    } else {
        f->num_lost++;
    }
}

bool append_file_write(struct append_file *f, const void *record, size_t len)
{
    size_t written = 0;
    if (append_file_flush(f)) {
        f->num_late = 0;
        written = write_some(f, record, len);
    }
    if (written < len) keep(f, record, len, written);
    return written == len;
}
