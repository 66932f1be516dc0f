/* torch_writer.h -- writes an archive as torch.save does, at any offset of a file.  torch.load
 * reads it, also with weights_only=True.
 *
 * Order    Open, write the tensors' elements in order, close.  Elements are not buffered. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/torch.h"

struct torch_writer {
    int fd; /* borrowed, as is the path */
    const char *path;
    uint64_t base; /* file offset of the archive */
    struct zip_writer zip;
    const struct torch_tensor *tensors; /* borrowed; contiguous of any dtype that torch.c reads */
    size_t next;
    uint64_t left, at; /* of the current tensor: bytes left, and their offset in the archive */
    uint32_t crc;
};

/* Begins an archive with a dict of `tensors`; a single one with an empty name is the root
 * itself. */
enum status torch_writer_open(struct torch_writer *w, int fd, const char *path, uint64_t base,
                              const struct torch_tensor *tensors, size_t count);
/* Begins an archive with any pickle and without tensors. */
enum status torch_writer_open_pickle(struct torch_writer *w, int fd, const char *path,
                                     uint64_t base, const struct text *pickle);
/* Makes a whole archive of a pickle without tensors, in memory. */
void torch_writer_pickle(const struct text *pickle, struct text *archive);
/* Writes the next bytes of the current tensor; after its last byte the next tensor begins. */
enum status torch_writer_put(struct torch_writer *w, const void *bytes, size_t len);
/* Ends the archive, once all tensors are written, and sets *size to its size. */
enum status torch_writer_close(struct torch_writer *w, uint64_t *size);
void torch_writer_release(struct torch_writer *w); /* allowed after torch_writer_close, too */
