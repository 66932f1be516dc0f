/* torch.h -- what torch.save writes (since 1.6): a ZIP archive of a pickle and of the numbers that
 * its tensors are views of.
 *
 * Memory   Tensors point into the archive's bytes, which are borrowed, and so is its name. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/pickle.h"
#include "formats/safetensors.h"
#include "formats/zip.h"

enum { TORCH_DIMS = 8, TORCH_NAME = 512 };

struct torch_archive {
    const char *name;
    struct zip zip;
    struct pickle pickle;
    const char *folder; /* in the archive, that all of it is in; not ended by a NUL */
    size_t folder_len;
};

struct torch_tensor {
    char *name; /* keys of the dictionaries that lead to it, joined by dots; owned */
    enum safetensors_dtype dtype;
    int num_dims;
    int64_t shape[TORCH_DIMS], strides[TORCH_DIMS]; /* in elements */
    const unsigned char *data;                      /* of its first element */
    int64_t reference; /* of torch_archive_references, where `data` is NULL */
};

/* DATA: what is wrong with it.  UNSUPPORTED: its numbers are big-endian, or it is of before torch
 * 1.6.  After a failure, too, close it. */
enum status torch_archive_open(struct torch_archive *a, const unsigned char *bytes, uint64_t size,
                               const char *name);
void torch_archive_close(struct torch_archive *a);

struct torch_tensors {
    struct torch_tensor *all; /* owned */
    size_t count;
};
/* Every tensor of a dictionary, and of those in it; a tensor that is the root is called "".  What
 * is neither is left out.  DATA: a tensor's numbers are not in the archive. */
enum status torch_archive_tensors(const struct torch_archive *a, struct torch_tensors *t);
/* The same, and what torch_xla's serialization puts where a tensor was that has a file of its own:
 * its name, and its number among those files. */
enum status torch_archive_references(const struct torch_archive *a, struct torch_tensors *t);
void torch_tensors_release(struct torch_tensors *t);

/* data.pkl of these tensors: a dictionary of them, in which the k-th has the numbers of data/k.
 * `tensor` alone is the root where there is one without a name. */
void torch_pickle(const struct torch_tensor *tensors, size_t count, struct text *out);
