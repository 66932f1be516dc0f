// SPDX-License-Identifier: Apache-2.0
#include "train/guard.h"

#include "base/rng.h"
#include "test.h"

#include <stdlib.h>

enum { LIMIT = 10 }; /* the default of guard.spike_zscore */

struct curve {
    double losses[1000];
    int count;
};

static struct curve read_curve(const char *name)
{
    struct curve c = {0};
    char path[128];
    snprintf(path, sizeof path, "tests/train/data/losses_%s.txt", name);
    FILE *f = fopen(path, "r");
    CHECK(f);
    while (c.count < 1000 && fscanf(f, "%lf", &c.losses[c.count]) == 1) c.count++;
    CHECK(feof(f) && fclose(f) == 0);
    return c;
}

/* The step, from 1, of the first alarm; 0: none. */
static int first_alarm(const struct curve *c, enum guard_alarm alarm, int *alarms)
{
    struct guard g = {0};
    int first = 0;
    *alarms = 0;
    for (int i = 0; i < c->count; i++) {
        if (guard_observe(&g, c->losses[i], 1, LIMIT).alarm != alarm) continue;
        if (!first) first = i + 1;
        ++*alarms;
    }
    return first;
}

/* Losses that were recorded of runs of two blocks on the pages of docs/: 100 steps of warmup; a
 * learning rate that drops to a tenth at step 200; batches of 32 tokens. */
TEST(recorded_runs_without_spikes_give_no_alarm)
{
    static const char *const names[] = {"warmup", "lr_drop", "small_batch"};
    for (int i = 0; i < 3; i++) {
        struct curve c = read_curve(names[i]);
        int alarms;
        CHECK(c.count >= 400);
        if (first_alarm(&c, GUARD_SPIKE, &alarms)) fail_msg("%s: %d alarms", names[i], alarms);
        CHECK(!first_alarm(&c, GUARD_NO_GRADIENT, &alarms));
    }
}

/* In each recorded run, at many steps: the loss doubles, and returns within ten steps. */
TEST(spike_gives_one_alarm_at_its_first_step)
{
    static const char *const names[] = {"warmup", "lr_drop", "small_batch"};
    for (int i = 0; i < 3; i++)
        for (int at = 200; at + 10 < 400; at += 7) {
            struct curve c = read_curve(names[i]);
            int alarms;
            for (int k = 0; k < 10; k++) c.losses[at + k] += (i == 2 ? 10 : 4) * (1 - 0.1 * k);
            int first = first_alarm(&c, GUARD_SPIKE, &alarms);
            if (first != at + 1 || alarms != 1)
                fail_msg("%s, step %d: %d alarms, first %d", names[i], at + 1, alarms, first);
        }
}

TEST(loss_that_stays_high_after_a_spike_gives_one_alarm)
{
    struct guard g = {0};
    int alarms = 0;
    for (uint64_t i = 0; i < 300; i++) {
        double noise = 0.05 * rng_normal(1, RNG_TEST, 0, i);
        alarms += guard_observe(&g, (i < 100 ? 3 : 6) + noise, 1, LIMIT).alarm == GUARD_SPIKE;
    }
    CHECK(alarms == 1);
}

TEST(zscore_is_that_of_the_median_absolute_deviation)
{
    struct guard g = {0};
    for (int i = 0; i < GUARD_LEAST - 1; i++)
        CHECK(guard_observe(&g, 1, 1, LIMIT).zscore == 0); /* the window is too short */
    for (int i = 0; i < GUARD_WINDOW; i++) guard_observe(&g, 3 + 0.1 * (i % 5 - 2), 1, 0);
    struct guard_report r = guard_observe(&g, 5, 1, LIMIT); /* median 3, deviations 0, .1, .2 */
    CHECK_NEAR(r.median, 3, 1e-12);
    CHECK_NEAR(r.zscore, 2 / (1.4826 * 0.1), 1e-9);
    CHECK(r.alarm == GUARD_SPIKE);
    g.in_spike = false;
    r = guard_observe(&g, 5.5, 1, LIMIT); /* not twice as far as the one before */
    CHECK(r.zscore > LIMIT && r.alarm == GUARD_NONE);
}

TEST(limit_0_never_finds_a_spike)
{
    struct guard g = {0};
    for (int i = 0; i < 100; i++) CHECK(guard_observe(&g, 3, 1, 0).alarm == GUARD_NONE);
    CHECK(guard_observe(&g, 1e6, 1, 0).alarm == GUARD_NONE);
}

