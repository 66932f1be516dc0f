// SPDX-License-Identifier: Apache-2.0
#include "config/batch_ramp.h"

enum status batch_ramp_check(const struct training_config *c)
{
    const char *key = "training.batch_ramp";
    const struct option_ints *ramp = &c->batch_ramp;
    if (!ramp->count) return STATUS_OK;
    if (ramp->count != 3)
        FAIL(CONFIG, "%s: expected 3 numbers [start, increment, samples], got %zu", key,
             ramp->count);
    long long start = ramp->items[0], increment = ramp->items[1], global = c->global_batch_size;
    if (global < 1)
        FAIL(CONFIG, "%s requires training.global_batch_size, the rows of a step after the ramp",
             key);
    if (start >= global)
        FAIL(CONFIG, "%s: start = %lld: must be less than training.global_batch_size = %lld", key,
             start, global);
    if ((global - start) % increment)
        FAIL(CONFIG,
             "%s: increment = %lld: must divide the %lld rows from start = %lld to "
             "training.global_batch_size = %lld",
             key, increment, global - start, start, global);
    if ((global - start) / increment >= BATCH_RAMP_MAX_SIZES)
        FAIL(CONFIG, "%s: increment = %lld makes %lld sizes of a step; must be at most %d", key,
             increment, (global - start) / increment + 1, BATCH_RAMP_MAX_SIZES);
    return STATUS_OK;
}

struct batch_ramp batch_ramp_of(const struct training_config *c, int64_t global)
{
    const int64_t *ramp = c->batch_ramp.items;
    struct batch_ramp r = {.global = global};
    if (c->batch_ramp.count == 3) r.start = ramp[0], r.increment = ramp[1], r.samples = ramp[2];
    return r;
}

int64_t batch_ramp_rows(const struct batch_ramp *r, int64_t done)
{
    if (!r->increment || done > r->samples) return r->global;
    int64_t count = (r->global - r->start) / r->increment;
    double each = (double)r->samples / (double)count;
    return r->start + (int64_t)((double)done / each) * r->increment;
}

/* The fewest rows done, from `low` up, with which a step has at least `rows` rows. */
static int64_t find_size(const struct batch_ramp *r, int64_t low, int64_t rows)
{
    int64_t high = r->samples + 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (batch_ramp_rows(r, middle) >= rows)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int64_t batch_ramp_full(const struct batch_ramp *r)
{
    return r->increment ? find_size(r, 0, r->global) : 0;
}

/* Takes steps of equal size, at most `most`, until at least `until` rows are done or steps grow.
 * Returns their number. */
static int64_t take_equal_steps(const struct batch_ramp *r, int64_t *done, int64_t until,
                                int64_t most)
{
    int64_t rows = batch_ramp_rows(r, *done), end = until;
    if (rows < r->global) {
        int64_t next = find_size(r, *done, rows + 1);
        if (next < until) end = next;
    }
    int64_t left = end - *done, steps = left / rows + (left % rows > 0), all;
    if (steps > most) steps = most;
    if (__builtin_mul_overflow(steps, rows, &all) || __builtin_add_overflow(all, *done, done))
        *done = INT64_MAX;
    return steps;
}

int64_t batch_ramp_advance(const struct batch_ramp *r, int64_t done, int64_t steps)
{
    while (steps > 0 && done < INT64_MAX) steps -= take_equal_steps(r, &done, INT64_MAX, steps);
    return done;
}

int64_t batch_ramp_steps_to(const struct batch_ramp *r, int64_t done, int64_t rows)
{
    int64_t steps = 0;
    while (done < rows) steps += take_equal_steps(r, &done, rows, INT64_MAX);
    return steps;
}

int64_t batch_ramp_steps_of_samples(const struct batch_ramp *r, int64_t samples)
{
    int64_t ramp = r->samples < samples ? r->samples : samples, steps = 0, done = 0;
    if (r->increment) steps = batch_ramp_steps_to(r, 0, ramp + 1);
    if (r->increment) done = batch_ramp_advance(r, 0, steps);
    return samples > done ? steps + (samples - done) / r->global : steps;
}

void batch_ramp_describe(const struct batch_ramp *r, struct text *out)
{
    long long count = r->increment ? (r->global - r->start) / r->increment : 0;
    text_addf(out, "%lld to %lld rows per step in %lld increment%s over %lld rows",
              (long long)r->start, (long long)r->global, count, count == 1 ? "" : "s",
              (long long)r->samples);
}
