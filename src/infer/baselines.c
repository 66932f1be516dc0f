// SPDX-License-Identifier: Apache-2.0
#include "infer/baselines.h"

#include "base/json.h"
#include "train/inputs.h"

#include <math.h>
#include <stdio.h>

enum status baselines_look(struct baselines *b)
{
    return corpus_is_spike_counts(b->source, &b->has_spikes);
}

static struct corpus documents_of(const struct baselines *b, const struct source_config *sources,
                                  size_t num_sources, uint64_t most)
{
    return (struct corpus){.sources = sources,
                           .num_sources = num_sources,
                           .tokenizer = b->tokenizer,
                           .vocab_size = b->vocab_size,
                           .bos = b->config->data.bos,
                           .eos = b->config->data.eos,
                           .max_ids = most};
}

struct counting {
    struct ngram *ngram;
    struct baselines *baselines;
};

static enum status learn(void *context, const struct document *d)
{
    struct counting *c = context;
    ngram_learn(c->ngram, d->ids, d->within);
    c->baselines->learnt += (int64_t)d->within;
    return STATUS_OK;
}

static enum status measure(void *context, const struct document *d)
{
    struct counting *c = context;
    ngram_measure(c->ngram, d->ids, d->within, &c->baselines->ngram);
    return STATUS_OK;
}

/* `seen`: ids of the source that the model was shown. */
static enum status measure_ngram(struct baselines *b, uint64_t seen)
{
    struct source_config one = {.path = b->ngram_data, .column = b->ngram_column, .weight = 1};
    struct data_config data = {.sources = &one, .num_sources = 1};
    if (!b->ngram_data[0]) data = inputs_data_config(b->config, &one);
    struct corpus trained =
        documents_of(b, data.sources, data.num_sources, (uint64_t)b->ngram_tokens);
    struct corpus evaluated = documents_of(b, b->source, 1, seen);
    struct counting c = {ngram_make((int)b->n, b->vocab_size), b};
    enum status st = STATUS_OK;
    TRY_OUT(corpus_each(&trained, learn, &c));
    TRY_OUT(corpus_each(&evaluated, measure, &c));
    if (!b->ngram.tokens)
        FAIL_OUT(DATA, "%s: no document is as long as %lld tokens", b->source->path,
                 (long long)b->n);
out:
    ngram_free(c.ngram);
    return st;
}

enum status baselines_measure(struct baselines *b, const struct evaluation *v)
{
    uint64_t seen = (uint64_t)v->tokens + 1;
    if (b->has_spikes) {
        struct corpus d = documents_of(b, b->source, 1, seen);
        TRY(spikes_homogeneous(&d, &b->spikes));
    }
    if (b->n) TRY(measure_ngram(b, seen));
    return STATUS_OK;
}

static double mean(double sum, int64_t count) { return count ? sum / (double)count : NAN; }

/* The model's losses at counts alone. */
static double at_counts(const struct evaluation *v) { return v->loss_sum - v->mark_loss_sum; }

static double bits_per_spike(const struct baselines *b, const struct evaluation *v)
{
    return mean((b->spikes.loss_sum - at_counts(v)) / log(2), b->spikes.spikes);
}

void baselines_print(const struct baselines *b, const struct evaluation *v)
{
    const struct spikes *s = &b->spikes;
    if (b->has_spikes) {
        printf("bits per spike  %.5f over constant rates, of %lld spikes\n", bits_per_spike(b, v),
               (long long)s->spikes);
        printf("at counts       %.6f nats/token, constant rates %.6f, of %lld counts\n",
               mean(at_counts(v), s->counts), mean(s->loss_sum, s->counts), (long long)s->counts);
    }
    if (b->n)
        printf("%lld-gram          %.6f nats/token, counted in %lld tokens\n", (long long)b->n,
               mean(b->ngram.loss_sum, b->ngram.tokens), (long long)b->learnt);
}

void baselines_json(const struct baselines *b, const struct evaluation *v, struct text *json)
{
    const struct spikes *s = &b->spikes;
    if (b->has_spikes) {
        text_adds(json, ", \"bits_per_spike\": ");
        json_real(json, bits_per_spike(b, v));
        text_adds(json, ", \"count_loss\": ");
        json_real(json, mean(at_counts(v), s->counts));
        text_adds(json, ", \"homogeneous_loss\": ");
        json_real(json, mean(s->loss_sum, s->counts));
        text_addf(json, ", \"counts\": %lld, \"spikes\": %lld", (long long)s->counts,
                  (long long)s->spikes);
    }
    if (!b->n) return;
    text_addf(json, ", \"ngram\": {\"n\": %lld, \"loss\": ", (long long)b->n);
    json_real(json, mean(b->ngram.loss_sum, b->ngram.tokens));
    text_addf(json, ", \"tokens\": %lld, \"counted_in\": %lld}", (long long)b->ngram.tokens,
              (long long)b->learnt);
}
