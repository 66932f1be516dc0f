/* data_stages.h -- the stages of a run's data ([[data.stage]]): the first one is the configuration
 * itself, and each [[data.stage]] changes keys for those after it.
 *
 * Order    A stage ends with a whole step.  A run that resumes in a stage, or continues from one to
 *          the next, keeps its position in every source: weights and rows are the new ones.
 * Memory   A stage's configuration borrows from the whole one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"

struct data_stage {
    struct config config;
    int64_t begin, end; /* it has the steps begin + 1 to end */
};

/* How many stages a run has, at least 1. */
size_t data_stages_count(const struct config *c);
/* The stage with this index, of a run on that mesh.  Its `end` is at most training.steps, and so
 * before its `begin` if the run has too few steps for it. */
void data_stages_open(struct data_stage *s, const struct config *c, const struct mesh *mesh,
                      size_t index);
void data_stages_close(struct data_stage *s);
/* Index of the stage that has step `steps` + 1. */
size_t data_stages_find(const struct config *c, const struct mesh *mesh, int64_t steps);
/* Rows done after `until` steps of a run that had done `rows` after `step` steps. */
int64_t data_stages_advance(const struct config *c, const struct mesh *mesh, int64_t step,
                            int64_t rows, int64_t until);
/* CONFIG: the keys of a stage, or when it begins. */
enum status data_stages_check(const struct config *c, const struct mesh *mesh);
/* Appends "rows of 4096 tokens, 512 per step; 0.9 web, 0.1 math". */
void data_stages_describe(const struct data_stage *s, const struct mesh *mesh, struct text *out);
