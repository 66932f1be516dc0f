// SPDX-License-Identifier: Apache-2.0
#include "train/step_sums.h"

#include "base/exact_sum.h"
#include "base/text.h"
#include "ops/update.h"
#include "tensor/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct comm *group(const struct step_sums *s, enum group g)
{
    return &s->groups->of[g];
}

/* --- elastic sums --- */

void step_sums_init(struct step_sums *s, int num_microbatches)
{
    if (!s->elastic) return;
    int parts = elastic_parts(s->elastic) / group(s, GROUP_shard)->size;
    int most = parts > num_microbatches ? parts : num_microbatches;
    s->num_microbatches = num_microbatches;
    s->shares = heap((size_t)num_microbatches * sizeof *s->shares);
    s->scratch = heap((size_t)most * sizeof *s->scratch);
}

void step_sums_release(struct step_sums *s)
{
    free(s->shares), free(s->scratch);
    s->shares = NULL, s->scratch = NULL;
}

/* The sum of squares of elements [begin, end) of a flat buffer; 0 in a sizing pass. */
static enum status sum_range(const struct step_sums *s, const float *flat, size_t begin, size_t end,
                             double *sum)
{
    *sum = 0;
    TRY(sum_squares(s->ops, &(struct sum_squares){.n = end - begin},
                    &(struct sum_squares_io){element(flat, begin, F32), sum}, s->queue));
    return STATUS_OK;
}

static bool is_counted_elsewhere(const struct step_sums *s, const struct shard_run *run)
{
    for (int i = 0; i < REPLICATED_COUNT; i++)
        if (replicas_is_duplicate(&s->replicas[i], run)) return true;
    return false;
}

/* Adds the squares of `count` parts of n elements: a sum for each, all in one call.  Zero in a
 * sizing pass. */
static enum status add_parts(const struct step_sums *s, const float *x, size_t n, size_t count,
                             struct exact_sum *squares)
{
    const struct sum_squares parts = {.n = n, .sums = count};
    memset(s->scratch, 0, count * sizeof *s->scratch);
    TRY(sum_squares(s->ops, &parts, &(struct sum_squares_io){x, s->scratch}, s->queue));
    for (size_t i = 0; i < count; i++) exact_sum_add(squares, s->scratch[i]);
    return STATUS_OK;
}

/* Adds the squares of this rank's shard of weights or gradients, in parts that every number of
 * data-parallel ranks has, without replicated elements that another rank counts. */
static enum status add_squares(const struct step_sums *s, const float *flat,
                               struct exact_sum *squares)
{
    const struct layout *l = s->layout;
    const struct shard *shard = s->optim->shard;
    size_t shards = (size_t)group(s, GROUP_shard)->size, parts = (size_t)elastic_parts(s->elastic);
    size_t first = 0; /* run that may reach into the part */
    for (int unit = 0; unit < l->num_units; unit++) {
        size_t n = l->units[unit].elements / parts, begin = l->units[unit].offset / shards;
        TRY(add_parts(s, element(flat, begin, F32), n, parts / shards, squares));
        for (size_t part = 0; part < parts / shards; part++, begin += n) {
            const struct shard_run *run = shard->runs + first, *last = shard->runs + shard->count;
            while (run < last && run->at + run->count <= begin) run++;
            first = (size_t)(run - shard->runs);
            for (; run < last && run->at < begin + n; run++) {
                size_t from = run->at, to = run->at + run->count;
                double sum;
                if (!is_counted_elsewhere(s, run)) continue;
                if (from < begin) from = begin;
                if (to > begin + n) to = begin + n;
                TRY(sum_range(s, flat, from, to, &sum));
                exact_sum_add(squares, -sum);
            }
        }
    }
    return STATUS_OK;
}

static enum status elastic_norm(const struct step_sums *s, const float *flat, double *norm)
{
    struct exact_sum squares = {0};
    TRY(add_squares(s, flat, &squares));
    TRY(comm_all_reduce_exact(group(s, GROUP_shard), &squares));
    TRY(comm_all_reduce_exact(group(s, GROUP_tp), &squares));
    TRY(comm_all_reduce_exact(group(s, GROUP_pp), &squares));
    *norm = sqrt(exact_sum_value(&squares));
    return STATUS_OK;
}

static enum status elastic_losses(const struct step_sums *s, struct step_totals *totals)
{
    const struct comm *readers = group(s, GROUP_data);
    size_t count = (size_t)s->num_microbatches;
    double *losses = s->scratch;
    struct exact_sum sum = {0};
    for (size_t i = 0; i < count; i++) losses[i] = s->shares[i].loss;
    TRY(comm_all_reduce(group(s, GROUP_cp), REDUCE_SUM, losses, count));
    TRY(comm_all_reduce(group(s, GROUP_pp), REDUCE_SUM, losses, count));
    totals->max_loss = 0;
    for (size_t i = 0; i < count; i++) {
        double own = losses[i] * s->shares[i].mean_scale;
        exact_sum_add(&sum, losses[i]);
        if (own > totals->max_loss || isnan(own)) totals->max_loss = own;
    }
    TRY(comm_all_reduce_exact(readers, &sum));
    TRY(comm_all_reduce(readers, REDUCE_MAX, &totals->max_loss, 1));
    totals->loss = exact_sum_value(&sum);
    return STATUS_OK;
}

