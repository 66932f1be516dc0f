// SPDX-License-Identifier: Apache-2.0
#include "infer/generation.h"

#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>
#include <string.h>

/* Chunked prefill: the prompt goes through the model this many tokens at a time, so that the memory
 * for activations does not grow with its length. */
enum { CHUNK = 256 };

/* Sizing pass: a full chunk and a single token, each with the longest context. */
static enum status size_forward(void *context)
{
    struct generation *g = context;
    int chunk = g->max_prompt < CHUNK ? (int)g->max_prompt : CHUNK;
    int all = (int)g->max_prompt + (int)g->max_tokens;
    for (int tokens = chunk; tokens > 0; tokens = tokens > 1 ? 1 : 0) {
        g->cache.length = all - tokens; /* attention's scratch grows with the context */
        TRY(decode_next(&g->loaded.model, &g->cache, &(struct decode_io){.T = tokens},
                        &g->loaded.step));
    }
    g->cache.length = 0;
    return STATUS_OK;
}

static enum status alloc_cache(struct generation *g)
{
    const struct model *m = &g->loaded.model;
    TRY(decode_init_cache(&g->cache, m, 1, (int)(g->max_prompt + (size_t)g->max_tokens), &g->run));
    return STATUS_OK;
}

enum status generation_restart(struct generation *g)
{
    if (g->ids.count > g->max_prompt)
        FAIL(USAGE,
             "the prompt has %zu tokens, and the context has room for %zu besides the %lld "
             "of --max-tokens",
             g->ids.count, g->max_prompt, (long long)g->max_tokens);
    g->num_prompt = g->ids.count;
    g->cache.length = 0;
    token_list_reserve(&g->ids, (size_t)g->max_tokens);
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

enum status generation_prefill(struct generation *g)
{
    for (size_t at = 0; at < g->num_prompt; at += CHUNK) {
        size_t left = g->num_prompt - at, chunk = left < CHUNK ? left : CHUNK;
        struct decode_io io = {g->ids.ids + at, (int)chunk, g->logits_V};
        TRY(decode_next(&g->loaded.model, &g->cache, &io, &g->loaded.step));
    }
    return STATUS_OK;
}

void generation_rewind(struct generation *g)
{
    g->ids.count = g->num_prompt;
    g->cache.length = 0;
}

static int32_t sample(struct generation *g)
{
    const struct tokenizer *t = g->loaded.tokenizer;
    size_t made = g->ids.count - g->num_prompt;
    int V = g->loaded.shape.V, known = t ? tokenizer_vocab_size(t) : V;
    if (known < V) V = known;
    memcpy(g->penalized_V, g->logits_V, (size_t)V * sizeof *g->logits_V);
    sampling_penalize(g->penalized_V, V, g->repeat_penalty, g->ids.ids, g->ids.count);
    int32_t id = sampling_pick(&g->sampling, g->penalized_V, V, g->ids.count, g->order_V);
    if (made < (size_t)g->max_tokens)
        g->log_probabilities[made] = sampling_log_probability(g->logits_V, V, id);
    return id;
}

/* Rank 0 samples: other ranks' logits may differ in the last bits. */
enum status generation_sample(struct generation *g, int32_t *id)
{
    if (generation_is_root(g)) *id = sample(g);
    TRY(comm_broadcast_bytes(&g->loaded.machine.world, 0, id, sizeof *id));
    return STATUS_OK;
}

enum status generation_append(struct generation *g, int32_t id, bool more)
{
    g->ids.ids[g->ids.count++] = id;
    if (!more) return STATUS_OK;
    struct decode_io io = {&id, 1, g->logits_V};
    TRY(decode_next(&g->loaded.model, &g->cache, &io, &g->loaded.step));
    return STATUS_OK;
}
