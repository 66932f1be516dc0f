// SPDX-License-Identifier: Apache-2.0
#include "train/guard.h"

#include "base/rng.h"
#include "test.h"
#include "train/trainer.h"

#include <stdlib.h>

enum { LIMIT = 10 }; /* the default of guard.spike_zscore */

static struct guard_report observe(struct guard *g, double loss, double grad_norm, double limit)
{
    return guard_observe(g, &(struct step_result){.loss = loss, .grad_norm = grad_norm}, limit);
}

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
        if (observe(&g, c->losses[i], 1, LIMIT).alarm != alarm) continue;
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
        if (first_alarm(&c, GUARD_SPIKE_BEGINS, &alarms))
            fail_msg("%s: %d alarms", names[i], alarms);
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
            int first = first_alarm(&c, GUARD_SPIKE_BEGINS, &alarms);
            if (first != at + 1 || alarms != 1)
                fail_msg("%s, step %d: %d alarms, first %d", names[i], at + 1, alarms, first);
        }
}

/* It is a new level after GUARD_SPIKE steps. */
TEST(loss_that_stays_high_gives_one_alarm)
{
    struct guard g = {0};
    int begins = 0, ends = 0;
    for (uint64_t i = 0; i < 300; i++) {
        double noise = 0.05 * rng_normal(1, RNG_TEST, 0, i);
        enum guard_alarm alarm = observe(&g, (i < 100 ? 3 : 6) + noise, 1, LIMIT).alarm;
        CHECK((alarm == GUARD_SPIKE_BEGINS) == (i == 100));
        CHECK((alarm == GUARD_SPIKE_ENDS) == (i == 100 + GUARD_SPIKE));
        begins += alarm == GUARD_SPIKE_BEGINS, ends += alarm == GUARD_SPIKE_ENDS;
    }
    CHECK(begins == 1 && ends == 1 && g.count == GUARD_WINDOW);
}

TEST(rollback_is_requested_when_the_spike_is_over)
{
    static const struct guard_config back = {.on_spike = ON_SPIKE_rollback, .spike_zscore = LIMIT};
    static const struct guard_config warn = {.on_spike = ON_SPIKE_warn, .spike_zscore = LIMIT};
    for (int last = 0; last < 2; last++) {
        struct guard g = {0}, other = {0};
        for (int step = 1; step <= 60; step++) {
            double loss = step < 50 || step > 53 ? 3 + 0.01 * (step % 3) : 5 + 0.1 * (step % 3);
            const struct step_result s = {.step = step, .loss = loss, .grad_norm = 1};
            bool is_last = last && step == 52, must = is_last || step == 54;
            CHECK(guard_watch(&g, &back, &s, false, is_last) == must);
            CHECK(!guard_watch(&other, &warn, &s, false, is_last));
            CHECK(g.spike_begin == (step >= 50 && step <= 54 ? 50 : 0));
            if (step == 54) CHECK(g.spike_loss == 5.2 && g.spike_steps == 0);
        }
        CHECK(g.count == 56); /* without those of the spike */
    }
}

TEST(zscore_is_that_of_the_median_absolute_deviation)
{
    struct guard g = {0};
    for (int i = 0; i < GUARD_LEAST - 1; i++)
        CHECK(observe(&g, 1, 1, LIMIT).zscore == 0); /* the window is too short */
    for (int i = 0; i < GUARD_WINDOW; i++) observe(&g, 3 + 0.1 * (i % 5 - 2), 1, 0);
    struct guard_report r = observe(&g, 5, 1, LIMIT); /* median 3, deviations 0, .1, .2 */
    CHECK_NEAR(r.median, 3, 1e-12);
    CHECK_NEAR(r.zscore, 2 / (1.4826 * 0.1), 1e-9);
    CHECK(r.alarm == GUARD_SPIKE_BEGINS);
    CHECK(observe(&g, 3, 1, LIMIT).alarm == GUARD_SPIKE_ENDS);
    observe(&g, 3.8, 1, LIMIT);      /* z-score 5.4: part of the noise from now on */
    r = observe(&g, 4.55, 1, LIMIT); /* not twice as far above the median as that */
    CHECK(r.zscore > LIMIT && r.alarm == GUARD_NONE);
    CHECK(observe(&g, 6.2, 1, LIMIT).alarm == GUARD_SPIKE_BEGINS);
}

