// SPDX-License-Identifier: Apache-2.0
#include "infer/baselines.h"

#include "train/inputs.h"

#include <math.h>
#include <stdio.h>

enum status baselines_find_spikes(struct baselines *b)
{
    return corpus_is_spike_counts(b->source, &b->has_spikes);
}

static struct corpus make_corpus(const struct baselines *b, const struct source_config *sources,
                                 size_t num_sources, uint64_t max_ids)
{
    return (struct corpus){.sources = sources,
                           .num_sources = num_sources,
                           .tokenizer = b->tokenizer,
                           .vocab_size = b->vocab_size,
                           .bos = b->config->data.bos,
                           .eos = b->config->data.eos,
                           .skips_bad = b->config->data.on_bad_record == ON_BAD_RECORD_skip,
                           .max_ids = max_ids};
}

struct corpus baselines_corpus(const struct baselines *b)
{
    return make_corpus(b, b->source, 1, 0);
}

struct ngram_pass {
    struct ngram *ngram;
    struct baselines *baselines;
};

static enum status count_ngrams(void *context, const struct document *d)
{
    struct ngram_pass *c = context;
    ngram_learn(c->ngram, d->ids, d->within);
    c->baselines->tokens_counted += (int64_t)d->within;
    return STATUS_OK;
}

static enum status score_document(void *context, const struct document *d)
{
    struct ngram_pass *c = context;
    ngram_measure(c->ngram, d->ids, d->within, &c->baselines->ngram);
    return STATUS_OK;
}

static enum status measure_ngram(struct baselines *b, uint64_t seen)
{
    struct source_config one = {.path = b->ngram_data, .column = b->ngram_column, .weight = 1};
    struct data_config data = {.sources = &one, .num_sources = 1};
    if (!b->ngram_data[0]) data = inputs_data_config(b->config, &one);
    struct corpus trained =
        make_corpus(b, data.sources, data.num_sources, (uint64_t)b->ngram_tokens);
    struct corpus evaluated = make_corpus(b, b->source, 1, seen);
    struct ngram_pass c = {ngram_make((int)b->n, b->vocab_size), b};
    enum status st = STATUS_OK;
    TRY_OUT(corpus_each(&trained, count_ngrams, &c));
    TRY_OUT(corpus_each(&evaluated, score_document, &c));
    if (!b->ngram.tokens)
        FAIL_OUT(DATA, "%s: every document is shorter than the n-gram, %lld tokens",
                 b->source->path, (long long)b->n);
out:
    ngram_free(c.ngram);
    return st;
}

enum status baselines_measure(struct baselines *b, uint64_t seen)
{
    if (b->has_spikes) {
        struct corpus d = make_corpus(b, b->source, 1, seen);
        TRY(spikes_homogeneous(&d, &b->spikes));
    }
    if (b->n) TRY(measure_ngram(b, seen));
    return STATUS_OK;
}

static double mean(double sum, int64_t count) { return count ? sum / (double)count : NAN; }

/* The model's summed loss at spike counts, without the bin separators. */
static double count_loss_sum(const struct evaluation *v) { return v->loss_sum - v->mark_loss_sum; }

static double bits_per_spike(const struct baselines *b, const struct evaluation *v)
{
    return mean((b->spikes.loss_sum - count_loss_sum(v)) / log(2), b->spikes.spikes);
}

void baselines_print(const struct baselines *b, const struct evaluation *v)
{
    const struct spikes *s = &b->spikes;
    if (b->has_spikes) {
        printf("bits per spike  %.5f relative to constant rates, %lld spikes\n",
               bits_per_spike(b, v), (long long)s->spikes);
        printf("count loss      %.6f nats/token, constant rates %.6f, %lld counts\n",
               mean(count_loss_sum(v), s->counts), mean(s->loss_sum, s->counts),
               (long long)s->counts);
    }
    if (b->n)
        printf("%lld-gram          %.6f nats/token, counted in %lld tokens\n", (long long)b->n,
               mean(b->ngram.loss_sum, b->ngram.tokens), (long long)b->tokens_counted);
}

void baselines_write_json(const struct baselines *b, const struct evaluation *v,
                          struct json_writer *w)
{
    const struct spikes *s = &b->spikes;
    if (b->has_spikes) {
        json_write_real(w, "bits_per_spike", bits_per_spike(b, v));
        json_write_real(w, "count_loss", mean(count_loss_sum(v), s->counts));
        json_write_real(w, "homogeneous_loss", mean(s->loss_sum, s->counts));
        json_write_int(w, "counts", s->counts);
        json_write_int(w, "spikes", s->spikes);
    }
    if (!b->n) return;
    json_begin_object(w, "ngram", JSON_INLINE);
    json_write_int(w, "n", b->n);
    json_write_real(w, "loss", mean(b->ngram.loss_sum, b->ngram.tokens));
    json_write_int(w, "tokens", b->ngram.tokens);
    json_write_int(w, "counted_in", b->tokens_counted);
    json_end_object(w);
}
