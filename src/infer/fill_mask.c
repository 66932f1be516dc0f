// SPDX-License-Identifier: Apache-2.0
#include "infer/fill_mask.h"

#include "base/json.h"
#include "data/source.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MASK[] = "<mask>"; /* accepted in place of the tokenizer's mask token */

struct fill_mask {
    struct loaded_model *l;
    struct sampling sampling;
    int32_t mask; /* ID of the mask token */
    struct token_list ids;
    int32_t *places; /* positions in ids that are still masked, ascending; owned */
    int num_places, num_masks;
    struct filled_mask {
        int32_t place, id;
        double probability; /* softmax before temperature, top_k and top_p */
    } * filled;             /* in the order in which they were filled in; owned */
    struct arena run;       /* holds the KV cache */
    struct kv_cache cache;
    float *logits_PV;
    struct candidate *order_V;
};

/* The first mask at or after `at`, and its length. */
static const char *find_mask(const char *at, const char *name, size_t *len)
{
    const char *generic = strstr(at, MASK), *own = strstr(at, name);
    bool is_own = own && (!generic || own < generic);
    *len = is_own ? strlen(name) : sizeof MASK - 1;
    return is_own ? own : generic;
}

static void add_id(struct token_list *ids, int32_t id)
{
    token_list_reserve(ids, 1);
    ids->ids[ids->count++] = id;
}

/* Positions are recorded here, not found by ID later: the mask token may also be BOS or EOS. */
static void add_mask(struct fill_mask *f)
{
    f->places = heap_grow(f->places, (size_t)f->num_places + 1, sizeof *f->places);
    f->places[f->num_places++] = (int32_t)f->ids.count;
    add_id(&f->ids, f->mask);
}

static bool has_eos(const struct fill_mask *f)
{
    const struct data_config *data = &f->l->config.data;
    const struct tokenizer *t = f->l->tokenizer;
    return source_adds_eos(t, data->bos, data->eos) && tokenizer_eos(t) >= 0;
}

static enum status encode_text(struct fill_mask *f, const char *text)
{
    const struct config *c = &f->l->config;
    const struct tokenizer *t = f->l->tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    size_t len = 0;
    f->mask = tokenizer_special(t, c->objective.mask_token);
    if (f->mask < 0)
        FAIL(CONFIG, "objective.mask_token = \"%s\": not a special token of the tokenizer",
             c->objective.mask_token);
    TRY_OUT(encoder_make(&encoder, t));
    if (c->data.bos && tokenizer_bos(t) >= 0) add_id(&f->ids, tokenizer_bos(t));
    for (const char *at = text, *found; at; at = found ? found + len : NULL) {
        found = find_mask(at, c->objective.mask_token, &len);
        TRY_OUT(encoder_encode(encoder, at, found ? (size_t)(found - at) : strlen(at), &f->ids));
        if (found) add_mask(f);
    }
    if (has_eos(f)) add_id(&f->ids, tokenizer_eos(t));
    if (!f->num_places) FAIL_OUT(USAGE, "--fill: the text must contain %s", MASK);
    if (f->ids.count > (size_t)f->l->model.max_tokens)
        FAIL_OUT(USAGE, "--fill: the text has %zu tokens; at most %d fit in a row", f->ids.count,
                 f->l->model.max_tokens);
    f->num_masks = f->num_places;
    f->filled = heap((size_t)f->num_masks * sizeof *f->filled);
out:
    encoder_free(encoder);
    return st;
}

static enum status alloc_buffers(struct fill_mask *f)
{
    size_t V = (size_t)f->l->shape.V, logits;
    if (__builtin_mul_overflow(V * sizeof *f->logits_PV, (size_t)f->num_masks, &logits))
        FAIL(USAGE, "--fill: too many masks: %d", f->num_masks);
    TRY(decode_init_cache(&f->cache, &f->l->model, 1, (int)f->ids.count, &f->run));
    if (!f->run.base) return STATUS_OK; /* sizing pass */
    f->logits_PV = heap(logits);
    f->order_V = heap(V * sizeof *f->order_V);
    return STATUS_OK;
}

static enum status forward(struct fill_mask *f)
{
    struct decode_masked_io io = {f->ids.ids, (int)f->ids.count, f->places, f->num_places,
                                  f->logits_PV};
    return decode_masked(&f->l->model, &f->cache, &io, &f->l->step);
}

static enum status size_forward(void *context)
{
    TRY(forward(context));
    return STATUS_OK;
}

