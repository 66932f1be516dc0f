// SPDX-License-Identifier: Apache-2.0
#include "infer/fill_mask.h"

#include "base/json.h"
#include "base/terminal_text.h"
#include "data/source.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MASK[] = "<mask>"; /* accepted in place of the tokenizer's mask token */

struct filled_mask {
    int32_t place, id;
    double probability; /* softmax before temperature, top_k and top_p */
};

struct fill_mask {
    struct loaded_model *l;
    const struct unmasking *how;
    bool is_diffusion;
    int32_t mask; /* ID of the mask token */
    struct token_list ids;
    int32_t *places; /* positions of the masks in ids, ascending; owned */
    int num_masks, num_filled, num_steps;
    int32_t *open; /* in places: those of the block that are still masked */
    int num_open;
    struct filled_mask *filled; /* in the order in which they were filled in; owned */
    struct arena run;           /* holds the KV cache */
    struct kv_cache cache;
    float *logits_PV;
    struct candidate *order_V;
    struct guess {
        struct filled_mask what;
        double confidence; /* below 0: chosen */
    } * guesses;           /* of the open masks; owned */
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
    f->places = heap_grow(f->places, (size_t)f->num_masks + 1, sizeof *f->places);
    f->places[f->num_masks++] = (int32_t)f->ids.count;
    add_id(&f->ids, f->mask);
}

static bool has_eos(const struct fill_mask *f)
{
    const struct data_config *data = &f->l->config.data;
    const struct tokenizer *t = f->l->tokenizer;
    return source_adds_eos(t, data->bos, data->eos) && tokenizer_eos(t) >= 0;
}

static enum status find_mask_id(struct fill_mask *f)
{
    const char *name = f->l->config.objective.mask_token;
    f->mask = tokenizer_special(f->l->tokenizer, name);
    if (f->mask < 0)
        FAIL(CONFIG, "objective.mask_token = \"%s\": not a special token of the tokenizer", name);
    return STATUS_OK;
}

static enum status encode_text(struct fill_mask *f, const char *text)
{
    const struct config *c = &f->l->config;
    const struct tokenizer *t = f->l->tokenizer;
    struct encoder *encoder = NULL;
    enum status st = STATUS_OK;
    size_t len = 0;
    TRY(find_mask_id(f));
    TRY_OUT(encoder_make(&encoder, t));
    if (c->data.bos && tokenizer_bos(t) >= 0) add_id(&f->ids, tokenizer_bos(t));
    for (const char *at = text, *found; at; at = found ? found + len : NULL) {
        found = find_mask(at, c->objective.mask_token, &len);
        TRY_OUT(encoder_encode(encoder, at, found ? (size_t)(found - at) : strlen(at), &f->ids));
        if (found) add_mask(f);
    }
    if (has_eos(f)) add_id(&f->ids, tokenizer_eos(t));
    if (!f->num_masks) FAIL_OUT(USAGE, "--fill: the text must contain %s", MASK);
    /* the row has a token for each byte of the text, but normalization may lengthen it */
    if (f->ids.count > (size_t)f->l->model.max_tokens)
        FAIL_OUT(USAGE, "--fill: the text has %zu tokens; at most %d fit in a row", f->ids.count,
                 f->l->model.max_tokens);
    loaded_model_warn_context(f->l, (int64_t)f->ids.count);
out:
    encoder_free(encoder);
    return st;
}

/* Masks of the largest block. */
static int block_masks(const struct fill_mask *f)
{
    int64_t block = f->how->block;
    return block && block < f->num_masks ? (int)block : f->num_masks;
}

static enum status check_steps(const struct fill_mask *f)
{
    int64_t steps = f->how->steps;
    int block = block_masks(f), num_blocks = (f->num_masks + block - 1) / block;
    if (steps && (steps < num_blocks || steps > f->num_masks))
        FAIL(
            USAGE,
            "--steps %lld: must be between %d and %d: at least one for each block, at most one for "
            "each mask",
            (long long)steps, num_blocks, f->num_masks);
    return STATUS_OK;
}

static enum status alloc_buffers(struct fill_mask *f)
{
    size_t V = (size_t)f->l->shape.V, open = (size_t)f->num_open, logits;
    if (__builtin_mul_overflow(V * sizeof *f->logits_PV, open, &logits))
        FAIL(USAGE, "too many masks: %d; fill them in in blocks (--block)", f->num_open);
    TRY(decode_init_cache(&f->cache, &f->l->model, 1, (int)f->ids.count, &f->run));
    if (!f->run.base) return STATUS_OK; /* sizing pass */
    f->logits_PV = heap(logits);
    f->order_V = heap(V * sizeof *f->order_V);
    f->guesses = heap(open * sizeof *f->guesses);
    f->filled = heap((size_t)f->num_masks * sizeof *f->filled);
    return STATUS_OK;
}

