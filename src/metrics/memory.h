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

/* The lowest of `lowest` and the limits of a control group of this version (1 or 2), a path in the
 * folder `root`, and its ancestors; `left`: limits less what the group uses, except page cache.
 * Truncates `group`. */
int64_t memory_cgroup_limit(int version, const char *root, char *group, bool left, int64_t lowest);
/* The number after "name:" or "name " in text like /proc/self/status or memory.stat, or -1 if it is
 * missing. */
int64_t memory_parse_field(const char *text, const char *name);
