/* contract.h (tests) -- the contract of comm.h, as tests for any transport. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"

/* name, number of ranks it needs; 0: any number from two on */
#define CONTRACT_LIST(X)                                                                           \
    X(all_gathers_every_part, 0)                                                                   \
    X(reduce_scatters_sums, 0)                                                                     \
    X(all_reduces_sums, 0)                                                                         \
    X(broadcasts_from_any_root, 0)                                                                 \
    X(shifts_around_the_ring, 0)                                                                   \
    X(sends_what_each_rank_has_for_each, 0)                                                        \
    X(sends_and_receives_by_tag, 0)                                                                \
    X(nested_sums_have_the_same_bits, 4)                                                           \
    X(transfers_raw_bytes, 0)                                                                      \
    X(counts_the_bytes_each_rank_receives, 4)                                                      \
    X(reduces_doubles, 3)                                                                          \
    X(reduces_integers_exactly, 0)                                                                 \
    X(extremes_propagate_nan, 3)                                                                   \
    X(gathers_bytes_of_host_memory, 0)                                                             \
    X(broadcasts_bytes_of_host_memory, 0)                                                          \
    X(agrees_on_the_most_severe_failure, 4)                                                        \
    X(sums_more_than_a_chunk, 3)                                                                   \
    X(many_transfers_are_in_flight_at_once, 4)

#define X(name, ranks) enum status contract_##name(const struct comm *world, void *context);
CONTRACT_LIST(X)
#undef X

struct contract {
    const char *name;
    int ranks;
    enum status (*body)(const struct comm *world, void *context);
};
extern const struct contract contract[]; /* the last name is NULL */

/* Runs those of the tests that need at most `world->size` ranks.  A rank whose check fails returns
 * at once, without an agreement: the others may wait in a collective that it will not reach, until
 * it ends the run. */
enum status contract_run(const struct comm *world, const struct contract *lines);
