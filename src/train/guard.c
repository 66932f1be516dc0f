// SPDX-License-Identifier: Apache-2.0
#include "train/guard.h"

#include "base/log.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of n sorted values, n above 0. */
static double median_of(const double *sorted, int n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Sets the report's median and z-score; returns whether the loss is a spike. */
static bool is_spike(const struct guard *g, double loss, double limit, struct guard_report *r)
{
    /* A deviation below this share of the loss is not the noise of training, but a short or
     * constant window. */
    const double smallest = 1e-3;
    double sorted[GUARD_WINDOW], distance[GUARD_WINDOW];
    int n = g->count;
    if (n < GUARD_LEAST) return false;
    memcpy(sorted, g->losses, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    r->median = median_of(sorted, n);
    for (int i = 0; i < n; i++) distance[i] = fabs(sorted[i] - r->median);
    qsort(distance, (size_t)n, sizeof *distance, compare_doubles);
    double deviation = fmax(1.4826 * median_of(distance, n), smallest * fmax(1, fabs(r->median)));
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

struct guard_report guard_observe(struct guard *g, double loss, double grad_norm, double limit)
{
    const double no_gradient = 1e-7, same = 1e-5; /* the latter relative */
    struct guard_report r = {GUARD_NONE, 0, 0};
    if (!isfinite(loss) || !isfinite(grad_norm)) return r;
    bool spikes = is_spike(g, loss, limit, &r);
    bool is_still = grad_norm <= no_gradient && g->count &&
                    fabs(loss - g->last_loss) <= same * fabs(g->last_loss);
    g->still = is_still ? g->still + 1 : 0;
    if (g->still == GUARD_STILL) r.alarm = GUARD_NO_GRADIENT;
    if (spikes && !g->in_spike) r.alarm = GUARD_SPIKE;
    g->in_spike = spikes;
    g->last_loss = loss;
    add_loss(g, loss);
    return r;
}

bool guard_watch(struct guard *g, const struct guard_config *c, const struct step_result *s,
                 bool log)
{
    struct guard_report r = guard_observe(g, s->loss, s->grad_norm, c->spike_zscore);
    if (r.alarm == GUARD_SPIKE && log)
        log_line(LOG_WARN,
                 "step %lld: the loss spikes: %.5f is %.1f standard deviations above %.5f, the "
                 "median of the steps before",
                 (long long)s->step, s->loss, r.zscore, r.median);
    if (r.alarm == GUARD_NO_GRADIENT && log)
        log_line(
            LOG_WARN,
            "step %lld: the model does not learn: for %d steps the gradient norm is %g and the "
            "loss %.5f; check the starting weights, the data and optimizer.lr",
            (long long)s->step, GUARD_STILL, s->grad_norm, s->loss);
    return (r.alarm == GUARD_SPIKE && c->on_spike == ON_SPIKE_rollback) ||
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
    json_write_bool(w, "in_spike", g->in_spike);
    json_write_int(w, "still", g->still);
    json_write_int(w, "rollbacks", g->rollbacks);
    json_write_int(w, "last_spike", g->last_spike);
    json_begin_array(w, "losses", JSON_COMPACT);
    for (int i = 0; i < g->count; i++) json_write_real(w, NULL, g->losses[i]);
    json_end_array(w);
    json_end_object(w);
}

enum status guard_load(struct guard *g, const struct json *from)
{
    int64_t max = INT64_C(1) << 53;
    const struct json *losses = json_get(from, "losses");
    *g = (struct guard){0};
    if (!from) return STATUS_OK;
    TRY(json_get_int(from, "still", 0, max, &g->still));
    TRY(json_get_int(from, "rollbacks", 0, max, &g->rollbacks));
    TRY(json_get_int(from, "last_spike", 0, max, &g->last_spike));
    g->in_spike = json_true(json_get(from, "in_spike"));
    if (!json_is_array(losses) || json_count(losses) > GUARD_WINDOW)
        FAIL(DATA, "\"guard\": expected a list of at most %d losses", GUARD_WINDOW);
    for (const struct json *v = json_first(losses); v; v = json_next(v)) {
        if (!json_is_number(v) || !isfinite(json_number(v)))
            FAIL(DATA, "\"guard\": \"losses\" must be finite numbers");
        g->losses[g->count++] = g->last_loss = json_number(v);
    }
    return STATUS_OK;
}
