/* torch.h -- reads files of torch.save (PyTorch 1.6 and later): a ZIP archive with a pickle, and
 * the storages that its tensors are views of.
 *
 * Memory   Tensors point into the archive's bytes, which are borrowed, as is its name. */
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
    const char *folder; /* common prefix of all entries, with its slash; not NUL-terminated */
    size_t folder_len;
};

struct torch_tensor {
    char *name; /* dict keys on the path to it, joined by dots, tuples and classes as (); owned */
    enum safetensors_dtype dtype;
    int num_dims;
    int64_t shape[TORCH_DIMS], strides[TORCH_DIMS]; /* in elements */
    const unsigned char *data;                      /* of the first element */
    int64_t reference; /* the file's number, if `data` is NULL: see torch_archive_references */
};

/* DATA: the archive is corrupt.  UNSUPPORTED: big-endian data, or the format before PyTorch 1.6.
 * Close `a` even after a failure. */
enum status torch_archive_open(struct torch_archive *a, const unsigned char *bytes, uint64_t size,
                               const char *name);
/* The same, with objects of any class in the pickle: see pickle_parse_any. */
enum status torch_archive_open_any(struct torch_archive *a, const unsigned char *bytes,
                                   uint64_t size, const char *name);
void torch_archive_close(struct torch_archive *a);

struct torch_tensors {
    struct torch_tensor *all; /* owned */
    size_t count;
};
/* Lists the tensors of a dict and of the dicts nested in it; a root that is a tensor has the name
 * "".  Other values are ignored.  DATA: a tensor exceeds its storage. */
enum status torch_archive_tensors(const struct torch_archive *a, struct torch_tensors *t);
/* Lists those of a dict or list in the archive, where items of lists have their numbers as keys. */
enum status torch_archive_tensors_in(const struct torch_archive *a, const struct pickle_value *v,
                                     struct torch_tensors *t);
/* Lists the TensorReferences of torch_xla, too: each replaces a tensor that has a file of its own,
 * and gives its number. */
enum status torch_archive_references(const struct torch_archive *a, struct torch_tensors *t);
void torch_tensors_release(struct torch_tensors *t);

/* torch's name of a dtype that its tensors can have: "float32", "int64", "complex64". */
const char *torch_dtype_name(enum safetensors_dtype dtype);

/* Writes data.pkl: a dict of these tensors, where the k-th tensor's storage is data/k.  A single
 * tensor with an empty name is the root itself. */
void torch_write_pickle(const struct torch_tensor *tensors, size_t count, struct text *out);
