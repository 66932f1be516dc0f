// SPDX-License-Identifier: Apache-2.0
#include "infer/generation.h"

#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>
#include <string.h>

/* Prompt tokens go through the model in pieces, so that a long prompt needs no more memory. */
enum { PIECE = 256 };

static enum status rehearse(void *context)
{
    struct generation *g = context;
    int piece = g->num_prompt < PIECE ? (int)g->num_prompt : PIECE;
    int all = (int)g->num_prompt + (int)g->max_tokens;
    for (int tokens = piece; tokens > 0; tokens = tokens > 1 ? 1 : 0) {
        g->cache.length = all - tokens; /* what attention takes grows with what it looks back on */
        TRY(decode_next(&g->loaded.model, &g->cache, &(struct decode_io){.T = tokens},
                        &g->loaded.step));
    }
    g->cache.length = 0;
    return STATUS_OK;
}

static enum status take(struct generation *g)
{
    const struct model *m = &g->loaded.model;
    TRY(decode_init_cache(&g->cache, m, 1, (int)(g->num_prompt + (size_t)g->max_tokens), &g->run));
    return STATUS_OK;
}

enum status generation_open(struct generation *g)
{
    if (g->loaded.config.objective.name == OBJECTIVE_masked)
        FAIL(CONFIG, "%s was trained to fill in masked tokens: --fill \"a text with <mask>\"",
             g->loaded.folder);
    g->num_prompt = g->ids.count;
    token_list_reserve(&g->ids, (size_t)g->max_tokens);
    TRY(take(g));
    TRY(loaded_arena(&g->loaded, rehearse, g));
    size_t bytes = g->run.used, V = (size_t)g->loaded.shape.V;
    TRY(arena_init(&g->run, bytes, queue_device_allocator(g->loaded.machine.queue)));
    TRY(take(g));
    g->logits_V = heap(V * sizeof *g->logits_V);
    g->order_V = heap(V * sizeof *g->order_V);
    return STATUS_OK;
}

void generation_release(struct generation *g, enum status how)
{
    loaded_close(&g->loaded, how);
    token_list_release(&g->ids);
    arena_release(&g->run);
    free(g->logits_V), free(g->order_V);
}

bool generation_leads(const struct generation *g) { return g->loaded.machine.world.rank == 0; }

enum status generation_prefill(struct generation *g)
{
    for (size_t at = 0; at < g->num_prompt; at += PIECE) {
        size_t left = g->num_prompt - at, piece = left < PIECE ? left : PIECE;
        struct decode_io io = {g->ids.ids + at, (int)piece, g->logits_V};
        TRY(decode_next(&g->loaded.model, &g->cache, &io, &g->loaded.step));
    }
    return STATUS_OK;
}

/* Rank 0's choice: others may know the logits with other last bits. */
enum status generation_choose(struct generation *g, int32_t *id)
{
    double choice = 0;
    if (generation_leads(g))
        choice =
            sampling_pick(&g->sampling, g->logits_V, g->loaded.shape.V, g->ids.count, g->order_V);
    TRY(comm_all_reduce(&g->loaded.machine.world, REDUCE_SUM, &choice, 1));
    *id = (int32_t)choice;
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
