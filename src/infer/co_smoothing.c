// SPDX-License-Identifier: Apache-2.0
#include "infer/co_smoothing.h"

#include "base/rng.h"
#include "infer/spikes.h"
#include "model/decode.h"
#include "model/sampling.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>
#include <stdlib.h>

enum { CHUNK = 256 }; /* pending tokens per forward pass, at most */

/* Bins of one session, held-out neurons last. */
struct co_window {
    int32_t *ids;  /* owned */
    double *rates; /* of the held-out neurons; owned */
    size_t neurons, held_out, bins, visible_bins;
};

/* The windows that are read, then evaluated. */
struct co_windows {
    struct co_smoothing *options;
    struct co_window *items;
    size_t count;
    uint64_t sessions;
    bool is_enough; /* as many as requested */
};

/* New order of the neurons: a random selection of `held_out` of them last (selection sampling). */
static void choose_neurons(size_t neurons, size_t held_out, uint64_t seed, uint64_t session,
                           size_t *order)
{
    size_t visible = 0, hidden = neurons - held_out, left_to_hide = held_out;
    for (size_t n = 0; n < neurons; n++) {
        bool hide = rng_below(neurons - n, seed, RNG_NEURONS, session, n) < left_to_hide;
        left_to_hide -= hide;
        order[hide ? hidden++ : visible++] = n;
    }
}

static void add_window(struct co_windows *w, const struct document *d, const size_t *order,
                       const struct co_window *shape)
{
    struct co_window *one = &w->items[w->count++];
    size_t width = d->neurons + 1;
    *one = *shape;
    one->ids = heap(shape->bins * width * sizeof *one->ids);
    one->rates = heap(shape->held_out * sizeof *one->rates);
    for (size_t n = 0; n < shape->held_out; n++)
        one->rates[n] = shape->rates[order[d->neurons - shape->held_out + n]];
    for (size_t b = 0; b < shape->bins; b++) {
        one->ids[b * width] = TABLE_BIN_SEPARATOR;
        for (size_t n = 0; n < d->neurons; n++)
            one->ids[b * width + 1 + n] = shape->ids[b * width + 1 + order[n]];
    }
}

static enum status cut_windows(void *context, const struct document *d)
{
    struct co_windows *w = context;
    const struct co_smoothing *o = w->options;
    size_t width = d->neurons + 1, total = d->count / width, row = (size_t)o->row / width;
    uint64_t session = w->sessions++;
    BUG_IF(!d->neurons);
    if (d->neurons < 2 || row < 2) return STATUS_OK;
    struct co_window shape = {.neurons = d->neurons, .visible_bins = row / 2};
    shape.held_out = (size_t)(o->held_out * (double)d->neurons);
    if (shape.held_out < 1) shape.held_out = 1;
    size_t *order = heap(d->neurons * sizeof *order);
    shape.rates = heap(d->neurons * sizeof *shape.rates);
    spikes_rates(d->ids, total, d->neurons, shape.rates);
    choose_neurons(d->neurons, shape.held_out, o->seed, session, order);
    for (size_t at = 0; at + shape.visible_bins < total && w->count < (size_t)o->windows;
         at += row - shape.visible_bins) {
        shape.bins = total - at < row ? total - at : row;
        shape.ids = (int32_t *)d->ids + at * width;
        add_window(w, d, order, &shape);
    }
    free(order), free(shape.rates);
    w->is_enough = w->count == (size_t)o->windows;
    return STATUS_OK;
}

static void free_windows(struct co_windows *w)
{
    for (size_t i = 0; i < w->count; i++) free(w->items[i].ids), free(w->items[i].rates);
    free(w->items);
}

/* A model that reads tokens and predicts the next. */
struct co_predictor {
    struct loaded_model *model;
    struct co_smoothing *options;
    struct arena run; /* the KV cache */
    struct kv_cache cache;
    float *logits_V;
    struct candidate *order_V;
    int32_t *pending; /* tokens that the model has not read yet */
    size_t num_pending;
};

static enum status alloc_cache(struct co_predictor *r)
{
    return decode_init_cache(&r->cache, &r->model->model, 1, (int)r->options->row, &r->run);
}

static enum status size_forward(void *context)
{
    struct co_predictor *r = context;
    int row = (int)r->options->row, chunk = row < CHUNK ? row : CHUNK;
    return decode_size(&r->model->model, &r->cache, chunk, &r->model->step);
}

static enum status open_predictor(struct co_predictor *r)
{
    size_t V = (size_t)r->model->shape.V;
    TRY(alloc_cache(r));
    TRY(loaded_model_alloc_step(r->model, size_forward, r));
    size_t bytes = r->run.used;
    TRY(arena_init(&r->run, bytes, queue_device_allocator(r->model->machine.queue)));
    TRY(alloc_cache(r));
    r->logits_V = heap(V * sizeof *r->logits_V);
    r->order_V = heap(V * sizeof *r->order_V);
    r->pending = heap((size_t)r->options->row * sizeof *r->pending);
    return STATUS_OK;
}

