// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "hub/hub.h"
#include "infer/baselines.h"
#include "infer/loaded.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/evaluator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct evaluating {
    struct loaded loaded;
    struct arena run;
    struct evaluator evaluator;
    struct baselines baselines;
    int rows; /* of a batch of each rank */
};

static enum status rehearse(void *context)
{
    struct evaluating *e = context;
    return evaluator_size(&e->evaluator, &e->loaded.step);
}

static enum status open_evaluator(struct evaluating *e, int T)
{
    const struct config *c = &e->loaded.config;
    e->evaluator = (struct evaluator){
        .pipeline = loaded_pipeline(&e->loaded),
        .readers = &e->loaded.machine.groups.of[GROUP_data],
        .contexts = &e->loaded.machine.groups.of[GROUP_cp],
        .peers = &e->loaded.machine.groups.of[GROUP_peers],
        .causal = c->objective.name == OBJECTIVE_causal,
        .documents = c->model.attn_mask_type == ATTN_MASK_block_causal,
        .mark = TABLE_BIN_SEPARATOR,
    };
    evaluator_alloc(&e->evaluator, e->rows, T, &e->run);
    TRY(loaded_arena(&e->loaded, rehearse, e));
    size_t bytes = e->run.used;
    evaluator_release(&e->evaluator);
    TRY(arena_init(&e->run, bytes, queue_shared_allocator(e->loaded.machine.queue)));
    evaluator_alloc(&e->evaluator, e->rows, T, &e->run);
    return STATUS_OK;
}

static void report(const struct evaluating *e, const struct evaluation *v, bool json)
{
    bool masked = !e->evaluator.causal;
    double loss = v->loss_sum / (double)v->tokens, ln2 = 0.6931471805599453;
    double bits = v->bytes ? v->loss_sum / ln2 / (double)v->bytes : NAN;
    double accuracy = (double)v->correct / (double)v->tokens;
    if (!json) {
        printf("loss            %.6f nats/token\nperplexity      %.4f\n", loss, exp(loss));
        if (v->bytes) printf("bits per byte   %.5f\n", bits);
        if (masked) printf("accuracy        %.4f of masked tokens\n", accuracy);
        printf("tokens          %lld\n", (long long)v->tokens);
        baselines_print(&e->baselines, v);
        return;
    }
    struct text t = {0};
    text_addf(&t, "{\"loss\": %.9g, \"perplexity\": %.9g, \"bits_per_byte\": ", loss, exp(loss));
    json_real(&t, bits);
    text_addf(&t, ", \"accuracy\": %.9g, \"tokens\": %lld", accuracy, (long long)v->tokens);
    baselines_json(&e->baselines, v, &t);
    printf("%s}\n", t.data);
    text_release(&t);
}

/* Opens what this rank reads: its share of the rows of so many batches. */
static enum status open_rows(const struct evaluating *e, const struct data_config *data,
                             int64_t batches, struct loader **loader)
{
    const struct config *c = &e->loaded.config;
    const struct comm *readers = e->evaluator.readers;
    int64_t rows = 0;
    if (batches > 0 && __builtin_mul_overflow(batches, (int64_t)e->rows, &rows)) rows = 0;
    struct loader_options o = {
        .data = data,
        .objective = &c->objective,
        .tokenizer = e->loaded.tokenizer,
        .vocab_size = e->loaded.shape.V,
        .seq_len = e->evaluator.batch.T,
        .reader = readers->rank,
        .num_readers = readers->size,
        .once = true,
        .max_rows = rows,
    };
    if (e->evaluator.peers->rank == 0) TRY(loader_open(loader, &o));
    return STATUS_OK;
}

static enum status some_tokens(const struct evaluation *v, const char *path)
{
    if (!v->tokens) FAIL(DATA, "%s: no token to predict", path);
    return STATUS_OK;
}

