/* device_runs.h -- training runs whose ranks are threads; on the host, or each with a device whose
 * memory the host must not touch and whose kernels run late (tensor/strict_device.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* Where ranks compute, and the transport of their tensors. */
enum device_run { ON_HOST, OVER_STAGED, OVER_NCCL };

/* Trains six steps with a validation, and writes checkpoints of steps 3 and 6; resumes from the
 * first if it exists.  `settings` ends with NULL and overrides the defaults. */
void device_run_train(enum device_run how, int ranks, const char *const *settings,
                      const char *corpus, const char *dump);
/* The same, if the run may fail. */
enum status device_run_try(enum device_run how, int ranks, const char *const *settings,
                           const char *corpus, const char *dump);
/* For groups_wrap_device: the context is the queue, or the struct nccl. */
enum status device_run_over_staged(struct comm *c, const char *name, enum comm_use use,
                                   void *queue);
enum status device_run_over_nccl(struct comm *c, const char *name, enum comm_use use, void *nccl);
/* Compares two checkpoints in all but their timings. */
void device_run_check_same(const char *a, const char *b);