TEST(limit_0_never_finds_a_spike)
{
    struct guard g = {0};
    for (int i = 0; i < 100; i++) CHECK(observe(&g, 3, 1, 0).alarm == GUARD_NONE);
    CHECK(observe(&g, 1e6, 1, 0).alarm == GUARD_NONE);
}

TEST(values_that_are_not_finite_do_not_enter_the_window)
{
    struct guard g = {0};
    for (int i = 0; i < 40; i++) observe(&g, 3, 1, LIMIT);
    struct guard before = g;
    CHECK(observe(&g, (double)NAN, 1, LIMIT).alarm == GUARD_NONE);
    CHECK(observe(&g, (double)INFINITY, 1, LIMIT).alarm == GUARD_NONE);
    CHECK(observe(&g, 3, (double)NAN, LIMIT).alarm == GUARD_NONE);
    CHECK(g.count == before.count && !memcmp(g.losses, before.losses, sizeof g.losses));
}

/* As with a weight of 1e30: the loss is that of a uniform distribution. */
TEST(constant_loss_without_gradient_gives_one_alarm)
{
    struct guard g = {0};
    int alarms = 0;
    for (int i = 1; i <= 50; i++) {
        bool alarm = observe(&g, 5.55683, 1e-12, LIMIT).alarm == GUARD_NO_GRADIENT;
        CHECK(alarm == (i == 1 + GUARD_STILL));
        alarms += alarm;
    }
    CHECK(alarms == 1);
    observe(&g, 5.5, 0.3, LIMIT);
    for (int i = 0; i < 50; i++) alarms += observe(&g, 5.5, 0, LIMIT).alarm == GUARD_NO_GRADIENT;
    CHECK(alarms == 2);
}

/* A constant loss with a gradient, and a model that knows its data by heart. */
TEST(learning_runs_do_not_stand_still)
{
    struct guard constant = {0}, overfit = {0};
    for (int i = 0; i < 100; i++) {
        CHECK(observe(&constant, 3, 1e-3, LIMIT).alarm == GUARD_NONE);
        CHECK(observe(&overfit, 1e-3 * pow(0.99, i), 1e-9, LIMIT).alarm == GUARD_NONE);
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
        observe(&g, c.losses[i] + (i / 5 == 40 ? 9 : 0), i > 250 ? 0 : 1, LIMIT);
        if (i == 120) CHECK(guard_count_rollback(&g, i, 2));
        if (i == 121) g.good_step = 99;
        if (i % 11) continue;
        save(&g, &t);
        CHECK_STATUS(OK, json_parse(t.data, t.len, "guard", &json));
        CHECK_STATUS(OK, guard_load(&other, json_get(json, "guard")));
        CHECK(!memcmp(g.losses, other.losses, (size_t)g.count * sizeof *g.losses));
        CHECK(g.count == other.count && g.spike_steps == other.spike_steps);
        CHECK(g.spike_begin == other.spike_begin && g.spike_loss == other.spike_loss);
        CHECK(g.still == other.still && g.good_step == other.good_step);
        CHECK(g.last_loss == other.last_loss && g.rollbacks == other.rollbacks);
        CHECK(g.last_spike == other.last_spike);
        json_free(json);
    }
    struct guard none = g;
    CHECK_STATUS(OK, guard_load(&none, NULL));
    CHECK(none.count == 0 && none.rollbacks == 0);
    text_release(&t);
}

#define HEAD "{\"spike_steps\": 0, \"spike_begin\": 0, \"rollbacks\": 0, \"still\": "
#define TAIL                                                                                       \
    ", \"last_spike\": 0, \"good_step\": 0, \"spike_loss\": 0, \"last_loss\": 2, \"losses\": "

TEST(damaged_guard_is_rejected)
{
    static const char *const bad[] = {
        "{}",
        HEAD "-1" TAIL "[]}",
        HEAD "0" TAIL "3}",
        HEAD "0" TAIL "[null]}",
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