/* --- in the order of comm.h --- */

/* Sum of squares of this rank's shard of weights or gradients, without replicated elements that
 * another rank counts. */
static enum status local_squares(const struct step_sums *s, const void *flat, enum dtype dtype,
                                 double *squares)
{
    double duplicate, sum = 0;
    const struct sum_squares all = {.n = s->optim->shard->elements, .dtype = dtype};
    TRY(sum_squares(s->ops, &all, &(struct sum_squares_io){flat, &sum}, s->queue));
    *squares = s->queue->sizing ? 0 : sum;
    for (int i = 0; i < REPLICATED_COUNT; i++) {
        TRY(replicas_duplicate_squares(&s->replicas[i], flat, dtype, &duplicate));
        *squares -= duplicate;
    }
    return STATUS_OK;
}

/* *norm is the root of the sum of all ranks' squares. */
static enum status reduce_norm(const struct step_sums *s, double squares, double *norm)
{
    TRY(comm_all_reduce(group(s, GROUP_shard), REDUCE_SUM, &squares, 1));
    TRY(comm_all_reduce(group(s, GROUP_tp), REDUCE_SUM, &squares, 1));
    TRY(comm_all_reduce(group(s, GROUP_pp), REDUCE_SUM, &squares, 1));
    *norm = sqrt(squares);
    return STATUS_OK;
}

enum status step_sums_norm(const struct step_sums *s, const float *flat, double *norm)
{
    double squares;
    if (s->elastic) return elastic_norm(s, flat, norm);
    TRY(local_squares(s, flat, F32, &squares));
    return reduce_norm(s, squares, norm);
}

/* Adds `sign` times the squares of elements [begin, end) of the split weights. */
static enum status add_split_squares(const struct step_sums *s, const struct split_chunk *c,
                                     struct store_range part, double sign, double *squares)
{
    for (size_t done = 0, n; done < part.count; done += n) {
        double sum = 0;
        size_t at = part.at + done;
        n = part.count - done < c->elements ? part.count - done : c->elements;
        TRY(unsplit(s->ops, &(struct unsplit){n},
                    &(struct unsplit_io){c->half + at, c->low + at, c->x}, s->queue));
        TRY(sum_range(s, c->x, 0, n, &sum));
        *squares += sign * sum;
    }
    return STATUS_OK;
}

enum status step_sums_split_norm(const struct step_sums *s, const struct split_chunk *c,
                                 double *norm)
{
    const struct shard *shard = s->optim->shard;
    double squares = 0;
    TRY(add_split_squares(s, c, (struct store_range){0, shard->elements, 0}, 1, &squares));
    for (size_t i = 0; i < shard->count; i++) {
        struct store_range part = {shard->runs[i].at, shard->runs[i].count, 0};
        if (is_counted_elsewhere(s, &shard->runs[i]))
            TRY(add_split_squares(s, c, part, -1, &squares));
    }
    return reduce_norm(s, squares, norm);
}

enum status step_sums_reduce(const struct step_sums *s, const struct loss_share *local,
                             const void *gradients, struct step_totals *totals)
{
    const struct comm *readers = group(s, GROUP_data);
    if (s->elastic) {
        TRY(elastic_norm(s, gradients, &totals->grad_norm));
        return elastic_losses(s, totals);
    }
    double sums[] = {local->loss, 0};
    TRY(local_squares(s, gradients, s->optim->gradients, &sums[1]));
    /* A row may be on several context-parallel ranks, and only the last stage knows losses. */
    TRY(comm_all_reduce(group(s, GROUP_cp), REDUCE_SUM, &sums[0], 1));
    TRY(comm_all_reduce(group(s, GROUP_shard), REDUCE_SUM, &sums[1], 1));
    TRY(comm_all_reduce(group(s, GROUP_tp), REDUCE_SUM, &sums[1], 1));
    TRY(comm_all_reduce(group(s, GROUP_pp), REDUCE_SUM, sums, 2));
    totals->grad_norm = sqrt(sums[1]);
    totals->loss = sums[0], totals->max_loss = sums[0] * local->mean_scale;
    TRY(comm_all_reduce(readers, REDUCE_SUM, &totals->loss, 1));
    TRY(comm_all_reduce(readers, REDUCE_MAX, &totals->max_loss, 1));
    return STATUS_OK;
}

enum status step_sums_size(const struct step_sums *s, const void *gradients)
{
    double squares;
    struct exact_sum exact = {0};
    if (s->elastic) return add_squares(s, gradients, &exact);
    return local_squares(s, gradients, s->optim->gradients, &squares);
}
