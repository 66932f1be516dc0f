// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "base/rng.h"
#include "train/stragglers.h"

enum { RANKS_OF_A_TEST = 8, SLOW = 5 };

/* A simulated comparison: rank r is busy busy_s[r] of a step of the slowest rank's time. */
static int compare(struct stragglers *s, const double *busy_s, struct straggler *found)
{
    double longest = 0;
    for (int r = 0; r < s->size; r++) longest = fmax(longest, busy_s[r]);
    for (int r = 0; r < s->size; r++)
        s->samples[r] = (struct straggler_sample){busy_s[r], longest * 1.1, r % 2};
    return stragglers_compare(s, found);
}

static void open_stragglers(struct stragglers *s)
{
    *s = (struct stragglers){.size = RANKS_OF_A_TEST};
    s->strikes = heap(RANKS_OF_A_TEST * sizeof *s->strikes);
    s->samples = heap(RANKS_OF_A_TEST * sizeof *s->samples);
}

TEST(stragglers_are_named_after_a_few_comparisons_and_then_seldom)
{
    struct stragglers s;
    struct straggler found[RANKS_OF_A_TEST];
    double busy[RANKS_OF_A_TEST];
    int named_at[4] = {0}, num_named = 0;
    open_stragglers(&s);
    for (int window = 1; window <= 250; window++) {
        for (int r = 0; r < RANKS_OF_A_TEST; r++) /* stages differ, and ranks a little */
            busy[r] = (r % 2 ? 0.03 : 0.01) *
                      (1 + 0.05 * rng_uniform(1, RNG_TEST, (uint64_t)r, (uint64_t)window));
        busy[SLOW] *= 1.5;
        int n = compare(&s, busy, found);
        CHECK(n <= 1);
        if (!n) continue;
        CHECK(found->rank == SLOW && found->busy_s > 1.3 * found->typical_s);
        CHECK(num_named < 4);
        named_at[num_named++] = window;
    }
    CHECK(named_at[0] * STRAGGLERS_STEPS <= 50);
    CHECK(num_named == 3 && named_at[1] == named_at[0] + STRAGGLERS_REPEAT);
    stragglers_close(&s);
}

TEST(stragglers_are_not_ranks_that_are_slow_at_times)
{
    struct stragglers s;
    struct straggler found[RANKS_OF_A_TEST];
    double busy[RANKS_OF_A_TEST];
    open_stragglers(&s);
    for (uint64_t window = 0; window < 20000; window++) {
        for (uint64_t r = 0; r < RANKS_OF_A_TEST; r++)
            busy[r] = rng_uniform(1, RNG_TEST, r, window) < 0.02 ? 0.03 : 0.01;
        CHECK(compare(&s, busy, found) == 0);
    }
    stragglers_close(&s);
}

TEST(stragglers_must_lengthen_the_step)
{
    struct stragglers s;
    struct straggler found[2];
    struct straggler_sample samples[] = {{0.001, 1, 0}, {0.005, 1, 0}};
    s = (struct stragglers){.size = 2};
    s.strikes = heap(2 * sizeof *s.strikes), s.samples = heap(sizeof samples);
    memcpy(s.samples, samples, sizeof samples);
    for (int i = 0; i < 20; i++) CHECK(stragglers_compare(&s, found) == 0);
    stragglers_close(&s);
}

/* Rank 1 is busy twice as long; stragglers_add takes the shortest of ten steps. */
static enum status run_steps(const struct comm *world, void *context)
{
    struct stragglers s;
    enum status st = STATUS_OK;
    (void)context;
    TRY_OUT(stragglers_open(&s, world, 0));
    for (int step = 0; step < STRAGGLERS_STEPS * STRAGGLERS_WINDOWS; step++) {
        double busy_s = step % STRAGGLERS_STEPS ? 9 : world->rank == 1 ? 2 : 1;
        TRY_OUT(stragglers_add(&s, world, (struct straggler_sample){busy_s, 2, 0}));
        RANK_CHECK(s.strikes[1] == (world->rank ? 0 : (step + 1) / STRAGGLERS_STEPS));
        RANK_CHECK(!s.strikes[0] && !s.strikes[2]);
    }
out:
    stragglers_close(&s);
    return st;
}

TEST(stragglers_are_compared_by_the_shortest_of_ten_steps)
{
    CHECK_STATUS(OK, ranks_run(3, run_steps, NULL));
}
