/* memory.h -- memory used by and available to this process, in bytes.  Nothing here allocates. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "tensor/queue.h"

#include <stdbool.h>
#include <stdint.h>

/* Peak resident set size (RSS). */
int64_t memory_peak_bytes(void);
/* Current resident set size. */
int64_t memory_resident_bytes(void);
/* Bytes of device memory in use, or the process's peak memory; the largest of all ranks.
 * Collective. */
enum status memory_most_used(struct queue *queue, const struct comm *world, int64_t *used);
/* The machine's memory, or the limit of this process's control group (cgroup) if that is lower. */
int64_t memory_total_bytes(void);
/* How much of that is available without swapping; all of it if the system does not report this. */
int64_t memory_available_bytes(void);

/* The lowest limit of a control group (v2), a path in the folder `root`, and its ancestors,
 * INT64_MAX without one; `left`: limits less what the group uses, except page cache.  Changes
 * `group`. */
int64_t memory_cgroup_limit(const char *root, char *group, bool left);
/* The number after "name:" or "name " in text like /proc/self/status or memory.stat, or -1 if it is
 * missing. */
int64_t memory_parse_field(const char *text, const char *name);
