// SPDX-License-Identifier: Apache-2.0
#include "infer/fill.h"

#include "base/json.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MASK[] = "<mask>"; /* as users write it */

struct filling {
    struct loaded *l;
    struct sampling sampling;
    int32_t mask;
    struct token_list ids;
    int32_t *places; /* of ids that are masks still; owned */
    int num_places, num_masks;
    struct filled {
        int32_t place, id;
        double probability; /* before any top_k, top_p and temperature */
    } * filled;             /* in the order of the rounds; owned */
    struct arena run;       /* of the cache */
    struct kv_cache cache;
    float *logits_PV;
    struct candidate *order_V;
};

/* The first mask from `at` on; *len: of what stands for it. */
static const char *next_mask(const char *at, const char *name, size_t *len)
{
    const char *plain = strstr(at, MASK), *own = strstr(at, name);
    bool is_own = own && (!plain || own < plain);
    *len = is_own ? strlen(name) : sizeof MASK - 1;
    return is_own ? own : plain;
}

static void add_id(struct token_list *ids, int32_t id)
{
    token_list_reserve(ids, 1);
    ids->ids[ids->count++] = id;
}

/* Only what the text marks: other ids may be the mask's, too, such as that of BOS. */
static void add_mask(struct filling *f)
{
    f->places = heap_grow(f->places, (size_t)f->num_places + 1, sizeof *f->places);
    f->places[f->num_places++] = (int32_t)f->ids.count;
    add_id(&f->ids, f->mask);
}

static enum status read_text(struct filling *f, const char *text)
{
    const struct config *c = &f->l->config;
    const struct tokenizer *t = f->l->tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    size_t len = 0;
    f->mask = tokenizer_special(t, c->objective.mask_token);
    if (f->mask < 0)
        FAIL(CONFIG, "objective.mask_token = \"%s\": the tokenizer has no such special token",
             c->objective.mask_token);
    TRY_OUT(encoder_make(&encoder, t));
    if (c->data.bos && tokenizer_bos(t) >= 0) add_id(&f->ids, tokenizer_bos(t));
    for (const char *at = text, *found; at; at = found ? found + len : NULL) {
        found = next_mask(at, c->objective.mask_token, &len);
        TRY_OUT(encoder_encode(encoder, at, found ? (size_t)(found - at) : strlen(at), &f->ids));
        if (found) add_mask(f);
    }
    if (c->data.eos && tokenizer_eos(t) >= 0) add_id(&f->ids, tokenizer_eos(t));
    if (!f->num_places) FAIL_OUT(USAGE, "--fill: the text has no %s", MASK);
    if (f->ids.count > (size_t)f->l->model.max_tokens)
        FAIL_OUT(USAGE, "--fill: %zu tokens are more than the %d of a row", f->ids.count,
                 f->l->model.max_tokens);
    f->num_masks = f->num_places;
    f->filled = heap((size_t)f->num_masks * sizeof *f->filled);
out:
    encoder_free(encoder);
    return st;
}

static enum status take(struct filling *f)
{
    size_t V = (size_t)f->l->shape.V, logits;
    if (__builtin_mul_overflow(V * sizeof *f->logits_PV, (size_t)f->num_masks, &logits))
        FAIL(USAGE, "--fill: %d masks are too many", f->num_masks);
    TRY(decode_init_cache(&f->cache, &f->l->model, 1, (int)f->ids.count, &f->run));
    if (!f->run.base) return STATUS_OK; /* measuring */
    f->logits_PV = heap(logits);
    f->order_V = heap(V * sizeof *f->order_V);
    return STATUS_OK;
}

static enum status run_model(struct filling *f)
{
    struct decode_masked_io io = {f->ids.ids, (int)f->ids.count, f->places, f->num_places,
                                  f->logits_PV};
    return decode_masked(&f->l->model, &f->cache, &io, &f->l->step);
}

static enum status rehearse(void *context)
{
    TRY(run_model(context));
    return STATUS_OK;
}

static enum status open_buffers(struct filling *f)
{
    TRY(take(f));
    TRY(loaded_arena(f->l, rehearse, f));
    size_t bytes = f->run.used;
    TRY(arena_init(&f->run, bytes, queue_device_allocator(f->l->machine.queue)));
    TRY(take(f));
    return STATUS_OK;
}

