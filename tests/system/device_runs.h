/* device_runs.h -- whole runs whose ranks are threads, each with a device that the host cannot
 * touch and whose kernels are late (tensor/strict_device.h); or without, to compare. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* Where ranks compute, and by what their tensors travel. */
enum device_run { ON_HOST, OVER_STAGED, OVER_NCCL };

/* Six steps with a validation, and checkpoints of step 3 and step 6; where there is the first of
 * them already, on from it.  Settings, which end with NULL, are the last word. */
void device_run_train(enum device_run how, int ranks, const char *const *settings,
                      const char *corpus, const char *dump);
/* Of two checkpoints; all but the time they took. */
void device_run_check_same(const char *a, const char *b);
