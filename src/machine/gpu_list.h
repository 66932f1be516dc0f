/* gpu_list.h (machine) -- the GPUs that device.gpus selects, one for each rank of a host. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

enum { GPU_LIST_MAX = 64 };

struct gpu_list {
    int count, index[GPU_LIST_MAX];
};

/* Reads "all", a number of GPUs, or indices as in "0,2,3"; `installed`: how many this process sees.
 * "" selects all.  CONFIG: none of these, an index twice, or a GPU that is not installed.
 * DEVICE: none is installed. */
enum status gpu_list_read(const char *text, int installed, struct gpu_list *out);
