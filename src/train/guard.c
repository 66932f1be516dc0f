// SPDX-License-Identifier: Apache-2.0
#include "train/guard.h"

#include "base/log.h"
#include "base/median.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sets the report's median and z-score; returns whether a spike begins with this loss. */
static bool score_loss(const struct guard *g, double loss, double limit, struct guard_report *r)
{
    /* A deviation below this share of the loss is not the noise of training, but a short or
     * constant window. */
    const double smallest = 1e-3;
    double sorted[GUARD_WINDOW], distance[GUARD_WINDOW];
    int n = g->count;
    if (n < GUARD_LEAST) return false;
    memcpy(sorted, g->losses, (size_t)n * sizeof *sorted);
    r->median = median(sorted, n);
    for (int i = 0; i < n; i++) distance[i] = fabs(sorted[i] - r->median);
    double deviation = fmax(1.4826 * median(distance, n), smallest * fmax(1, fabs(r->median)));
    double above = loss - r->median, most = sorted[n - 1] - r->median;
    r->zscore = above / deviation;
    return limit > 0 && r->zscore > limit && above > 2 * most;
}

static void add_loss(struct guard *g, double loss)
{
    if (g->count == GUARD_WINDOW) {
        memmove(g->losses, g->losses + 1, (GUARD_WINDOW - 1) * sizeof *g->losses);
        g->count--;
    }
    g->losses[g->count++] = loss;
}

/* Whether a spike begins or ends with this step; `is_high`: its loss could still belong to one. */
static enum guard_alarm follow_spike(struct guard *g, const struct step_result *s, bool begins,
                                     bool is_high)
{
    if (!g->spike_steps && !begins) {
        g->spike_begin = 0;
        return GUARD_NONE;
    }
    if (!g->spike_steps) g->spike_begin = s->step, g->spike_loss = s->loss;
    if (g->spike_steps && (!is_high || g->spike_steps == GUARD_SPIKE)) {
        if (is_high) g->count = 0; /* a new level */
        g->spike_steps = 0;
        return GUARD_SPIKE_ENDS;
    }
    if (s->loss > g->spike_loss) g->spike_loss = s->loss;
    return g->spike_steps++ ? GUARD_NONE : GUARD_SPIKE_BEGINS;
}

struct guard_report guard_observe(struct guard *g, const struct step_result *s, double limit)
{
    const double no_gradient = 1e-7, same = 1e-5; /* the latter relative */
    struct guard_report r = {GUARD_NONE, 0, 0};
    if (s->skips_rows || !isfinite(s->loss) || !isfinite(s->grad_norm)) return r;
    bool begins = score_loss(g, s->loss, limit, &r);
    bool is_still = s->grad_norm <= no_gradient && g->last_loss > 0 &&
                    fabs(s->loss - g->last_loss) <= same * g->last_loss;
    r.alarm = follow_spike(g, s, begins, limit > 0 && r.zscore > limit / 2);
    g->still = is_still ? g->still + 1 : 0;
    if (g->still == GUARD_STILL && !r.alarm) r.alarm = GUARD_NO_GRADIENT;
    g->last_loss = s->loss;
    if (!g->spike_steps) add_loss(g, s->loss);
    return r;
}

bool guard_watch(struct guard *g, const struct guard_config *c, const struct step_result *s,
                 bool log, bool last)
{
    struct guard_report r = guard_observe(g, s, c->spike_zscore);
    if (r.alarm == GUARD_SPIKE_BEGINS && log)
        log_line(LOG_WARN,
                 "step %lld: the loss spikes: %.5f is %.1f standard deviations above %.5f, the "
                 "median of the steps before",
                 (long long)s->step, s->loss, r.zscore, r.median);
    if (r.alarm == GUARD_NO_GRADIENT && log)
        log_line(LOG_WARN,
                 "step %lld: the model does not learn: for %d steps the gradient norm is %g and "
                 "the loss %.5f; check the starting weights, the data and optimizer.lr",
                 (long long)s->step, GUARD_STILL, s->grad_norm, s->loss);
    bool ends = r.alarm == GUARD_SPIKE_ENDS || (last && g->spike_steps);
    return (ends && c->on_spike == ON_SPIKE_rollback) ||
           (s->skipped && c->nonfinite == NONFINITE_rollback);
}

bool guard_count_rollback(struct guard *g, int64_t step, int64_t most)
{
    if (step > g->last_spike + GUARD_WINDOW) g->rollbacks = 0;
    if (g->rollbacks >= most) return false;
    g->rollbacks++;
    if (step > g->last_spike) g->last_spike = step;
    return true;
}

void guard_save(const struct guard *g, struct json_writer *w)
{
    json_begin_object(w, "guard", JSON_INLINE);
    json_write_int(w, "still", g->still);
    json_write_int(w, "spike_steps", g->spike_steps);
    json_write_int(w, "spike_begin", g->spike_begin);
    json_write_int(w, "rollbacks", g->rollbacks);
    json_write_int(w, "last_spike", g->last_spike);
    json_write_int(w, "good_step", g->good_step);
    json_write_real(w, "spike_loss", g->spike_loss);
    json_write_real(w, "last_loss", g->last_loss);
    json_begin_array(w, "losses", JSON_COMPACT);
    for (int i = 0; i < g->count; i++) json_write_real(w, NULL, g->losses[i]);
    json_end_array(w);
    json_end_object(w);
}

static enum status get_real(const struct json *from, const char *key, double *out)
{
    const struct json *v = json_get(from, key);
    if (!json_is_number(v)) FAIL(DATA, "\"guard\": \"%s\" must be a number", key);
    *out = json_number(v);
    return STATUS_OK;
}

enum status guard_load(struct guard *g, const struct json *from)
{
    const struct json *losses = json_get(from, "losses");
    *g = (struct guard){0};
    if (!from) return STATUS_OK;
    TRY(json_get_int(from, "still", 0, JSON_MAX_INT, &g->still));
    TRY(json_get_int(from, "spike_steps", 0, GUARD_SPIKE, &g->spike_steps));
    TRY(json_get_int(from, "spike_begin", 0, JSON_MAX_INT, &g->spike_begin));
    TRY(json_get_int(from, "rollbacks", 0, JSON_MAX_INT, &g->rollbacks));
    TRY(json_get_int(from, "last_spike", 0, JSON_MAX_INT, &g->last_spike));
    TRY(json_get_int(from, "good_step", 0, JSON_MAX_INT, &g->good_step));
    TRY(get_real(from, "spike_loss", &g->spike_loss));
    TRY(get_real(from, "last_loss", &g->last_loss));
    if (!json_is_array(losses) || json_count(losses) > GUARD_WINDOW)
        FAIL(DATA, "\"guard\": expected a list of at most %d losses", GUARD_WINDOW);
    for (const struct json *v = json_first(losses); v; v = json_next(v)) {
        if (!json_is_number(v)) FAIL(DATA, "\"guard\": \"losses\" must be numbers");
        g->losses[g->count++] = json_number(v);
    }
    return STATUS_OK;
}
