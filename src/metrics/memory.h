/* memory.h -- what this process used, and what it may use.  Units are bytes.  Nothing here
 * allocates. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdint.h>

/* Peak resident memory of this process. */
int64_t memory_peak_bytes(void);
/* What it has now. */
int64_t memory_resident_bytes(void);
/* The machine's memory, or the limit of this process's control group where that is less. */
int64_t memory_total_bytes(void);
/* Of it, what the system would give now without swapping; where it does not say, all. */
int64_t memory_available_bytes(void);

/* The number behind "name:" in text like /proc/self/status; -1: it is not there. */
int64_t memory_field(const char *text, const char *name);
