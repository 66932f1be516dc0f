/* common.h -- what ranks that save or load together have in common.
 *
 * Ranks    Every function is collective over the group; NULL is a rank that is alone. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

int common_size(const struct comm *c);
int common_rank(const struct comm *c);
static inline bool common_leads(const struct comm *c) { return common_rank(c) == 0; }

/* comm_agree. */
enum status common_agree(const struct comm *c, enum status mine);
/* *x becomes rank 0's; its size is below 2^53. */
enum status common_number(const struct comm *c, int64_t *x);
/* x[i] becomes the sum of the ranks' x[i], of which one at most is not 0. */
enum status common_values(const struct comm *c, uint32_t *x, size_t count);