static enum status open_buffers(struct fill_mask *f)
{
    TRY(alloc_buffers(f));
    TRY(loaded_model_alloc_step(f->l, size_forward, f));
    size_t bytes = f->run.used;
    TRY(arena_init(&f->run, bytes, queue_device_allocator(f->l->machine.queue)));
    TRY(alloc_buffers(f));
    return STATUS_OK;
}

/* Softmax of one row of logits, at `id`. */
static double probability(const float *logits_V, int V, int32_t id)
{
    double max = (double)logits_V[0], sum = 0;
    for (int i = 1; i < V; i++) max = fmax(max, (double)logits_V[i]);
    for (int i = 0; i < V; i++) sum += exp((double)logits_V[i] - max);
    return exp((double)logits_V[id] - max) / sum;
}

/* The masked position whose best token has the highest probability, and a token sampled there.
 * The mask token itself is excluded. */
static void choose_mask(struct fill_mask *f, struct filled_mask *out)
{
    int V = f->l->shape.V, best = 0;
    double highest = -1;
    for (int i = 0; i < f->num_places; i++) {
        float *logits = f->logits_PV + (size_t)i * (size_t)V;
        int32_t top = 0;
        logits[f->mask] = -INFINITY;
        for (int32_t id = 1; id < V; id++)
            if (logits[id] > logits[top]) top = id;
        double p = probability(logits, V, top);
        if (p > highest) highest = p, best = i;
    }
    const float *logits = f->logits_PV + (size_t)best * (size_t)V;
    out->place = f->places[best];
    out->id = sampling_pick(&f->sampling, logits, V, (uint64_t)out->place, f->order_V);
    out->probability = probability(logits, V, out->id);
}

/* One forward pass fills in one mask.  Rank 0 chooses: other ranks' logits may differ in the last
 * bits. */
static enum status fill_one_mask(struct fill_mask *f)
{
    const struct comm *world = &f->l->machine.world;
    struct filled_mask *out = &f->filled[f->num_masks - f->num_places];
    int which = 0;
    TRY(forward(f));
    if (world->rank == 0) choose_mask(f, out);
    TRY(comm_broadcast_bytes(world, 0, out, sizeof *out));
    f->ids.ids[out->place] = out->id;
    while (f->places[which] != out->place) which++;
    f->num_places--;
    memmove(f->places + which, f->places + which + 1,
            (size_t)(f->num_places - which) * sizeof *f->places);
    return STATUS_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct filled_mask *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static enum status report(struct fill_mask *f, bool json)
{
    const struct tokenizer *t = f->l->tokenizer;
    struct text out = {0};
    struct json_writer w = {.text = &out};
    enum status st = STATUS_OK;
    size_t first = f->l->config.data.bos && tokenizer_bos(t) >= 0;
    size_t last = f->ids.count - has_eos(f);
    qsort(f->filled, (size_t)f->num_masks, sizeof *f->filled, by_place);
    if (!json) {
        TRY_OUT(tokenizer_decode(t, f->ids.ids + first, last - first, &out));
        printf("%s\n", out.data);
        goto out;
    }
    json_begin_object(&w, NULL, JSON_INLINE);
    TRY_OUT(loaded_model_write_text(f->l, f->ids.ids + first, last - first, "text", &w));
    json_begin_array(&w, "filled", JSON_INLINE);
    for (int i = 0; i < f->num_masks; i++) {
        const struct filled_mask *at = &f->filled[i];
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_int(&w, "id", at->id);
        TRY_OUT(loaded_model_write_text(f->l, &at->id, 1, "text", &w));
        json_write_format(&w, "probability", "%.9g", at->probability);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
out:
    text_release(&out);
    return st;
}

enum status fill_mask_print(struct loaded_model *l, const char *text, const struct sampling *s,
                            bool json)
{
    struct fill_mask f = {.l = l, .sampling = *s};
    enum status st = STATUS_OK;
    const struct comm *world = &l->machine.world;
    if (l->config.objective.name != OBJECTIVE_masked)
        FAIL(CONFIG, "%s is a causal model; --fill requires a masked model", l->folder);
    TRY_OUT(comm_agree(world, encode_text(&f, text)));
    TRY_OUT(comm_agree(world, open_buffers(&f)));
    while (f.num_places) TRY_OUT(fill_one_mask(&f));
    if (world->rank == 0) TRY_OUT(report(&f, json));
out:
    free(f.places), free(f.filled);
    free(f.logits_PV), free(f.order_V);
    token_list_release(&f.ids);
    arena_release(&f.run);
    return st;
}
