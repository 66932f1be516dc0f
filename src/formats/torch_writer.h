/* torch_writer.h -- an archive as torch.save writes it, into a file at some place: torch.load reads
 * it, with weights_only too.
 *
 * Order    Open, each tensor's numbers in the order of the tensors, close.  Nothing is kept of
 *          them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/torch.h"

struct torch_writer {
    int fd; /* borrowed, and so is the path */
    const char *path;
    uint64_t base; /* where in the file the archive begins */
    struct zip_writer zip;
    const struct torch_tensor *tensors; /* borrowed; F32, BF16, F16, I32 or I64, whole */
    size_t next;
    uint64_t left, at; /* of the tensor under way: bytes to come, and where they go */
    uint32_t crc;
};

/* The dictionary of `tensors`; a single one without a name is the root itself. */
enum status torch_writer_open(struct torch_writer *w, int fd, const char *path, uint64_t base,
                              const struct torch_tensor *tensors, size_t count);
/* The same with any pickle, and no tensors. */
enum status torch_writer_open_pickle(struct torch_writer *w, int fd, const char *path,
                                     uint64_t base, const struct text *pickle);
/* The next bytes of the tensor under way; after its last ones the next is. */
enum status torch_writer_put(struct torch_writer *w, const void *bytes, size_t len);
/* *size: of the whole archive.  All of the tensors were put. */
enum status torch_writer_close(struct torch_writer *w, uint64_t *size);
void torch_writer_release(struct torch_writer *w); /* fine after close, too */
