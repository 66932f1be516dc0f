// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/chunk_reader.h"

#include "checkpoint/rig.h"
#include "comm/ranks.h"

enum { LARGE = 5 * MANIFEST_CHUNK + 12345, NUM_CHUNKS = 6 };
#define LARGE_NAME "large.safetensors"

/* A checkpoint with a large and a small file. */
static const char *large_folder(void)
{
    const char *folder = test_folder();
    struct manifest m = {.folder = folder, .step = 3};
    uint32_t *words = heap(LARGE + sizeof *words);
    for (size_t i = 0; i < LARGE / sizeof *words; i++) words[i] = (uint32_t)i * 2654435761u;
    CHECK_STATUS(OK, manifest_write_file(&m, LARGE_NAME, words, LARGE));
    CHECK_STATUS(OK, manifest_write_file(&m, "small", "text", 4));
    CHECK_STATUS(OK, manifest_finish(&m));
    manifest_release(&m);
    free(words);
    return folder;
}

/* Where a test's reads go; `out` is the folder's file as it was read. */
struct kept {
    char *out;
};

static void keep(void *context, uint64_t at, const void *bytes, size_t len)
{
    struct kept *k = context;
    memcpy(k->out + at, bytes, len);
}

/* Reads bytes [at, end) in reads of odd lengths, alternately into place and through buffers. */
static enum status read_range(struct chunk_reader *r, uint64_t at, uint64_t end, char *out)
{
    size_t file;
    enum status st = STATUS_OK;
    if (!chunk_reader_use(r, LARGE_NAME, LARGE, &file)) return STATUS_MISSING;
    for (uint64_t n = 1; at < end && !st; at += n, n = n * 5 + 3) {
        struct kept k = {out + at};
        char *into = heap(LARGE);
        if (n > end - at) n = end - at;
        const struct chunk_target target = {n % 2 ? into : NULL, keep, &k};
        st = chunk_reader_read(r, file, at, n, &target);
        if (!st && target.to && memcmp(into, out + at, n)) st = STATUS_DEVICE;
        free(into);
    }
    return st;
}

struct ranges {
    const char *folder;
    uint64_t begin, end; /* that the ranks read, each an equal part */
    int64_t flips_after; /* the byte that changes between reading and finishing; -1: none */
};

static enum status read_ranges(const struct comm *world, void *context)
{
    const struct ranges *c = context;
    uint64_t size = (uint64_t)world->size, rank = (uint64_t)world->rank, n = c->end - c->begin;
    struct chunk_reader r;
    char *out = heap(LARGE);
    enum status st = chunk_reader_open(&r, c->folder, true, world);
    if (!st) {
        st = read_range(&r, c->begin + n * rank / size, c->begin + n * (rank + 1) / size, out);
        st = comm_agree(world, st);
    }
    if (!st && c->flips_after >= 0 && rank == 0)
        flip(test_path(c->folder, LARGE_NAME), (uint64_t)c->flips_after, 1);
    if (!st) st = comm_agree(world, STATUS_OK);
    if (!st) st = chunk_reader_finish(&r, world);
    chunk_reader_close(&r);
    free(out);
    return st;
}

TEST(consecutive_reads_verify_every_chunk_so_that_none_is_read_again)
{
    const char *folder = large_folder(), *path = test_path(folder, LARGE_NAME);
    struct ranges c = {.folder = folder, .end = LARGE, .flips_after = -1};
    CHECK_STATUS(OK, ranks_run(1, read_ranges, &c));
    for (uint64_t i = 0; i < NUM_CHUNKS; i++) {
        c.flips_after = (int64_t)(i * MANIFEST_CHUNK + 99);
        CHECK_STATUS(OK, ranks_run(1, read_ranges, &c));
        flip(path, (uint64_t)c.flips_after, 1);
    }
}

static enum status check_read_fails(const struct comm *world, void *context)
{
    RANK_CHECK(read_ranges(world, context) == STATUS_DATA);
    return STATUS_OK;
}

TEST(chunks_that_no_rank_reads_whole_are_verified_in_the_end)
{
    const char *folder = large_folder(), *path = test_path(folder, LARGE_NAME);
    /* Two ranks read chunks 1 to 4; the border between them is within chunk 3. */
    struct ranges c = {.folder = folder, .begin = MANIFEST_CHUNK, .flips_after = -1};
    c.end = 5 * MANIFEST_CHUNK + 99;
    for (uint64_t i = 1; i < NUM_CHUNKS; i++) {
        bool is_whole = i == 1 || i == 2 || i == 4;
        c.flips_after = (int64_t)(i * MANIFEST_CHUNK + 5000);
        CHECK_STATUS(OK, ranks_run(2, is_whole ? read_ranges : check_read_fails, &c));
        flip(path, (uint64_t)c.flips_after, 1);
    }
}

TEST(damage_anywhere_fails_the_read_on_every_rank)
{
    const char *folder = large_folder();
    struct ranges c = {.folder = folder, .end = LARGE, .flips_after = -1};
    for (int ranks = 1; ranks <= 4; ranks++) {
        CHECK_STATUS(OK, ranks_run(ranks, read_ranges, &c));
        for (uint64_t i = 0; i < NUM_CHUNKS; i++) {
            flip(test_path(folder, LARGE_NAME), i * MANIFEST_CHUNK + 12000, 2);
            CHECK_STATUS(OK, ranks_run(ranks, check_read_fails, &c));
            flip(test_path(folder, LARGE_NAME), i * MANIFEST_CHUNK + 12000, 2);
        }
        flip(test_path(folder, "small"), 1, 2);
        CHECK_STATUS(OK, ranks_run(ranks, check_read_fails, &c));
        flip(test_path(folder, "small"), 1, 2);
    }
}

TEST(files_that_are_not_used_are_not_read)
{
    const char *folder = large_folder();
    struct chunk_reader r;
    flip(test_path(folder, LARGE_NAME), 2 * MANIFEST_CHUNK, 1);
    CHECK_STATUS(OK, chunk_reader_open(&r, folder, true, comm_self()));
    CHECK_STATUS(OK, chunk_reader_finish(&r, comm_self()));
    CHECK(!chunk_reader_use(&r, "other", 5, &(size_t){0}));
    CHECK(chunk_reader_use(&r, LARGE_NAME, LARGE, &(size_t){0}));
    CHECK_STATUS(DATA, chunk_reader_finish(&r, comm_self()));
    CHECK_MESSAGE(LARGE_NAME ": checksum mismatch in bytes 2097152 to 3145728");
    chunk_reader_close(&r);
}

TEST(folder_of_another_program_is_read_without_checksums)
{
    const char *folder = large_folder();
    struct chunk_reader r;
    char *out = heap(LARGE);
    flip(test_path(folder, LARGE_NAME), 2 * MANIFEST_CHUNK, 1);
    CHECK_STATUS(OK, chunk_reader_open(&r, folder, false, comm_self()));
    CHECK_STATUS(OK, read_range(&r, 0, LARGE, out));
    CHECK_STATUS(OK, chunk_reader_finish(&r, comm_self()));
    CHECK(((uint32_t *)(void *)out)[1000] == 1000 * 2654435761u);
    chunk_reader_close(&r);
    free(out);
}
