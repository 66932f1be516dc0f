/* chunk_reader.h -- reads the tensors' files of a folder, and verifies the checksums of a
 * checkpoint from the bytes that are read anyway.
 *
 * Ranks    Opening and finishing are collective.  A rank verifies the chunks that its consecutive
 *          reads cover; finishing reads the others, of which each rank verifies an equal part.  So
 *          every chunk of a file in use is verified, and only chunks that no rank reads whole here
 *          are read again: where tensors or shards meet, and all of the tensors that are read from
 *          a mapping instead.
 * Threads  OpenMP's; each reads one chunk at a time, computes its checksum and uses it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_reader.h"
#include "checkpoint/manifest.h"
#include "comm/comm.h"

enum { CHUNK_READER_MOST = 64 << 20 }; /* bytes of a read */

struct chunk_reader {
    struct manifest manifest; /* of another program's folder: the files in use, no checksums */
    bool has_checksums;
    bool *is_used;     /* by file; owned */
    uint64_t *first;   /* by file: number of its first chunk, counted across files; owned */
    uint8_t *verified; /* a bit for each chunk; owned */
    uint64_t num_chunks;
    size_t file; /* open as `fd` */
    char *path;  /* of that file; owned */
    int fd;      /* -1: none */
    /* Where the last read ended, and the checksum of its chunk up to there, if it is known. */
    uint64_t at;
    uint32_t crc;
    bool has_crc;
};

/* `native`: a checkpoint of ours.  Its files without tensors and the first chunk of the others are
 * then verified.  DATA: damaged.  Close it even after a failure. */
enum status chunk_reader_open(struct chunk_reader *r, const char *folder, bool native,
                              const struct comm *ranks);
void chunk_reader_close(struct chunk_reader *r);

/* Notes that the load uses a file of the folder.  False: the manifest does not list it. */
bool chunk_reader_use(struct chunk_reader *r, const char *path, uint64_t bytes, size_t *file);

/* Finds a tensor in the files and notes that they are used.  False: the reads would not return its
 * values, since it is quantized or not in safetensors; or as chunk_reader_use. */
bool chunk_reader_find(struct chunk_reader *r, const struct tensor_reader *t, size_t *file,
                       uint64_t *at);

/* Notes that all files are used. */
void chunk_reader_use_all(struct chunk_reader *r);

/* Destination of a read. */
struct chunk_target {
    void *to; /* where they go; NULL: into buffers of the threads */
    /* Gets bytes [at, at + len) of the read as soon as a thread has read them. */
    void (*use)(void *context, uint64_t at, const void *bytes, size_t len);
    void *context;
};
/* Reads at most CHUNK_READER_MOST bytes; those of a chunk go to one call of `use`.  DATA: a chunk
 * that is complete now has another checksum; the message has file, offset and tensor. */
enum status chunk_reader_read(struct chunk_reader *r, size_t file, uint64_t at, size_t len,
                              const struct chunk_target *target);

/* Verifies the chunks of files in use that no rank has verified.  DATA: as chunk_reader_read, on
 * all ranks. */
enum status chunk_reader_finish(struct chunk_reader *r, const struct comm *ranks);