TEST(values_that_are_not_finite_do_not_enter_the_window)
{
    struct guard g = {0};
    for (int i = 0; i < 40; i++) guard_observe(&g, 3, 1, LIMIT);
    struct guard before = g;
    CHECK(guard_observe(&g, (double)NAN, 1, LIMIT).alarm == GUARD_NONE);
    CHECK(guard_observe(&g, (double)INFINITY, 1, LIMIT).alarm == GUARD_NONE);
    CHECK(guard_observe(&g, 3, (double)NAN, LIMIT).alarm == GUARD_NONE);
    CHECK(g.count == before.count && !memcmp(g.losses, before.losses, sizeof g.losses));
}

/* As with a weight of 1e30: the loss is that of a uniform distribution. */
TEST(constant_loss_without_gradient_gives_one_alarm)
{
    struct guard g = {0};
    int alarms = 0;
    for (int i = 1; i <= 50; i++) {
        bool alarm = guard_observe(&g, 5.55683, 1e-12, LIMIT).alarm == GUARD_NO_GRADIENT;
        CHECK(alarm == (i == 1 + GUARD_STILL));
        alarms += alarm;
    }
    CHECK(alarms == 1);
    guard_observe(&g, 5.5, 0.3, LIMIT);
    for (int i = 0; i < 50; i++)
        alarms += guard_observe(&g, 5.5, 0, LIMIT).alarm == GUARD_NO_GRADIENT;
    CHECK(alarms == 2);
}

/* A constant loss with a gradient, and a model that knows its data by heart. */
TEST(learning_runs_do_not_stand_still)
{
    struct guard constant = {0}, overfit = {0};
    for (int i = 0; i < 100; i++) {
        CHECK(guard_observe(&constant, 3, 1e-3, LIMIT).alarm == GUARD_NONE);
        CHECK(guard_observe(&overfit, 1e-3 * pow(0.99, i), 1e-9, LIMIT).alarm == GUARD_NONE);
    }
}

static void save(const struct guard *g, struct text *t)
{
    struct json_writer w = {.text = t};
    text_clear(t);
    json_begin_object(&w, NULL, JSON_INLINE);
    guard_save(g, &w);
    json_end_object(&w);
    json_finish(&w);
}

/* From any step on. */
TEST(saved_guard_continues_with_the_same_reports)
{
    struct curve c = read_curve("small_batch");
    struct text t = {0};
    struct guard g = {0};
    for (int i = 0; i < 300; i++) {
        struct guard other;
        struct json *json;
        guard_observe(&g, c.losses[i], i > 250 ? 0 : 1, LIMIT);
        if (i == 120) CHECK(guard_count_rollback(&g, i, 2));
        if (i % 11) continue;
        save(&g, &t);
        CHECK_STATUS(OK, json_parse(t.data, t.len, "guard", &json));
        CHECK_STATUS(OK, guard_load(&other, json_get(json, "guard")));
        CHECK(!memcmp(g.losses, other.losses, (size_t)g.count * sizeof *g.losses));
        CHECK(g.count == other.count && g.in_spike == other.in_spike && g.still == other.still);
        CHECK(g.last_loss == other.last_loss && g.rollbacks == other.rollbacks);
        CHECK(g.last_spike == other.last_spike);
        json_free(json);
    }
    struct guard none = g;
    CHECK_STATUS(OK, guard_load(&none, NULL));
    CHECK(none.count == 0 && none.rollbacks == 0);
    text_release(&t);
}

TEST(damaged_guard_is_rejected)
{
    static const char *const bad[] = {
        "{}",
        "{\"in_spike\": false, \"still\": -1, \"rollbacks\": 0, \"last_spike\": 0, \"losses\": []}",
        "{\"in_spike\": false, \"still\": 0, \"rollbacks\": 0, \"last_spike\": 0, \"losses\": 3}",
        "{\"in_spike\": false, \"still\": 0, \"rollbacks\": 0, \"last_spike\": 0, \"losses\": "
        "[null]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct guard g;
        struct json *json;
        CHECK_STATUS(OK, json_parse(bad[i], strlen(bad[i]), "guard", &json));
        CHECK_STATUS(DATA, guard_load(&g, json));
        json_free(json);
    }
}

TEST(rollbacks_are_bounded_until_the_run_gets_past_the_spike)
{
    struct guard g = {0};
    CHECK(guard_count_rollback(&g, 100, 2) && guard_count_rollback(&g, 90, 2));
    CHECK(!guard_count_rollback(&g, 100 + GUARD_WINDOW, 2)); /* counted from the furthest */
    CHECK(guard_count_rollback(&g, 101 + GUARD_WINDOW, 2));
    CHECK(guard_count_rollback(&g, 102 + GUARD_WINDOW, 2));
    CHECK(!guard_count_rollback(&g, 103 + GUARD_WINDOW, 2));
    CHECK(!guard_count_rollback(&(struct guard){0}, 5, 0));
}
