// SPDX-License-Identifier: Apache-2.0
#include "data/cyclic.h"

#include "base/text.h"
#include "data/numpy.h"

#include <stdlib.h>

/* torch.randperm(count) after manual_seed(epoch), whose generator is MT19937 like NumPy's. */
static void permute(struct cyclic *c, uint64_t epoch)
{
    struct numpy_random r;
    numpy_random_init(&r, (uint32_t)epoch);
    for (uint64_t i = 0; i < c->count; i++) c->permutation[i] = (uint32_t)i;
    for (uint64_t i = 0; i + 1 < c->count; i++) {
        uint64_t other = i + numpy_random_word(&r) % (c->count - i);
        uint32_t value = c->permutation[i];
        c->permutation[i] = c->permutation[other];
        c->permutation[other] = value;
    }
    c->epoch = epoch;
}

enum status cyclic_init(struct cyclic *c)
{
    uint64_t step = c->ranks * c->rows;
    c->permutation = NULL;
    if (c->samples < step)
        FAIL(CONFIG,
             "data.sampler: %llu samples do not fill microbatches of %llu rows on %llu ranks",
             (unsigned long long)c->samples, (unsigned long long)c->rows,
             (unsigned long long)c->ranks);
    if (!c->batch) c->batch = step;
    if (c->batch % step)
        FAIL(CONFIG,
             "data.sampler_batch = %llu: must be a multiple of microbatches of %llu rows on %llu "
             "ranks",
             (unsigned long long)c->batch, (unsigned long long)c->rows,
             (unsigned long long)c->ranks);
    if (c->samples < c->batch)
        FAIL(CONFIG, "data.sampler: %llu samples do not fill a batch of %llu rows",
             (unsigned long long)c->samples, (unsigned long long)c->batch);
    c->count = (c->sharded ? c->samples / step : c->samples / c->rows) * c->rows;
    if (c->count >= UINT32_MAX / 20) /* PyTorch then draws 64 bits */
        FAIL(UNSUPPORTED, "data.sampler: permutations of %llu samples exceed the limit of %u",
             (unsigned long long)c->count, UINT32_MAX / 20 - 1);
    c->permutation = heap(c->count * sizeof *c->permutation);
    permute(c, 0);
    return STATUS_OK;
}

void cyclic_release(struct cyclic *c)
{
    free(c->permutation);
    *c = (struct cyclic){0};
}

/* Rows of an epoch. */
static uint64_t active_rows(const struct cyclic *c) { return c->samples - c->samples % c->batch; }

bool cyclic_begins_step(const struct cyclic *c, uint64_t number)
{
    return number % active_rows(c) % (c->ranks * c->rows) == 0;
}

uint64_t cyclic_at(struct cyclic *c, uint64_t number)
{
    uint64_t step = c->ranks * c->rows, active = active_rows(c);
    uint64_t epoch = number / active, here = number % active;
    uint64_t rank = here / c->rows % c->ranks, own = here / step * c->rows + here % c->rows;
    if (epoch != c->epoch) permute(c, epoch);
    if (c->sharded) return rank * c->count + c->permutation[own];
    return c->permutation[rank + own * c->ranks];
}
