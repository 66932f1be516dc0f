/* contract.h (tests) -- what comm.h promises, for any transport. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* name, how many ranks it is about; 0: any number from two on */
#define CONTRACT_LIST(X)                                                                           \
    X(gathers_every_ranks_part, 0)                                                                 \
    X(sums_each_ranks_part, 0)                                                                     \
    X(sums_over_all_ranks, 0)                                                                      \
    X(broadcasts_from_any_root, 0)                                                                 \
    X(sends_and_receives_by_tag, 0)                                                                \
    X(sums_have_the_same_bits_however_neighbours_are_grouped, 4)                                   \
    X(transfers_raw_bytes, 0)                                                                      \
    X(counts_the_bytes_each_rank_receives, 4)                                                      \
    X(reduces_doubles, 3)                                                                          \
    X(reduces_integers_exactly, 0)                                                                 \
    X(extremes_propagate_nan, 3)                                                                   \
    X(gathers_bytes_of_host_memory, 0)                                                             \
    X(broadcasts_bytes_of_host_memory, 0)                                                          \
    X(tells_every_rank_which_rank_failed_first_and_how, 4)                                         \
    X(sums_more_than_a_piece, 3)                                                                   \
    X(many_transfers_are_under_way_at_once, 4)

#define X(name, ranks) enum status contract_##name(const struct comm *world, void *context);
CONTRACT_LIST(X)
#undef X

struct contract {
    const char *name;
    int ranks;
    enum status (*body)(const struct comm *world, void *context);
};
extern const struct contract contract[]; /* ends with a name that is NULL */

/* Every line of it, on as many of these ranks as it needs, as far as there are so many. */
enum status contract_hold(const struct comm *world);