static double probability(const float *logits_V, int V, int32_t id)
{
    double top = (double)logits_V[0], sum = 0;
    for (int i = 1; i < V; i++) top = fmax(top, (double)logits_V[i]);
    for (int i = 0; i < V; i++) sum += exp((double)logits_V[i] - top);
    return exp((double)logits_V[id] - top) / sum;
}

/* One of the places left, and what goes there; a mask never does. */
static void choose(struct filling *f, int *which, struct filled *out)
{
    int V = f->l->shape.V, best = 0;
    double surest = -1;
    for (int i = 0; i < f->num_places; i++) {
        float *logits = f->logits_PV + (size_t)i * (size_t)V;
        int32_t top = 0;
        logits[f->mask] = -INFINITY;
        for (int32_t id = 1; id < V; id++)
            if (logits[id] > logits[top]) top = id;
        double p = probability(logits, V, top);
        if (p > surest) surest = p, best = i;
    }
    const float *logits = f->logits_PV + (size_t)best * (size_t)V;
    out->place = f->places[best];
    out->id = sampling_pick(&f->sampling, logits, V, (uint64_t)out->place, f->order_V);
    out->probability = probability(logits, V, out->id);
    *which = best;
}

/* A forward, and one mask less; rank 0 chooses. */
static enum status fill_one(struct filling *f)
{
    const struct comm *world = &f->l->machine.world;
    struct filled *out = &f->filled[f->num_masks - f->num_places];
    int which = 0;
    TRY(run_model(f));
    *out = (struct filled){0};
    if (world->rank == 0) choose(f, &which, out);
    double choice[] = {which, out->id, out->probability};
    TRY(comm_all_reduce(world, REDUCE_SUM, choice, 3));
    which = (int)choice[0];
    *out = (struct filled){f->places[which], (int32_t)choice[1], choice[2]};
    f->ids.ids[out->place] = out->id;
    f->num_places--;
    memmove(f->places + which, f->places + which + 1,
            (size_t)(f->num_places - which) * sizeof *f->places);
    return STATUS_OK;
}

static enum status quote(struct text *to, const struct tokenizer *t, const int32_t *ids, size_t n)
{
    struct text bytes = {0};
    enum status st = tokenizer_decode_part(t, ids, n, &bytes);
    if (!st) json_quote(to, text_is_utf8(bytes.data, bytes.len) ? bytes.data : "");
    text_release(&bytes);
    return st;
}

static int by_place(const void *a, const void *b)
{
    const struct filled *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static enum status report(struct filling *f, bool json)
{
    const struct tokenizer *t = f->l->tokenizer;
    struct text out = {0};
    enum status st = STATUS_OK;
    size_t first = f->l->config.data.bos && tokenizer_bos(t) >= 0;
    size_t last = f->ids.count - (f->l->config.data.eos && tokenizer_eos(t) >= 0);
    qsort(f->filled, (size_t)f->num_masks, sizeof *f->filled, by_place);
    if (!json) {
        TRY_OUT(tokenizer_decode(t, f->ids.ids + first, last - first, &out));
        printf("%s\n", out.data);
        goto out;
    }
    text_adds(&out, "{\"text\": ");
    TRY_OUT(quote(&out, t, f->ids.ids + first, last - first));
    text_adds(&out, ", \"filled\": [");
    for (int i = 0; i < f->num_masks; i++) {
        const struct filled *at = &f->filled[i];
        text_addf(&out, "%s{\"id\": %d, \"text\": ", i ? ", " : "", at->id);
        TRY_OUT(quote(&out, t, &at->id, 1));
        text_addf(&out, ", \"probability\": %.9g}", at->probability);
    }
    printf("%s]}\n", out.data);
out:
    text_release(&out);
    return st;
}

enum status fill_print(struct loaded *l, const char *text, const struct sampling *s, bool json)
{
    struct filling f = {.l = l, .sampling = *s};
    enum status st = STATUS_OK;
    const struct comm *world = &l->machine.world;
    if (l->config.objective.name != OBJECTIVE_masked)
        FAIL(CONFIG, "%s was trained to continue text; --fill needs a masked model", l->folder);
    TRY_OUT(comm_agree(world, read_text(&f, text)));
    TRY_OUT(comm_agree(world, open_buffers(&f)));
    while (f.num_places) TRY_OUT(fill_one(&f));
    if (world->rank == 0) TRY_OUT(report(&f, json));
out:
    free(f.places), free(f.filled);
    free(f.logits_PV), free(f.order_V);
    token_list_release(&f.ids);
    arena_release(&f.run);
    return st;
}
