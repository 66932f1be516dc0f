/* dump_folder.h -- whether a run can write to job.dump_folder, checked before it starts. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/config.h"
#include "model/model_shape.h"

/* Whether the folder can be created, or exists with files that can be written.  Creates a file
 * without a name, or one that it removes at once.  IO: the message has the path and the reason. */
enum status dump_folder_check(const struct config *c);

/* Bytes of a checkpoint's tensors, as f32: weights, two moments (one of what Muon updates), and
 * the moving average if the run has one.  The other files are small. */
double dump_folder_checkpoint_bytes(const struct config *c, const struct model_shape *shape);

/* Compares the checkpoints that the run will keep with the free space, given that it begins after
 * `step` steps (-1: unknown).  Logs a warning if they do not all fit.  IO: not even one does. */
enum status dump_folder_check_space(const struct config *c, const struct model_shape *shape,
                                    int64_t step);
