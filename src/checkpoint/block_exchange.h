/* exchange.h -- blocks of a file, put together from what the ranks hold of its tensors.
 *
 * Ranks    Elements that several ranks hold have the same bits on all of them: a rank takes its own
 *          first, and of ranks that hold the same runs of a tensor only the lowest sends.
 * Memory   A byte for each element of a block, and with several ranks two buffers for what is sent
 *          and received: of a block's elements, and 8 bytes for each run that they lie in. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "formats/safetensors.h"
#include "model/params.h"
#include "tensor/store.h"

enum { EXCHANGE_ELEMENTS = 1 << 20 }; /* of a block, at most */

/* Where the numbers of this rank's pieces are. */
struct tensor_source {
    /* Elements [first, first + count) of the tensor that piece `p` is of, and lying in it; count is
     * at most EXCHANGE_ELEMENTS.  *values stays valid until the next call. */
    enum status (*read)(void *context, const struct piece *p, size_t first, size_t count,
                        const float **values);
    void *context;
};
/* A source over a flat buffer of the pieces. */
struct tensor_source tensor_source_flat(const float *flat);

/* The same, where the buffer is a device's, or of another form. */
struct stored_flat {
    struct store store;
    float *run; /* EXCHANGE_ELEMENTS of the host's */
};
struct tensor_source tensor_source_stored(struct stored_flat *f);

/* A run of a tensor's elements, and where it begins in its block. */
struct block_span {
    int tensor;
    size_t first, count, at;
    const struct tensor_source *source;
};
struct file_block {
    struct block_span *spans;
    size_t count;
};

struct block_exchange {
    const struct layout *layout;
    const struct comm *ranks;
    struct piece *pieces; /* this rank's, by tensor and place; owned */
    size_t num_pieces;
    uint64_t *fingerprints; /* of the runs that each rank holds of each tensor, 0: none; owned */
    bool *sends;            /* no lower rank holds the same of that tensor; owned */
    uint32_t *out, *in;
    size_t out_words, in_words; /* room for so many */
    unsigned char *filled;
};

/* Collective.  `p` names no element twice. */
enum status block_exchange_open(struct block_exchange *x, const struct layout *l,
                                const struct pieces *p, const struct comm *ranks);
void block_exchange_close(struct block_exchange *x);

/* blocks[r] is the block that rank r puts together; `bytes` gets this rank's, as numbers of
 * `dtype`. Collective; a failure is this rank's own, unless it is COMM.  SHAPE: an element that no
 * rank holds. */
enum status block_exchange_fill(struct block_exchange *x, const struct file_block *blocks,
                                enum safetensors_dtype dtype, void *bytes);
