/* stream.h -- the residual stream: which tokens of it are here, and crossing boundaries with it.
 *
 * Axes     N tokens of a microbatch, S those whose residual stream is here, D width.  With sequence
 *          parallelism S = N / tensor-parallel size, and a gathered buffer holds all N; else S = N.
 * Ranks    stream_cross is collective over the tensor-parallel group. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* S. */
size_t stream_rows(const struct model *m, size_t N);
/* The S rows that are here of a gathered buffer. */
void *stream_local(const struct model *m, void *gathered_ND, size_t N);
/* y = x, or y += x. */
enum status stream_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                        bool accumulate);
/* A gathered buffer for crossings, or NULL where none is needed. */
void *stream_alloc_gathered(const struct model *m, size_t N, struct arena *step);
/* Crosses a boundary of the plan with an activation of all N tokens. */
enum status stream_cross(const struct model *m, enum boundary at, enum direction way, void *x_ND,
                         size_t N);
