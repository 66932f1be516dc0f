/* stages.h -- which blocks of the model each stage of a pipeline holds.
 *
 * The embedding is with the first stage, the head with the last.  Stages are numbered as the data
 * goes through them; schedule.h says which rank has which. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "parallel/schedule.h"

/* name, who splits like that, where what does not divide goes */
#define SPLIT_LIST(X)                                                                              \
    X(first, "torchtitan", "embedding and head count as layers; the rest to the first stages")     \
    X(last, "NxD Training", "blocks alone count; the rest to the last stages")                     \
    X(cuts, "NxD Training", "after the blocks that are named")

enum split {
#define X(name, whose, text) SPLIT_##name,
    SPLIT_LIST(X)
#undef X
};

enum { MOST_CUTS = 255 };

struct stages {
    enum split split;
    int blocks, pp, chunks;
    int first_less, last_less;     /* first: layers that the embedding and the head count as */
    int cuts[MOST_CUTS], num_cuts; /* cuts: the last block of each stage but the last */
};

/* Stage s holds blocks begin[s] to begin[s + 1] - 1: pp * chunks + 1 numbers; NULL: only checks.
 * A first or last stage may hold none, where embedding or head count as much as its share.
 * CONFIG: a stage in between would be empty, or cuts that are not pp * chunks - 1 ascending blocks;
 * the message has the nearest pipeline_parallel_degree that would do. */
enum status stages_split(const struct stages *s, int *begin);

/* torchtitan's number of chunks: as many as stages of layers_per_stage layers make, by the same
 * count of layers; layers_per_stage below 1: one, or two where the schedule is interleaved. CONFIG:
 * they do not make whole chunks, or one where the schedule needs several, or the reverse; the
 * message has the nearest layers_per_stage that would do. */
enum status stages_chunks(const struct stages *s, enum schedule_kind kind, int layers_per_stage,
                          int *chunks);
