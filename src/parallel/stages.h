/* stages.h -- how the blocks of the model are divided into pipeline stages.
 *
 * The embedding is in the first stage, the head in the last.  Stages are numbered in the order of
 * forward; schedule.h assigns them to ranks. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "parallel/schedule.h"

enum split {
    SPLIT_first, /* torchtitan's: embedding and head count as layers; first stages get the rest */
    SPLIT_last,  /* NxD Training's: only blocks count; the last stages get the rest */
    SPLIT_cuts,  /* NxD Training's: after given blocks */
};

enum { MAX_CUTS = 255 };

struct stages {
    enum split split;
    int blocks, pp, chunks;
    int first_less, last_less;    /* SPLIT_first: layers that embedding and head count as */
    int cuts[MAX_CUTS], num_cuts; /* SPLIT_cuts: the last block of each stage but the last */
};

/* Stage s holds blocks begin[s] to begin[s + 1] - 1; begin has pp * chunks + 1 elements, or is NULL
 * to only check.  The first or last stage may be empty if embedding or head count as a whole stage.
 * CONFIG: a stage in between would be empty, with the closest valid pipeline_parallel_degree; or
 * cuts that are not pp * chunks - 1 ascending blocks. */
enum status stages_split(const struct stages *s, int *begin);

/* The number of chunks, computed as torchtitan does: as many stages as layers_per_stage layers each
 * make, with layers counted as above; with layers_per_stage below 1 one, or two for an interleaved
 * schedule.  CONFIG: not a whole number of chunks, or one for a schedule that needs several, or the
 * reverse; with the closest valid layers_per_stage. */
enum status stages_chunks(const struct stages *s, enum schedule_kind kind, int layers_per_stage,
                          int *chunks);