static enum status forward(struct fill_mask *f)
{
    struct decode_masked_io io = {f->ids.ids, (int)f->ids.count, f->open, f->num_open,
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
    TRY(check_steps(f));
    f->open = f->places, f->num_open = block_masks(f);
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

static float *logits_of(const struct fill_mask *f, int i)
{
    return f->logits_PV + (size_t)i * (size_t)f->l->shape.V;
}

/* Samples a token for the i-th open mask.  Diffusion takes other random numbers in each step. */
static void sample_token(struct fill_mask *f, int i)
{
    float *logits = logits_of(f, i);
    int V = loaded_model_mask_logits(f->l, logits);
    struct filled_mask *out = &f->guesses[i].what;
    uint64_t position = (uint64_t)out->place;
    if (f->is_diffusion) position += (uint64_t)f->num_steps * f->ids.count;
    out->id = sampling_pick(&f->how->sampling, logits, V, position, f->order_V);
    out->probability = probability(logits, V, out->id);
}

/* The confidence in an open mask: with a masked model the probability of the best token, with
 * diffusion that of the sampled token.  The mask token itself is excluded. */
static void guess_mask(struct fill_mask *f, int i)
{
    float *logits = logits_of(f, i);
    int V = loaded_model_mask_logits(f->l, logits);
    int32_t top = 0;
    f->guesses[i] = (struct guess){.what.place = f->open[i]};
    logits[f->mask] = -INFINITY;
    if (f->is_diffusion) {
        sample_token(f, i);
        f->guesses[i].confidence = f->guesses[i].what.probability;
        return;
    }
    for (int32_t id = 1; id < V; id++)
        if (logits[id] > logits[top]) top = id;
    f->guesses[i].confidence = probability(logits, V, top);
}

/* The `count` open masks with the highest confidence; the others stay masked. */
static void choose_masks(struct fill_mask *f, int count, struct filled_mask *out)
{
    for (int i = 0; i < f->num_open; i++) guess_mask(f, i);
    for (int n = 0; n < count; n++) {
        int best = -1;
        for (int i = 0; i < f->num_open; i++) {
            double p = f->guesses[i].confidence;
            if (p < 0) continue;
            if (best < 0 || p > f->guesses[best].confidence) best = i;
        }
        if (!f->is_diffusion) sample_token(f, best);
        f->guesses[best].confidence = -1;
        out[n] = f->guesses[best].what;
    }
}

static void fill_in(struct fill_mask *f, const struct filled_mask *at)
{
    int which = 0;
    f->ids.ids[at->place] = at->id;
    while (f->open[which] != at->place) which++;
    f->num_open--;
    memmove(f->open + which, f->open + which + 1, (size_t)(f->num_open - which) * sizeof *f->open);
}

/* One forward pass fills in `count` masks.  Rank 0 chooses: other ranks' logits may differ in the
 * last bits. */
static enum status fill_masks(struct fill_mask *f, int count)
{
    const struct comm *world = &f->l->machine.world;
    struct filled_mask *out = f->filled + f->num_filled;
    loaded_model_raise_signal(f->l);
    TRY(forward(f));
    if (world->rank == 0) choose_masks(f, count, out);
    TRY(comm_broadcast_bytes(world, 0, out, (size_t)count * sizeof *out));
    for (int n = 0; n < count; n++) fill_in(f, &out[n]);
    f->num_filled += count, f->num_steps++;
    return STATUS_OK;
}

/* Blocks from left to right, each in its share of the steps; the masks of a block are divided
 * evenly over its steps. */
static enum status fill_blocks(struct fill_mask *f)
{
    int block = block_masks(f);
    int64_t steps_left = f->how->steps ? f->how->steps : f->num_masks;
    for (int begin = 0; begin < f->num_masks; begin += block) {
        int left = f->num_masks - begin, masks = left < block ? left : block;
        int later_blocks = (left - masks + block - 1) / block;
        int64_t steps = (steps_left * masks + left - 1) / left;
        if (steps > steps_left - later_blocks) steps = steps_left - later_blocks;
        f->open = f->places + begin, f->num_open = masks;
        for (int64_t i = 0; i < steps; i++)
            TRY(fill_masks(f, (int)((i + 1) * masks / steps - i * masks / steps)));
        steps_left -= steps;
    }
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
        terminal_text_write(out.data, out.len, true);
        printf("\n");
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

static enum status open_model(struct fill_mask *f, struct loaded_model *l,
                              const struct unmasking *how)
{
    *f = (struct fill_mask){.l = l, .how = how};
    f->is_diffusion = l->config.objective.name == OBJECTIVE_diffusion;
    if (l->config.objective.name == OBJECTIVE_causal)
        FAIL(CONFIG, "%s is a causal model; --fill requires a masked model or a diffusion model",
             l->folder);
    return STATUS_OK;
}

static void release(struct fill_mask *f)
{
    free(f->places), free(f->filled), free(f->guesses);
    free(f->logits_PV), free(f->order_V);
    token_list_release(&f->ids);
    arena_release(&f->run);
}

enum status fill_mask_print(struct loaded_model *l, const char *text, const struct unmasking *how,
                            bool json)
{
    struct fill_mask f;
    enum status st = STATUS_OK;
    const struct comm *world = &l->machine.world;
    TRY(open_model(&f, l, how));
    TRY_OUT(comm_agree(world, encode_text(&f, text)));
    TRY_OUT(comm_agree(world, open_buffers(&f)));
    TRY_OUT(fill_blocks(&f));
    if (world->rank == 0) TRY_OUT(report(&f, json));
out:
    release(&f);
    return st;
}

static enum status add_masks(struct fill_mask *f, const struct token_list *prompt, int64_t count)
{
    TRY(find_mask_id(f));
    for (size_t i = 0; i < prompt->count; i++) add_id(&f->ids, prompt->ids[i]);
    for (int64_t i = 0; i < count; i++) add_mask(f);
    return STATUS_OK;
}

enum status fill_mask_append(struct loaded_model *l, struct token_list *ids, int64_t count,
                             const struct unmasking *how)
{
    struct fill_mask f;
    enum status st = STATUS_OK;
    const struct comm *world = &l->machine.world;
    TRY(open_model(&f, l, how));
    TRY_OUT(comm_agree(world, add_masks(&f, ids, count)));
    TRY_OUT(comm_agree(world, open_buffers(&f)));
    TRY_OUT(fill_blocks(&f));
    token_list_reserve(ids, (size_t)count);
    for (; ids->count < f.ids.count; ids->count++) ids->ids[ids->count] = f.ids.ids[ids->count];
out:
    release(&f);
    return st;
}
