// SPDX-License-Identifier: Apache-2.0
#include "parallel/elastic.h"

#include "parallel/suggest.h"

static bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

static bool divides_step(int64_t canonical, const void *context)
{
    const struct elastic *e = context;
    return is_power_of_two(canonical) && e->microbatches % canonical == 0;
}

static bool divides_tree(int64_t readers, const void *context)
{
    const struct elastic *e = context;
    return e->canonical % readers == 0;
}

int64_t elastic_choose(int64_t microbatches)
{
    int64_t canonical = 1;
    while (canonical < ELASTIC_MAX_CHOICE && microbatches % (2 * canonical) == 0) canonical *= 2;
    return canonical;
}

enum status elastic_check(const struct elastic *e)
{
    if (!e->canonical) return STATUS_OK;
    if (!divides_step(e->canonical, e))
        FAIL(CONFIG,
             "training.canonical_microbatches = %lld must be a power of two that divides the %lld "
             "microbatches of a step%s",
             (long long)e->canonical, (long long)e->microbatches,
             suggest_values(e->canonical, 1, ELASTIC_MAX, divides_step, e).text);
    if (!divides_tree(e->readers, e))
        FAIL(CONFIG,
             "%d data-parallel ranks: with training.determinism = \"elastic\" their number must "
             "divide training.canonical_microbatches, here %lld%s",
             e->readers, (long long)e->canonical,
             suggest_values(e->readers, 1, e->canonical, divides_tree, e).text);
    if (!is_power_of_two(e->contexts) || e->contexts > ELASTIC_MAX)
        FAIL(CONFIG,
             "parallelism.context_parallel_degree = %d: must be a power of two, at most %d, with "
             "training.determinism = \"elastic\"",
             e->contexts, ELASTIC_MAX);
    return STATUS_OK;
}

int elastic_leaves(const struct elastic *e) { return (int)(e->canonical / e->readers); }

int elastic_parts(const struct elastic *e) { return (int)e->canonical * e->contexts; }

int elastic_buffer(const struct elastic *e, int i)
{
    int leaves = elastic_leaves(e);
    return (i >= leaves) + __builtin_popcount((unsigned)(i % leaves));
}

int elastic_merges(const struct elastic *e, int i)
{
    int leaves = elastic_leaves(e), leaf = i % leaves;
    bool ends_tree = leaf == leaves - 1;
    return ends_tree ? elastic_buffer(e, i) : __builtin_ctz(~(unsigned)leaf);
}

int elastic_num_buffers(const struct elastic *e, bool direct)
{
    int most = 0, count = (int)(e->microbatches / e->readers);
    for (int i = 0; i < count; i++) {
        bool is_stored = !direct || !elastic_merges(e, i);
        if (is_stored && elastic_buffer(e, i) > most) most = elastic_buffer(e, i);
    }
    return most + 1;
}
