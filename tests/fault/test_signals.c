/* Kills and signals at random times, and chains of them. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "base/clock.h"
#include "base/rng.h"

/* Seconds that a run without faults takes. */
static double measure(const struct scene *s)
{
    struct text err = {0};
    double begin_s = clock_monotonic_s();
    CHECK_STATUS(OK, file_remove_tree(s->output));
    const char *bad = trial_judge_rerun(s, &err);
    if (bad) fail_msg("%s", bad);
    text_release(&err);
    return clock_monotonic_s() - begin_s;
}

static void try_signal(const struct scene *s, const char *name, int trials)
{
    struct tally t = {0};
    char fault[64], row[64];
    double run_s = measure(s);
    for (int i = 0; i < trials; i++) {
        double share = (double)rng_below(1000, 1, RNG_TEST, 0, (uint64_t)i) / 1000;
        snprintf(fault, sizeof fault, "signal=%s,after=%.4f", name, 0.001 + share * run_s);
        trial_run(s, fault, ANY_CODE, &t);
    }
    snprintf(row, sizeof row, "signal=%s at a random time", name);
    tally_report(&t, s->name, row);
}

TEST(train_survives_kills_at_random_times)
{
    struct scene s;
    scene_train(&s, 1, "");
    try_signal(&s, "KILL", trial_points(1.5, 100));
}

TEST(train_survives_kills_at_random_times_of_saves_beside_training)
{
    struct scene s;
    scene_train(&s, 1, "checkpoint.interval=1 checkpoint.async_mode=async");
    try_signal(&s, "KILL", trial_points(0.5, 100));
}

TEST(train_saves_on_signals_at_random_times)
{
    struct scene s;
    scene_train(&s, 1, "");
    try_signal(&s, "TERM", trial_points(0.4, 50));
    try_signal(&s, "USR1", trial_points(0.4, 50));
    try_signal(&s, "INT", trial_points(0.2, 50));
}

/* One run, killed again and again until it reaches its last step. */
TEST(train_survives_a_chain_of_kills)
{
    struct scene s;
    struct tally t = {0};
    char fault[64];
    scene_train(&s, 1, "training.steps=60 checkpoint.interval=1 checkpoint.keep_latest_k=3");
    double run_s = measure(&s);
    int kills = trial_points(0.8, 50);
    struct text err = {0};
    CHECK_STATUS(OK, file_remove_tree(s.output));
    for (int i = 0; i < kills; i++) {
        double share = (double)rng_below(1000, 2, RNG_TEST, 0, (uint64_t)i) / 1000;
        snprintf(fault, sizeof fault, "signal=KILL,after=%.4f", 0.02 + share * run_s / kills * 2);
        t.tried += trial_interrupt(&s, fault);
    }
    CHECK(t.tried > 0);
    const char *bad = trial_judge_rerun(&s, &err);
    if (bad) print_message("lost: %s\n", bad);
    t.lost = bad ? 1 : 0, t.survived = t.tried - t.lost;
    tally_report(&t, s.name, "a chain of kills in one run of 60 steps");
    text_release(&err);
}
