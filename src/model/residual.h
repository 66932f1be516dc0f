/* residual.h -- the residual stream: this rank's tokens of it, and how it crosses boundaries.
 *
 * Axes     N tokens of a microbatch, S those whose residual stream is local, D width.  With
 *          sequence parallelism S = N / tensor-parallel size, and a gathered buffer holds all N;
 *          else S = N.
 * Ranks    residual_cross is collective over the tensor-parallel group. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.h"

/* S. */
size_t residual_rows(const struct model *m, size_t N);
/* The S local rows of a gathered buffer. */
void *residual_local(const struct model *m, void *gathered_ND, size_t N);
/* y = scale x. */
enum status residual_copy(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                          double scale);
/* y += scale x. */
enum status residual_add(const struct model *m, size_t N, const void *x_SD, void *y_SD,
                         double scale);
/* True if what a block adds to the stream needs a buffer of its own, the gathered one: under tensor
 * parallelism, and where it is scaled or normalized. */
bool residual_is_apart(const struct model *m);
/* A gathered buffer for crossings and for what is apart, or NULL where neither needs it. */
void *residual_alloc_gathered(const struct model *m, size_t N, struct arena *step);
/* Crosses a boundary of the plan with an activation of all N tokens. */
enum status residual_cross(const struct model *m, enum boundary at, enum direction direction,
                           void *x_ND, size_t N);
