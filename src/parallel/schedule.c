// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule.h"

#include "parallel/suggest.h"

enum { MAX_CHUNKS = 1 << 8 };

/* Microbatches pass through a chunk in rounds of pp or a few more. */
static int num_rounds(int64_t micros, int pp) { return micros < pp ? 1 : (int)(micros / pp); }

static bool rounds_are_even(int64_t micros, const void *pp)
{
    return micros % num_rounds(micros, *(const int *)pp) == 0;
}

enum status schedule_check(const struct schedule *s)
{
    bool interleaved = s->kind == SCHEDULE_Interleaved1F1B;
    if (s->num_microbatches < 1 || s->num_microbatches > SCHEDULE_MAX_MICROBATCHES)
        FAIL(CONFIG, "%d microbatches per step: must be between 1 and %d", s->num_microbatches,
             SCHEDULE_MAX_MICROBATCHES);
    if (!interleaved && s->chunks != 1)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_schedule = \"%s\" supports one stage per rank, not %d; "
             "\"%s\" supports several",
             schedule_kind_word(s->kind), s->chunks, schedule_kind_word(SCHEDULE_Interleaved1F1B));
    if (!interleaved) return STATUS_OK;
    if (s->pp < 2)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_schedule = \"%s\" requires "
             "parallelism.pipeline_parallel_degree >= 2, got %d",
             schedule_kind_word(s->kind), s->pp);
    if (s->chunks < 2 || s->chunks > MAX_CHUNKS)
        FAIL(CONFIG,
             "parallelism.pipeline_parallel_schedule = \"%s\" with %d stage%s per rank: must be "
             "between 2 and %d; set parallelism.pipeline_parallel_layers_per_stage",
             schedule_kind_word(s->kind), s->chunks, s->chunks == 1 ? "" : "s", MAX_CHUNKS);
    if (!rounds_are_even(s->num_microbatches, &s->pp))
        FAIL(CONFIG,
             "%d microbatches per step are not divisible into %d rounds for "
             "parallelism.pipeline_parallel_schedule = \"%s\" over %d ranks%s",
             s->num_microbatches, num_rounds(s->num_microbatches, s->pp),
             schedule_kind_word(s->kind), s->pp,
             suggest_values(s->num_microbatches, 1, SCHEDULE_MAX_MICROBATCHES, rounds_are_even,
                            &s->pp)
                 .text);
    return STATUS_OK;
}

int schedule_length(const struct schedule *s) { return 2 * s->num_microbatches * s->chunks; }

/* Forwards of the warmup, before the first pair of a forward and a backward. */
static int num_warmup(const struct schedule *s, int rank)
{
    int all = s->num_microbatches * s->chunks, ranks_after = s->pp - rank - 1, n = all;
    switch (s->kind) {
    case SCHEDULE_GPipe: break;
    case SCHEDULE_1F1B: n = ranks_after; break;
    case SCHEDULE_Interleaved1F1B:
        n = 2 * ranks_after +
            (s->chunks - 1) * (s->num_microbatches / num_rounds(s->num_microbatches, s->pp));
        break;
    }
    return n < all ? n : all;
}

/* The nth forward or backward of a rank: a round through one chunk, then through the next. */
static struct action nth_action(const struct schedule *s, enum direction direction, int n)
{
    int round = s->num_microbatches / num_rounds(s->num_microbatches, s->pp),
        pass = round * s->chunks;
    int chunk = n % pass / round;
    return (struct action){.direction = direction,
                           .micro = n / pass * round + n % round,
                           .chunk = direction == FORWARD ? chunk : s->chunks - 1 - chunk};
}

void schedule_actions(const struct schedule *s, int rank, struct action *actions)
{
    int all = s->num_microbatches * s->chunks, warmup = num_warmup(s, rank), n = 0;
    for (int i = 0; i < warmup; i++) actions[n++] = nth_action(s, FORWARD, i);
    for (int i = 0; i < all; i++) {
        if (warmup + i < all) actions[n++] = nth_action(s, FORWARD, warmup + i);
        actions[n++] = nth_action(s, BACKWARD, i);
    }
}

void schedule_forward_actions(const struct schedule *s, struct action *actions)
{
    int n = 0;
    for (int round = 0; round < s->num_microbatches; round += s->pp)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            for (int micro = round; micro < round + s->pp && micro < s->num_microbatches; micro++)
                actions[n++] = (struct action){FORWARD, micro, chunk};
}

int schedule_max_in_flight(const struct schedule *s, int rank, int chunk)
{
    int all = s->num_microbatches * s->chunks, warmup = num_warmup(s, rank), now = 0, max = 0;
    /* after the warmup the numbers repeat with each round through all chunks */
    int pass = all / num_rounds(s->num_microbatches, s->pp), left = all - warmup;
    for (int i = 0; i < warmup + (pass < left ? pass : left); i++) {
        if (nth_action(s, FORWARD, i).chunk == chunk) now++;
        if (now > max) max = now;
        if (i >= warmup && nth_action(s, BACKWARD, i - warmup).chunk == chunk) now--;
    }
    return max;
}

/* A chunk's output must wait while the next rank finishes the round in its earlier chunk.  The
 * ranks absorb pp microbatches of a round; the rest need buffers. */
int schedule_send_buffers(const struct schedule *s)
{
    int round = s->num_microbatches / num_rounds(s->num_microbatches, s->pp);
    return s->chunks > 1 && round > s->pp ? round - s->pp + 1 : 1;
}

/* A message of that direction to or from another stage. */
static struct p2p_message message_of(const struct schedule *s, int other, enum direction direction)
{
    if (other < 0 || other >= s->pp * s->chunks) return (struct p2p_message){.peer = -1};
    return (struct p2p_message){.peer = other % s->pp, .tag = (int)direction};
}

struct p2p_message schedule_input(const struct schedule *s, int rank, const struct action *a)
{
    int stage = schedule_stage(s, rank, a->chunk);
    return message_of(s, a->direction == FORWARD ? stage - 1 : stage + 1, a->direction);
}

struct p2p_message schedule_output(const struct schedule *s, int rank, const struct action *a)
{
    int stage = schedule_stage(s, rank, a->chunk);
    return message_of(s, a->direction == FORWARD ? stage + 1 : stage - 1, a->direction);
}
