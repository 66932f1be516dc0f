/* block.h -- the emulator's blocks: one block of threads at a time, each on a fiber. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/gpu/emulator/emulator.h"

/* All blocks of the launch, one after the other.  One caller at a time. */
void block_run_grid(const struct gpu_emulator_kernel *kernel);
