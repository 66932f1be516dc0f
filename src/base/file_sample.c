// SPDX-License-Identifier: Apache-2.0
#include "base/file_sample.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/heap.h"
#include "base/rng.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    END_BYTES = 64 << 10,
    SAMPLE_BYTES = 4 << 10,
    SAMPLES = 64,
    ALL_BYTES = 2 * END_BYTES + SAMPLES * SAMPLE_BYTES,
    CHUNK_BYTES = 64 << 10
};

struct sample_range {
    uint64_t begin, bytes;
};

/* Which ranges of a file of more than ALL_BYTES are read, in ascending order.  They may overlap. */
static void choose_ranges(uint64_t size, struct sample_range ranges[SAMPLES + 2])
{
    uint64_t each = size / SAMPLES; /* more than SAMPLE_BYTES */
    ranges[0] = (struct sample_range){0, END_BYTES};
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct rng_block b = rng_philox(size, i, 0, 0, 0);
        uint64_t offset = ((uint64_t)b.bits[0] << 32 | b.bits[1]) % (each - SAMPLE_BYTES);
        ranges[i + 1] = (struct sample_range){i * each + offset, SAMPLE_BYTES};
    }
    ranges[SAMPLES + 1] = (struct sample_range){size - END_BYTES, END_BYTES};
}

/* Continues *hash with a range of the file, in chunks of the buffer's size. */
static enum status hash_range(int fd, const char *path, struct sample_range r, char *buffer,
                              uint64_t *hash)
{
    for (uint64_t at = 0; at < r.bytes; at += CHUNK_BYTES) {
        size_t n = r.bytes - at < CHUNK_BYTES ? (size_t)(r.bytes - at) : CHUNK_BYTES;
        TRY(file_read_at(fd, path, buffer, n, r.begin + at));
        *hash = checksum_hash64(*hash, buffer, n);
    }
    return STATUS_OK;
}

static enum status hash_ranges(int fd, const char *path, uint64_t size, uint64_t *hash)
{
    struct sample_range ranges[SAMPLES + 2];
    int num_ranges = 1;
    enum status st = STATUS_OK;
    ranges[0] = (struct sample_range){0, size};
    if (size > ALL_BYTES) choose_ranges(size, ranges), num_ranges = SAMPLES + 2;
    for (int i = 0; i < num_ranges && num_ranges > 1; i++) /* all reads wait for the disk at once */
        posix_fadvise(fd, (off_t)ranges[i].begin, (off_t)ranges[i].bytes, POSIX_FADV_WILLNEED);
    char *buffer = heap(CHUNK_BYTES);
    for (int i = 0; i < num_ranges && !st; i++) st = hash_range(fd, path, ranges[i], buffer, hash);
    free(buffer);
    return st;
}

enum status file_sample_hash(const char *path, uint64_t *hash, int64_t *bytes, int64_t *mtime_ns)
{
    struct stat s;
    uint64_t size;
    int fd;
    TRY(file_open(path, &fd, &size));
    enum status st = STATUS_OK;
    if (fstat(fd, &s) != 0) FAIL_OUT(IO, "%s: %s", path, strerror(errno));
    *hash = checksum_hash64(0, &size, sizeof size);
    TRY_OUT(hash_ranges(fd, path, size, hash));
    *bytes = (int64_t)size;
    *mtime_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
out:
    close(fd);
    return st;
}

enum status file_sample_hash_whole(const char *path, uint64_t *hash, int64_t *bytes)
{
    uint64_t size;
    int fd;
    TRY(file_open(path, &fd, &size));
    char *buffer = heap(CHUNK_BYTES);
    *hash = 0;
    enum status st = hash_range(fd, path, (struct sample_range){0, size}, buffer, hash);
    *bytes = (int64_t)size;
    free(buffer);
    close(fd);
    return st;
}
