/* schedule.h -- what each rank of a pipeline does, in which order: a table made without talking.
 *
 * A rank holds `chunks` stages: chunk c of rank r is stage c * pp + r of pp * chunks, so the output
 * of a stage always goes to the next rank, round and round.
 *
 * Order    The micro-batches of a stage go forward in ascending order, and backward in the same, so
 *          gradient sums have one order whatever the schedule.
 * Ranks    Every rank makes its own table; receives match sends one to one.  A send must not hold
 *          up its rank (comm_start): in the steady state two neighbours both have something to
 *          send.  A chunk sends from schedule_buffers in turn, in each direction: waiting for what
 *          left one of them before it is filled again never locks, even where a send is over only
 *          once it is received, and nothing is received before its action is due.
 * Memory   At most schedule_peak micro-batches of a chunk are between their forward and their
 *          backward, first in first out: micro-batch i may lie in slot i % peak.
 * Sources  Huang et al. 2019 (GPipe); Narayanan et al. 2019 (1F1B), 2021 (interleaved); rounds of
 *          other than pp micro-batches as in torch.distributed.pipelining. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "comm/comm.h"
#include "ops/boundary.h"

/* name, torchtitan's word, the order of work */
#define SCHEDULE_LIST(X)                                                                           \
    X(gpipe, "GPipe", "all forward, then all backward")                                            \
    X(one_ahead, "1F1B", "one forward, one backward, as soon as the first backward can be")        \
    X(interleaved, "Interleaved1F1B", "1F1B over several chunks a rank: a smaller bubble")

enum schedule_kind {
#define X(name, word, text) SCHEDULE_##name,
    SCHEDULE_LIST(X)
#undef X
        SCHEDULE_COUNT
};
const char *schedule_word(enum schedule_kind k);
/* CONFIG: no schedule is called that; they are named. */
enum status schedule_find(enum schedule_kind *k, const char *word);

struct schedule {
    enum schedule_kind kind;
    int pp;     /* ranks of the pipeline */
    int chunks; /* stages a rank */
    int micros; /* micro-batches of a step */
};

struct action {
    enum direction way;
    int micro, chunk;
};

/* CONFIG: chunks or micro-batches that the kind cannot have, and the nearest number of
 * micro-batches that it can: max(1, micros / pp) rounds must be of one size. */
enum status schedule_check(const struct schedule *s);

/* Actions of each rank. */
int schedule_length(const struct schedule *s);
/* Those of one rank, in order, for a schedule that passed the check. */
void schedule_fill(const struct schedule *s, int rank, struct action *program);

/* The same without any backward, for any number of micro-batches: micros * chunks actions, the same
 * for all ranks, in rounds of pp micro-batches.  One buffer to send from is enough. */
void schedule_fill_forward(const struct schedule *s, struct action *program);

enum { ALL_CHUNKS = -1 };
/* Micro-batches of a chunk in flight at once, at most: forward begun and backward not over.  Of all
 * chunks together it may be less than the sum of theirs. */
int schedule_peak(const struct schedule *s, int rank, int chunk);

/* Buffers to send from that a chunk needs in each direction so that ranks cannot lock. */
int schedule_buffers(const struct schedule *s);

static inline int schedule_stage(const struct schedule *s, int rank, int chunk)
{
    return chunk * s->pp + rank;
}

/* To whom or from whom; peer -1: nobody, as the action begins or ends the pass.  Messages of one
 * pair and tag are sent and received in the same order. */
struct p2p_message schedule_input(const struct schedule *s, int rank, const struct action *a);
struct p2p_message schedule_output(const struct schedule *s, int rank, const struct action *a);
