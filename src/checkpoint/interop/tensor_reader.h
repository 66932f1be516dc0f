/* tensor_reader.h -- reads the elements of one tensor of a model's files: safetensors, or slices of
 * torch files.  Weights in FP8 are multiplied by their scales.
 *
 * Memory   Files are mapped.  Pages that were read are released every few megabytes. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "checkpoint/interop/tensor_slices.h"
#include "checkpoint/interop/weight_scale.h"
#include "formats/safetensors.h"
#include "tensor/dtype.h"

struct tensor_reader {
    const struct safetensors *file;
    const struct safetensors_tensor *tensor;
    struct weight_scale scale;          /* of a tensor in FP8 */
    uint64_t begin, end;                /* elements read since pages were last released */
    const struct tensor_slices *slices; /* of torch files; `file` is NULL then */
    const struct sliced_tensor *sliced;
};
static inline bool tensor_reader_is_open(const struct tensor_reader *r)
{
    return r->file || r->sliced;
}
/* Reads `count` elements from `first` on, as `dtype` (F32 or BF16).  DATA, IO: as
 * file_map_check.  DATA: the tensor is in FP8 and has no scales. */
enum status tensor_reader_read(struct tensor_reader *r, size_t first, size_t count,
                               enum dtype dtype, void *out);
void tensor_reader_close(struct tensor_reader *r); /* releases the remaining pages */
