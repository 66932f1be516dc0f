/* elastic.h -- training.determinism = "elastic": sums of gradients whose bits do not depend on the
 * number of data-parallel ranks.
 *
 * Order    Microbatch j of reader r is number j * readers + r of the step, and consists of the same
 *          rows for any number of readers.  Each `canonical` consecutive microbatches are summed
 *          over pairs of neighbors, then over pairs of pairs, and so on; the sums of these trees
 *          are added one after the other.  `canonical` and `readers` are powers of two.  So a
 *          reduction of the j-th microbatches of all readers (comm.h) is the lowest levels of a
 *          tree, and each rank adds the other levels for its own shard.
 * Memory   Gradient buffers form a stack: 0 has the sum of all trees before, those above it have
 *          partial sums of decreasing height, like the ones of a binary counter. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { ELASTIC_MAX = 4096, ELASTIC_MAX_CHOICE = 1024 };

struct elastic {
    int64_t canonical;    /* microbatches of a tree; 0: elastic sums are off */
    int64_t microbatches; /* of a step, over all readers */
    int readers;          /* data-parallel ranks with different rows */
    int contexts;         /* context-parallel ranks */
};

/* The largest power of two, up to ELASTIC_MAX_CHOICE, that divides the microbatches of a step. */
int64_t elastic_choose(int64_t microbatches);
/* CONFIG: trees do not divide the step, or the readers a tree. */
enum status elastic_check(const struct elastic *e);

/* This rank's microbatches of a tree. */
int elastic_leaves(const struct elastic *e);
/* Parts that units are divided into so that every layout's shards consist of whole parts. */
int elastic_parts(const struct elastic *e);

/* The buffer for the gradients of this rank's i-th microbatch of the step. */
int elastic_buffer(const struct elastic *e, int i);
/* How often, after that microbatch, the highest buffer is added to the one below. */
int elastic_merges(const struct elastic *e, int i);
/* Buffers for all microbatches of a rank.  `direct`: the gradients come from elsewhere and are
 * added in the first merge, without a buffer of their own. */
int elastic_num_buffers(const struct elastic *e, bool direct);