static void close_predictor(struct co_predictor *r)
{
    arena_release(&r->run);
    free(r->logits_V), free(r->order_V), free(r->pending);
}

/* Leaves the logits of the token after the pending ones. */
static enum status read_pending(struct co_predictor *r)
{
    const struct decode_row row = {0, (int)r->num_pending, r->pending};
    const struct decode_io io = {&row, 1, r->logits_V};
    TRY(decode_prefill(&r->model->model, &r->cache, &io, CHUNK, &r->model->step));
    r->num_pending = 0;
    return STATUS_OK;
}

static void append(struct co_predictor *r, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) r->pending[r->num_pending++] = ids[i];
}

/* -log softmax of the logits at that token, in nats. */
static double cross_entropy(const float *logits_V, int V, int32_t id)
{
    double max = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++) max = fmax(max, (double)logits_V[v]);
    for (int v = 0; v < V; v++) sum += exp((double)logits_V[v] - max);
    return log(sum) + max - (double)logits_V[id];
}

/* Predicts one hidden count and appends a sampled one in its place. */
static enum status predict(struct co_predictor *r, int32_t truth, double rate, uint64_t position)
{
    struct co_smoothing *o = r->options;
    const struct comm *world = &r->model->machine.world;
    const struct sampling sampling = {.temperature = 1, .top_p = 1, .seed = o->seed};
    int V = r->model->shape.V;
    int32_t sampled = 0;
    TRY(read_pending(r));
    if (truth != TABLE_BIN_SEPARATOR) {
        o->loss_sum += cross_entropy(r->logits_V, V, truth);
        o->constant_loss_sum += spikes_poisson_loss(rate, truth);
        o->counts++, o->spikes += truth;
    }
    for (int v = TABLE_BIN_SEPARATOR; v < V; v++) r->logits_V[v] = -INFINITY;
    if (!world->rank) sampled = sampling_pick(&sampling, r->logits_V, V, position, r->order_V);
    TRY(comm_broadcast_bytes(world, 0, &sampled, sizeof sampled));
    append(r, &sampled, 1);
    return STATUS_OK;
}

static enum status evaluate_window(struct co_predictor *r, const struct co_window *w,
                                   uint64_t index)
{
    size_t width = w->neurons + 1, seen = width - w->held_out;
    r->cache.length[0] = 0, r->num_pending = 0;
    append(r, w->ids, w->visible_bins * width);
    for (size_t b = w->visible_bins; b < w->bins; b++) {
        const int32_t *bin = w->ids + b * width;
        append(r, bin, seen);
        for (size_t n = 0; n < w->held_out; n++)
            TRY(predict(r, bin[seen + n], w->rates[n],
                        index * (uint64_t)r->options->row + b * width + n));
    }
    return STATUS_OK;
}

enum status co_smoothing_check(const struct loaded_model *l, const struct source_config *source)
{
    bool are_counts = false;
    if (l->config.objective.name != OBJECTIVE_causal)
        FAIL(CONFIG, "%s is a %s model: --held-out requires a causal one", l->folder,
             objective_kind_word(l->config.objective.name));
    if (l->shape.V <= TABLE_BIN_SEPARATOR)
        FAIL(CONFIG,
             "%s: spike counts and the bin separator require 256 tokens; the vocabulary "
             "has %d",
             l->folder, l->shape.V);
    TRY(corpus_is_spike_counts(source, &are_counts));
    if (!are_counts) FAIL(CONFIG, "%s: --held-out requires spike counts", source->path);
    return STATUS_OK;
}

static enum status collect(struct co_windows *w, const struct loaded_model *l,
                           const struct corpus *d)
{
    const char *path = d->sources->path;
    TRY(co_smoothing_check(l, d->sources));
    w->items = heap((size_t)w->options->windows * sizeof *w->items);
    struct corpus enough = *d;
    enough.is_enough = &w->is_enough;
    TRY(corpus_each(&enough, cut_windows, w));
    if (!w->count)
        FAIL(DATA,
             "%s: --held-out requires sessions of at least two neurons, with rows of %lld "
             "tokens that hold two of their bins",
             path, (long long)w->options->row);
    return STATUS_OK;
}

enum status co_smoothing_measure(struct co_smoothing *c, struct loaded_model *l,
                                 const struct corpus *d)
{
    struct co_windows w = {.options = c};
    struct co_predictor r = {.model = l, .options = c};
    enum status st = STATUS_OK;
    TRY_OUT(comm_agree(&l->machine.world, collect(&w, l, d)));
    TRY_OUT(comm_agree(&l->machine.world, open_predictor(&r)));
    for (size_t i = 0; i < w.count; i++) TRY_OUT(evaluate_window(&r, &w.items[i], i));
    c->used = (int64_t)w.count;
out:
    close_predictor(&r);
    free_windows(&w);
    return st;
}

double co_smoothing_bits_per_spike(const struct co_smoothing *c)
{
    if (!c->spikes) return NAN;
    return (c->constant_loss_sum - c->loss_sum) / log(2) / (double)c->spikes;
}
