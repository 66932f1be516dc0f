// SPDX-License-Identifier: Apache-2.0
#include "model/init_weights.h"

#include "base/normal.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Elements [first, first + count) of a tensor, to be written to w. */
struct init_range {
    const struct tensor_slot *slot;
    size_t first, count;
    float *w;
};

/* Random streams are numbered as in the list without the weights of QK norm and biases, which draw
 * nothing. */
static uint64_t stream_of(const struct tensor_slot *t)
{
    enum { SKIPPED = PARAM_down_bias + 1 - PARAM_q_norm };
    int id = (int)t->id - (t->id > PARAM_down_bias ? SKIPPED : 0);
    return (uint64_t)(t->layer + 1) * (PARAM_COUNT - SKIPPED) + (uint64_t)id;
}

/* Draws from N(0, std^2), truncated at +-limit*std. */
static void fill_normal(const struct init_range *t, uint64_t seed, double std, double limit)
{
    const struct normal_stream s = {seed, RNG_INIT, stream_of(t->slot), std, limit};
    normal_fill(&s, t->first, t->count, t->w);
}

/* torchtitan truncates its N(0, 0.02) at +-2 absolute, a hundred deviations: not at all. */
static void fill(const struct init_range *t, const struct model_shape *m, uint64_t seed)
{
    enum param_id id = t->slot->id;
    enum param_init init = params[id].init;
    /* A tied embedding serves as the head: unit variance would make the first logits huge. */
    if (init == PARAM_INIT_EMBED && m->tied) init = PARAM_INIT_HEAD;
    double depth = 2.0 * (m->depth_init ? t->slot->layer + 1 : m->L), std = m->init_std;
    if (std == 0) std = 0.02;
    if (m->init != INIT_torchtitan && !param_is_vector(id)) {
        bool scaled = id == PARAM_attn_out || id == PARAM_mlp_down;
        if (m->init == INIT_megatron && scaled) std /= sqrt(2.0 * m->L);
        fill_normal(t, seed, std, INFINITY);
        return;
    }
    switch (init) {
    case PARAM_INIT_ONES:
        for (size_t i = 0; i < t->count; i++) t->w[i] = 1;
        break;
    case PARAM_INIT_ZEROS: memset(t->w, 0, t->count * sizeof *t->w); break;
    case PARAM_INIT_EMBED: fill_normal(t, seed, 1, INFINITY); break;
    case PARAM_INIT_NORMAL: fill_normal(t, seed, std, INFINITY); break;
    case PARAM_INIT_DEPTH_SCALED: fill_normal(t, seed, std / sqrt(depth), INFINITY); break;
    case PARAM_INIT_HEAD: fill_normal(t, seed, 1 / sqrt(m->D), 3); break;
    }
}

/* Unless the storage is plain f32 of the host, goes through a small buffer, run by run. */
static enum status fill_run(const struct tensor_slot *slot, const struct shard_run *run,
                            const struct model_shape *m, uint64_t seed, const struct store *to)
{
    enum { MAX_ELEMENTS = 1 << 22 };
    struct init_range t = {slot, run->first, run->count, NULL};
    if (store_host_f32(to)) {
        t.w = store_host_f32(to) + run->at;
        fill(&t, m, seed);
        return STATUS_OK;
    }
    t.w = heap((run->count < MAX_ELEMENTS ? run->count : MAX_ELEMENTS) * sizeof *t.w);
    enum status st = STATUS_OK;
    for (size_t done = 0; done < run->count; done += t.count) {
        t.first = run->first + done;
        t.count = run->count - done < MAX_ELEMENTS ? run->count - done : MAX_ELEMENTS;
        fill(&t, m, seed);
        TRY_OUT(store_write(to, run->at + done, t.count, t.w));
    }
out:
    free(t.w);
    return st;
}

enum status init_weights_store(const struct layout *l, const struct shard *p,
                               const struct model_shape *m, uint64_t seed, const struct store *to)
{
    TRY(store_zero(to, p->elements)); /* the padding between units */
    for (size_t i = 0; i < p->count; i++)
        TRY(fill_run(&l->tensors[p->runs[i].tensor], &p->runs[i], m, seed, to));
    return STATUS_OK;
}

enum status init_weights_repeat(const struct layout *l, const struct shard *p,
                                const struct model_shape *m, uint64_t seed, const struct store *to)
{
    enum { PERIOD = 65521 }; /* a prime, so that the rows of a matrix differ */
    TRY(store_zero(to, p->elements));
    for (size_t i = 0; i < p->count; i++) {
        struct shard_run first = p->runs[i];
        size_t count = first.count;
        if (first.count > PERIOD) first.count = PERIOD;
        TRY(fill_run(&l->tensors[first.tensor], &first, m, seed, to));
        TRY(store_repeat(to, first.at, first.count, count));
    }
    return STATUS_OK;
}
