// SPDX-License-Identifier: Apache-2.0
#include "infer/generation.h"

#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = 512 }; /* tokens of prompts per forward pass, at most */

static enum status size_forward(void *context)
{
    struct generation *g = context;
    const struct model *m = &g->loaded.model;
    size_t prompts = g->max_prompt * (size_t)g->cache.B;
    TRY(decode_size(m, &g->cache, prompts < CHUNK ? (int)prompts : CHUNK, &g->loaded.step));
    return STATUS_OK;
}

static enum status alloc_cache(struct generation *g)
{
    const struct model *m = &g->loaded.model;
    int tokens = (int)(g->max_prompt + (size_t)g->max_tokens);
    TRY(decode_init_cache(&g->cache, m, g->num_rows ? g->num_rows : 1, tokens, &g->run));
    return STATUS_OK;
}

enum status generation_continue(struct generation *g)
{
    if (g->ids.count > g->max_prompt)
        FAIL(USAGE,
             "the prompt has %zu tokens, and the context has room for %zu besides the %lld "
             "of --max-tokens",
             g->ids.count, g->max_prompt, (long long)g->max_tokens);
    g->num_prompt = g->ids.count;
    token_list_reserve(&g->ids, (size_t)g->max_tokens);
    return STATUS_OK;
}

enum status generation_restart(struct generation *g)
{
    g->cache.length[0] = 0;
    TRY(generation_continue(g));
    return STATUS_OK;
}

enum status generation_open(struct generation *g)
{
    const struct objective_config *objective = &g->loaded.config.objective;
    if (objective->name != OBJECTIVE_causal)
        FAIL(CONFIG, "%s is a %s model: use --fill \"a text with <mask>\"", g->loaded.folder,
             objective_kind_word(objective->name));
    if (!g->max_prompt) g->max_prompt = g->ids.count;
    TRY(generation_restart(g));
    TRY(alloc_cache(g));
    TRY(loaded_model_alloc_step(&g->loaded, size_forward, g));
    size_t bytes = g->run.used, V = (size_t)g->loaded.shape.V;
    TRY(arena_init(&g->run, bytes, queue_device_allocator(g->loaded.machine.queue)));
    TRY(alloc_cache(g));
    g->logits_V = heap(V * sizeof *g->logits_V);
    g->order_V = heap(V * sizeof *g->order_V);
    g->penalized_V = heap(V * sizeof *g->penalized_V);
    g->log_probabilities = heap((size_t)g->max_tokens * sizeof *g->log_probabilities);
    return STATUS_OK;
}

void generation_release(struct generation *g, enum status how)
{
    loaded_model_close(&g->loaded, how);
    token_list_release(&g->ids);
    arena_release(&g->run);
    free(g->logits_V), free(g->order_V), free(g->penalized_V), free(g->log_probabilities);
}

bool generation_is_root(const struct generation *g) { return g->loaded.machine.world.rank == 0; }

enum status generation_share_text(const struct generation *g, struct text *text)
{
    const struct comm *world = &g->loaded.machine.world;
    int64_t len = (int64_t)text->len;
    TRY(comm_broadcast_bytes(world, 0, &len, sizeof len));
    if (!generation_is_root(g)) {
        text_clear(text);
        text_reserve(text, (size_t)len);
        text->len = (size_t)len;
        text->data[len] = 0;
    }
    if (len) TRY(comm_broadcast_bytes(world, 0, text->data, (size_t)len));
    return STATUS_OK;
}

enum status generation_prefill_rows(struct generation *g, const struct decode_io *io)
{
    for (int i = 0; i < io->R; i++) g->cache.length[io->rows_R[i].index] = 0;
    TRY(decode_prefill(&g->loaded.model, &g->cache, io, CHUNK, &g->loaded.step));
    return STATUS_OK;
}

enum status generation_prefill(struct generation *g)
{
    size_t cached = (size_t)g->cache.length[0];
    if (cached >= g->ids.count) return STATUS_OK;
    const struct decode_row row = {0, (int)(g->ids.count - cached), g->ids.ids + cached};
    const struct decode_io io = {&row, 1, g->logits_V};
    TRY(decode_prefill(&g->loaded.model, &g->cache, &io, CHUNK, &g->loaded.step));
    return STATUS_OK;
}

void generation_rewind(struct generation *g)
{
    g->ids.count = g->num_prompt;
    g->cache.length[0] = 0;
}

static int32_t choose(struct generation *g, const struct generation_choice *c, double *log_p)
{
    struct sampling sampling = g->sampling;
    double log_sum = sampling_log_sum(c->logits_V, g->loaded.shape.V); /* of all the model's IDs */
    int V = loaded_model_mask_logits(&g->loaded, c->logits_V);
    sampling.seed = c->seed;
    const float *logits_V = c->logits_V;
    if (g->repeat_penalty > 0 && g->repeat_penalty != 1) {
        const struct sampling_penalty p = {g->repeat_penalty, c->ids->ids, c->ids->count};
        sampling_penalize(&p, logits_V, V, g->penalized_V);
        logits_V = g->penalized_V;
    }
    int32_t id = sampling_pick(&sampling, logits_V, V, c->ids->count, g->order_V);
    *log_p = (double)c->logits_V[id] - log_sum;
    return id;
}

/* Rank 0 samples: other ranks' logits may differ in the last bits. */
enum status generation_choose(struct generation *g, const struct generation_choice *c, int32_t *id,
                              double *log_probability)
{
    if (generation_is_root(g)) *id = choose(g, c, log_probability);
    TRY(comm_broadcast_bytes(&g->loaded.machine.world, 0, id, sizeof *id));
    return STATUS_OK;
}

enum status generation_sample(struct generation *g, int32_t *id)
{
    const struct generation_choice c = {g->logits_V, &g->ids, g->sampling.seed};
    size_t made = g->ids.count - g->num_prompt;
    double log_p = NAN;
    TRY(generation_choose(g, &c, id, &log_p));
    if (made < (size_t)g->max_tokens) g->log_probabilities[made] = log_p;
    return STATUS_OK;
}

enum status generation_append(struct generation *g, int32_t id, bool more)
{
    g->ids.ids[g->ids.count++] = id;
    if (!more) return STATUS_OK;
    const struct decode_row row = {0, 1, &id};
    const struct decode_io io = {&row, 1, g->logits_V};
    TRY(decode_next(&g->loaded.model, &g->cache, &io, &g->loaded.step));
    return STATUS_OK;
}
