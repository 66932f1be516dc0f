/* tensor_source.h -- an abstract reader of the elements that this rank's shard holds.
 *
 * Saving and conversion read tensors through it, whether they are in memory, on a device or in
 * other files. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "model/shard.h"
#include "model/value_check.h"
#include "tensor/store.h"

#include <stddef.h>

enum { TENSOR_SOURCE_ELEMENTS = 1 << 20 }; /* per read, at most */

struct tensor_source {
    /* Reads elements [first, first + count) of the tensor that run `p` belongs to; the run contains
     * them.  count is at most TENSOR_SOURCE_ELEMENTS; *values is valid until the next call. */
    enum status (*read)(void *context, const struct shard_run *p, size_t first, size_t count,
                        const float **values);
    void *context;
};

/* Reads a flat f32 buffer in host memory. */
struct tensor_source tensor_source_flat(const float *flat);

/* The elements that are cached in `values`. */
struct stored_window {
    const struct stored_source *of; /* NULL: nothing */
    size_t at, count;               /* elements of its flat buffer */
};

/* Reads a flat buffer in device memory, or one that is not f32.  A matrix that tensor parallelism
 * divides by columns has a run for each row: these are read together, since each read of device
 * memory waits for it. */
struct stored_source {
    struct store store;
    float *values; /* TENSOR_SOURCE_ELEMENTS, in host memory */
    /* Sources with the same `values` share a window; NULL: every run is read alone. */
    struct stored_window *window;
    const struct shard *shard; /* the runs of the flat buffer */
};
struct tensor_source tensor_source_stored(struct stored_source *s);

/* Reads a source of another shard, which has all runs that are read, elsewhere in its buffer. */
struct moved_source {
    struct tensor_source from;
    const struct shard *shard; /* of `from` */
};
struct tensor_source tensor_source_moved(struct moved_source *s);

/* Reads another source and checks its values (model/value_check.h).  A bad one does not fail the
 * read, since other ranks wait for the elements; tensor_source_check fails afterwards. */
struct checked_source {
    struct tensor_source from;
    const struct layout *layout; /* borrowed */
    enum value_kind kind;
    int rank; /* for the message */
    /* The first bad value: */
    bool is_bad;
    int tensor;
    size_t element;
    double value;
};
struct tensor_source tensor_source_checked(struct checked_source *s);
/* DIVERGED: a value that was read is bad; the message has tensor and rank. */
enum status tensor_source_check(const struct checked_source *s);