static enum status evaluate_source(struct evaluating *e, struct source_config *source,
                                   int64_t batches, struct evaluation *v)
{
    struct config *c = &e->loaded.config;
    struct data_config data = c->data;
    data.sources = source;
    data.num_sources = 1;
    data.validation_share = 0;
    data.order = ORDER_streams;
    const struct comm *world = &e->loaded.machine.world;
    struct loader *loader = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(hub_fetch(source->path, HUB_DATA, world));
    TRY_OUT(comm_agree(world, baselines_look(&e->baselines)));
    e->baselines.has_spikes &= e->evaluator.causal;
    e->evaluator.has_marks = e->baselines.has_spikes;
    if (e->baselines.has_spikes) data.row_overlap = true; /* every count is predicted */
    TRY_OUT(comm_agree(world, open_rows(e, &data, batches, &loader)));
    TRY_OUT(evaluator_run(&e->evaluator, loader, -1, &e->loaded.step, v));
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : some_tokens(v, source->path)));
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : baselines_measure(&e->baselines, v)));
out:
    loader_close(loader);
    return st;
}

/* As the model was trained; a plain Hugging Face folder says only how far its positions go. */
static int64_t row_length(const struct loaded *l)
{
    int64_t seq_len = l->config.training.seq_len, most = l->shape.max_context;
    return most > 0 && most < seq_len ? most : seq_len;
}

enum status command_eval(int argc, char **argv)
{
    const char *tokenizer = "", *column = "text";
    int64_t seq_len = 0, rows = 8, batches = -1;
    struct evaluating e = {.baselines = {.ngram_data = "", .ngram_tokens = 10000000}};
    bool json = false;
    struct baselines *b = &e.baselines;
    const struct flag flags[] = {
        {"tokenizer", FLAG_TEXT, &tokenizer, "tokenizer to use instead of the model's own"},
        {"column", FLAG_TEXT, &column,
         "key of a JSON line, or column, that holds the text or the spike counts (default text)"},
        {"seq-len", FLAG_INT, &seq_len, "tokens of a row (default: as the model was trained)"},
        {"batch-size", FLAG_INT, &rows, "rows at a time on each rank (default 8)"},
        {"batches", FLAG_INT, &batches,
         "stop after so many batches' rows, of all ranks together (default: all the data)"},
        {"ngram", FLAG_INT, &b->n,
         "loss of an n-gram model beside it, of n ids with Laplace's rule (default 0: none)"},
        {"ngram-data", FLAG_TEXT, &b->ngram_data,
         "where its n-grams are counted (default: what the run trained on)"},
        {"ngram-tokens", FLAG_INT, &b->ngram_tokens,
         "in so many tokens of it at most (default 10000000; 0: all)"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "eval MODEL DATA [section.key=value ...]\n\n"
        "Loss of a model over DATA (.txt, .jsonl, .jsonl.gz, .jsonl.zst, .parquet, .arrow, "
        ".npy, .bin/.idx or "
        "a pattern).\nMODEL is a run, a checkpoint or a Hugging Face folder; a "
        "checkpoint's objective is its run's.  Under mpirun or srun, ranks share out model and "
        "rows.\nOver spike counts also bits/spike: what the model gains on a constant rate of each "
        "neuron.",
        2, 2, argc, argv));
    if (a.help) return STATUS_OK;
    if (rows < 1 || rows > 1 << 20)
        FAIL(USAGE, "--batch-size: %lld is not positive", (long long)rows);
    if (seq_len < 0 || seq_len > 1 << 24) FAIL(USAGE, "--seq-len: out of bounds");
    if (b->n < 0 || b->n > 64) FAIL(USAGE, "--ngram: %lld is not 0..64", (long long)b->n);
    if (b->ngram_tokens < 0) FAIL(USAGE, "--ngram-tokens: below 0");
    struct evaluation v = {0};
    struct source_config source = {.path = a.words[1], .column = column, .weight = 1};
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&e.loaded.machine));
    TRY_OUT(
        loaded_open(&e.loaded, a.words[0], tokenizer, a.settings, a.num_settings, (int)seq_len));
    if (!seq_len) seq_len = row_length(&e.loaded);
    e.rows = (int)rows;
    b->source = &source, b->ngram_column = column, b->config = &e.loaded.config;
    b->tokenizer = e.loaded.tokenizer, b->vocab_size = e.loaded.shape.V;
    TRY_OUT(comm_agree(&e.loaded.machine.world, open_evaluator(&e, (int)seq_len)));
    TRY_OUT(evaluate_source(&e, &source, batches, &v));
    if (!e.loaded.machine.world.rank) report(&e, &v, json);
out:
    evaluator_release(&e.evaluator);
    loaded_close(&e.loaded, st);
    arena_release(&e.run);
    return st;
}
