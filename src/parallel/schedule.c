// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule.h"

#include "parallel/nearest.h"

#include <string.h>

enum { MOST_CHUNKS = 1 << 8, MOST_MICROS = 1 << 20 };

const char *schedule_word(enum schedule_kind k)
{
    static const char *const words[] = {
#define X(name, word, text) word,
        SCHEDULE_LIST(X)
#undef X
    };
    return words[k];
}

enum status schedule_find(enum schedule_kind *k, const char *word)
{
    for (*k = 0; *k < SCHEDULE_COUNT; (*k)++)
        if (!strcmp(word, schedule_word(*k))) return STATUS_OK;
#define X(name, word, text) " \"" word "\""
    FAIL(CONFIG, "no schedule of a pipeline is called \"%s\"; there are" SCHEDULE_LIST(X), word);
#undef X
}

/* Micro-batches are taken through a chunk in rounds, of pp or a little more. */
static int num_rounds(int64_t micros, int pp) { return micros < pp ? 1 : (int)(micros / pp); }

static bool rounds_are_even(int64_t micros, const void *pp)
{
    return micros % num_rounds(micros, *(const int *)pp) == 0;
}

enum status schedule_check(const struct schedule *s)
{
    bool interleaved = s->kind == SCHEDULE_interleaved;
    if (s->micros < 1 || s->micros > MOST_MICROS)
        FAIL(CONFIG, "a pipeline of %d micro-batches a step: 1 to %d are possible", s->micros,
             MOST_MICROS);
    if (!interleaved && s->chunks != 1)
        FAIL(CONFIG, "the pipeline schedule %s has one stage a rank, not %d; %s takes several",
             schedule_word(s->kind), s->chunks, schedule_word(SCHEDULE_interleaved));
    if (!interleaved) return STATUS_OK;
    if (s->pp < 2)
        FAIL(CONFIG, "the pipeline schedule %s needs pipeline_parallel_degree 2 or more, not %d",
             schedule_word(s->kind), s->pp);
    if (s->chunks < 2 || s->chunks > MOST_CHUNKS)
        FAIL(CONFIG, "the pipeline schedule %s with %d stage%s a rank: 2 to %d are possible",
             schedule_word(s->kind), s->chunks, s->chunks == 1 ? "" : "s", MOST_CHUNKS);
    if (!rounds_are_even(s->micros, &s->pp))
        FAIL(CONFIG,
             "%d micro-batches a step do not make %d rounds of one size for the pipeline schedule "
             "%s over %d ranks%s",
             s->micros, num_rounds(s->micros, s->pp), schedule_word(s->kind), s->pp,
             nearest_find(s->micros, 1, MOST_MICROS, rounds_are_even, &s->pp).text);
    return STATUS_OK;
}

int schedule_length(const struct schedule *s) { return 2 * s->micros * s->chunks; }

/* Forwards before the first backward, but for the one that goes with it. */
static int warm_up(const struct schedule *s, int rank)
{
    int all = s->micros * s->chunks, behind = s->pp - rank - 1, n = all;
    switch (s->kind) {
    case SCHEDULE_gpipe: break;
    case SCHEDULE_one_ahead: n = behind; break;
    case SCHEDULE_interleaved:
        n = 2 * behind + (s->chunks - 1) * (s->micros / num_rounds(s->micros, s->pp));
        break;
    case SCHEDULE_COUNT: BUG("no kind");
    }
    return n < all ? n : all;
}

/* The nth forward or backward: a round through one chunk, then through the next. */
static struct action nth(const struct schedule *s, enum direction way, int n)
{
    int round = s->micros / num_rounds(s->micros, s->pp), pass = round * s->chunks;
    int chunk = n % pass / round;
    return (struct action){.way = way,
                           .micro = n / pass * round + n % round,
                           .chunk = way == FORWARD ? chunk : s->chunks - 1 - chunk};
}

void schedule_fill(const struct schedule *s, int rank, struct action *program)
{
    int all = s->micros * s->chunks, ahead = warm_up(s, rank), n = 0;
    for (int i = 0; i < ahead; i++) program[n++] = nth(s, FORWARD, i);
    for (int i = 0; i < all; i++) {
        if (ahead + i < all) program[n++] = nth(s, FORWARD, ahead + i);
        program[n++] = nth(s, BACKWARD, i);
    }
}

void schedule_fill_forward(const struct schedule *s, struct action *program)
{
    int n = 0;
    for (int round = 0; round < s->micros; round += s->pp)
        for (int chunk = 0; chunk < s->chunks; chunk++)
            for (int micro = round; micro < round + s->pp && micro < s->micros; micro++)
                program[n++] = (struct action){FORWARD, micro, chunk};
}

int schedule_peak(const struct schedule *s, int rank, int chunk)
{
    int all = s->micros * s->chunks, ahead = warm_up(s, rank), now = 0, most = 0;
    for (int i = 0; i < all + ahead; i++) {
        if (i < all && (chunk == ALL_CHUNKS || nth(s, FORWARD, i).chunk == chunk)) now++;
        if (now > most) most = now;
        if (i >= ahead && (chunk == ALL_CHUNKS || nth(s, BACKWARD, i - ahead).chunk == chunk))
            now--;
    }
    return most;
}

/* A chunk's output waits while the next rank takes the rest of a round through the chunk before;
 * what of a round is more than the ranks can take in meanwhile must lie somewhere. */
int schedule_buffers(const struct schedule *s)
{
    int round = s->micros / num_rounds(s->micros, s->pp);
    return s->chunks > 1 && round > s->pp ? round - s->pp + 1 : 1;
}

/* What `receiver` gets, as its sender or the receiver sees it: the stage at the other end. */
static struct p2p_message message(const struct schedule *s, int receiver, int other,
                                  enum direction way)
{
    int stages = s->pp * s->chunks;
    if (receiver < 0 || receiver >= stages || other < 0 || other >= stages)
        return (struct p2p_message){.peer = -1};
    return (struct p2p_message){.peer = other % s->pp, .tag = 2 * (receiver / s->pp) + (int)way};
}

struct p2p_message schedule_input(const struct schedule *s, int rank, const struct action *a)
{
    int stage = schedule_stage(s, rank, a->chunk);
    return message(s, stage, a->way == FORWARD ? stage - 1 : stage + 1, a->way);
}

struct p2p_message schedule_output(const struct schedule *s, int rank, const struct action *a)
{
    int stage = schedule_stage(s, rank, a->chunk), to = a->way == FORWARD ? stage + 1 : stage - 1;
    return message(s, to, to, a->way);
}
