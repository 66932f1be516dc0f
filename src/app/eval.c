// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/launch_flags.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/source.h"
#include "data/source_estimate.h"
#include "hub/hub.h"
#include "infer/baselines.h"
#include "infer/co_smoothing.h"
#include "infer/loaded_model.h"
#include "infer/task_session.h"
#include "tensor/device.h"
#include "tensor/queue.h"
#include "train/evaluator.h"
#include "train/inputs.h"

#include <math.h>
#include <stdio.h>

struct evaluating {
    struct loaded_model loaded;
    struct arena run;
    struct evaluator evaluator;
    struct baselines baselines;
    struct co_smoothing co_smoothing;
    int rows; /* per batch and rank */
};

static enum status size_evaluation(void *context)
{
    struct evaluating *e = context;
    return evaluator_size(&e->evaluator, &e->loaded.step);
}

static enum status open_evaluator(struct evaluating *e, int T)
{
    const struct config *c = &e->loaded.config;
    e->evaluator = (struct evaluator){
        .pipeline = loaded_model_pipeline(&e->loaded),
        .readers = &e->loaded.machine.groups.of[GROUP_data],
        .contexts = &e->loaded.machine.groups.of[GROUP_cp],
        .peers = &e->loaded.machine.groups.of[GROUP_peers],
        .causal = c->objective.name == OBJECTIVE_causal,
        .documents = c->model.attn_mask_type == ATTN_MASK_block_causal,
        .has_weights = c->objective.name == OBJECTIVE_diffusion,
        .mark = TABLE_BIN_SEPARATOR,
    };
    evaluator_alloc(&e->evaluator, e->rows, T, &e->run);
    TRY(loaded_model_alloc_step(&e->loaded, size_evaluation, e));
    size_t bytes = e->run.used;
    evaluator_release(&e->evaluator);
    TRY(arena_init(&e->run, bytes, queue_shared_allocator(e->loaded.machine.queue)));
    evaluator_alloc(&e->evaluator, e->rows, T, &e->run);
    return STATUS_OK;
}

static void print_co_smoothing(const struct co_smoothing *c)
{
    if (!c->used) return;
    printf("co-bits/spike   %.5f of held-out neurons, %lld spikes in %lld windows\n",
           co_smoothing_bits_per_spike(c), (long long)c->spikes, (long long)c->used);
}

static void write_co_smoothing(const struct co_smoothing *c, struct json_writer *w)
{
    if (!c->used) return;
    json_begin_object(w, "co_smoothing", JSON_INLINE);
    json_write_real(w, "bits_per_spike", co_smoothing_bits_per_spike(c));
    json_write_real(w, "count_loss", c->loss_sum / (double)c->counts);
    json_write_real(w, "homogeneous_loss", c->constant_loss_sum / (double)c->counts);
    json_write_int(w, "counts", c->counts);
    json_write_int(w, "spikes", c->spikes);
    json_write_int(w, "windows", c->used);
    json_end_object(w);
}

/* Of weights and activations. */
static const char *precision(const struct evaluating *e)
{
    return training_compute_dtype(&e->loaded.config.training) == F32 ? "float32" : "bfloat16";
}

static void report(const struct evaluating *e, const struct evaluation *v, bool json)
{
    enum objective_kind objective = e->loaded.config.objective.name;
    bool is_bound = objective == OBJECTIVE_diffusion;
    const char *bound = is_bound ? " (bound, by Monte Carlo)" : "";
    double loss = v->loss_sum / (double)v->tokens, ln2 = 0.6931471805599453;
    double bits = v->bytes ? v->loss_sum / ln2 / (double)v->bytes : NAN;
    double accuracy = (double)v->correct / (double)v->tokens;
    if (!json) {
        printf("loss            %.6f nats/token%s\n", loss, bound);
        printf("perplexity      %.4f%s\n", exp(loss), bound);
        if (v->bytes) printf("bits per byte   %.5f%s\n", bits, bound);
        if (objective == OBJECTIVE_masked)
            printf("accuracy        %.4f of masked tokens\n", accuracy);
        printf("tokens          %lld\n", (long long)v->tokens);
        printf("precision       %s\n", precision(e));
        baselines_print(&e->baselines, v);
        print_co_smoothing(&e->co_smoothing);
        return;
    }
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_format(&w, "loss", "%.9g", loss);
    json_write_format(&w, "perplexity", "%.9g", exp(loss));
    json_write_real(&w, "bits_per_byte", bits);
    if (is_bound)
        json_write_bool(&w, "is_bound", true);
    else
        json_write_format(&w, "accuracy", "%.9g", accuracy);
    json_write_int(&w, "tokens", v->tokens);
    json_write_string(&w, "precision", precision(e));
    baselines_write_json(&e->baselines, v, &w);
    write_co_smoothing(&e->co_smoothing, &w);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

/* Opens the loader of this rank's share of the rows, at most `batches` batches (below 0: all). */
static enum status open_loader(const struct evaluating *e, const struct data_config *data,
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

/* Reports the bad records that were skipped, of which the first reader knows all. */
static enum status report_skipped(struct loader *loader, double limit)
{
    const struct bad_records *b = loader_bad_records(loader);
    struct text found = {0};
    TRY(bad_records_check(b, limit, NULL));
    bad_records_describe(b, NULL, &found);
    if (b->num_bad) log_line(LOG_WARN, "%s", found.data);
    text_release(&found);
    return STATUS_OK;
}

/* How many tokens this rank will predict, about; 0: unknown. */
static double expected_tokens(const struct evaluating *e, const struct source_config *from,
                              int64_t batches)
{
    const struct config *c = &e->loaded.config;
    const struct source_tokens tokens = {.tokenizer = e->loaded.tokenizer,
                                         .vocab_size = e->loaded.shape.V,
                                         .bos = c->data.bos,
                                         .eos = c->data.eos};
    struct source source;
    struct source_estimate estimate = {0};
    double readers = e->evaluator.readers->size;
    if (batches > 0) return (double)batches * e->rows * e->evaluator.batch.T / readers;
    if (e->loaded.machine.world.rank || source_open(&source, from)) return 0;
    enum status st = source_estimate_run(&estimate, &source, &tokens);
    source_close(&source);
    double expected = estimate.documents * estimate.tokens_per_document / readers;
    return st || !(expected > 0) ? 0 : expected;
}

/* How many of the source's IDs the rows of an evaluation had; 0: all. */
static uint64_t count_seen(const struct evaluating *e, int64_t batches, const struct evaluation *v)
{
    int64_t seen = 0;
    if (e->evaluator.causal) return (uint64_t)v->tokens + 1; /* all but the first are labels */
    if (batches < 0) return 0;
    if (__builtin_mul_overflow(batches, (int64_t)e->rows * e->evaluator.batch.T, &seen)) return 0;
    return (uint64_t)seen;
}

static enum status evaluate_source(struct evaluating *e, struct source_config *source,
                                   int64_t batches, struct evaluation *v)
{
    struct config *c = &e->loaded.config;
    struct data_config data = inputs_data_of_path(c, NULL, NULL, NULL);
    data.sources = source;
    data.num_sources = 1;
    data.validation_share = 0;
    data.order = ORDER_streams;
    const struct comm *world = &e->loaded.machine.world;
    struct loader *loader = NULL;
    enum status st = STATUS_OK;
    TRY_OUT(comm_agree(world, baselines_find_spikes(&e->baselines)));
    e->baselines.has_spikes &= e->evaluator.causal;
    e->evaluator.has_marks = e->baselines.has_spikes;
    if (e->baselines.has_spikes) data.row_overlap = true; /* so that every count is a label */
    TRY_OUT(comm_agree(world, open_loader(e, &data, batches, &loader)));
    progress_begin("eval", PROGRESS_TOKENS, expected_tokens(e, source, batches));
    TRY_OUT(evaluator_run(&e->evaluator, loader, -1, &e->loaded.step, v));
    TRY_OUT(
        comm_agree(world, world->rank ? STATUS_OK : report_skipped(loader, data.bad_record_limit)));
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : evaluator_check(v, source->path)));
    uint64_t seen = count_seen(e, batches, v);
    TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : baselines_measure(&e->baselines, seen)));
out:
    progress_end();
    loader_close(loader);
    return st;
}

static const struct usage usage = {
    "eval",
    {{NULL,
      {USAGE_ONE(FILE, "MODEL"),
       {ITEM_FILE, "DATA", true, true, "(DATA | --task FILE ...)"},
       USAGE_FLAGS("[--ranks N]"),
       USAGE_SETTINGS}}},
    "Loss of a model on DATA (.txt, .jsonl, .jsonl.gz, .jsonl.zst, .parquet, .arrow, .npy,\n"
    ".bin/.idx, or a glob pattern).  MODEL is a run, a checkpoint or a Hugging Face folder; a\n"
    "checkpoint is evaluated with its run's objective.  With --ranks, or under mpirun, ranks\n"
    "shard the model and the rows.  For spike counts also bits per spike, the gain over a\n"
    "constant rate of each neuron; with --held-out also that of neurons that the model does not\n"
    "see (co-smoothing).\n\n"
    "With --task, accuracy on data sets (.jsonl or .parquet) with the columns of ARC, HellaSwag,\n"
    "PIQA, Winogrande, MMLU or LAMBADA, 0-shot by the rules of lm-evaluation-harness.  A masked\n"
    "model is scored by pseudo-log-likelihood.  --task does not support diffusion models.\n\n"
    "The loss of a diffusion model is an upper bound, estimated with one random mask of each row;\n"
    "another data.seed gives other masks.",
};

/* `eval --task`: the words after MODEL are further tasks. */
static enum status evaluate_tasks(struct task_session *s, struct loaded_model_options *o,
                                  struct loaded_model *l, bool json)
{
    TRY(machine_join(&l->machine));
    if (!o->max_tokens) o->max_tokens = -1;
    TRY(loaded_model_open(l, o));
    s->loaded = l;
    return task_session_run(s, json);
}

/* Checks the words: MODEL DATA, or MODEL and any number of tasks, which are added to the list. */
static enum status sort_words(const struct arguments *a, struct flag_list *tasks)
{
    enum { MOST = sizeof tasks->items / sizeof *tasks->items };
    if (!tasks->count && a->num_words != 2)
        FAIL(USAGE, "eval: expected MODEL and DATA, or MODEL and --task, got %d argument%s",
             a->num_words, a->num_words == 1 ? "" : "s");
    if (!tasks->count) return STATUS_OK;
    for (int i = 1; i < a->num_words; i++) {
        if (tasks->count == MOST) FAIL(USAGE, "--task: at most %d are supported", MOST);
        tasks->items[tasks->count++] = a->words[i];
    }
    return STATUS_OK;
}

/* Flags that need another one.  task_column: that of --task, which has columns of its own; NULL:
 * DATA. */
static enum status check_used(const struct arguments *a, const struct flag *flags,
                              const struct evaluating *e, const char *task_column)
{
    const struct baselines *b = &e->baselines;
    if (arguments_have(a, flags, "windows") && !(e->co_smoothing.held_out > 0))
        FAIL(USAGE, "--windows has no effect without --held-out");
    if (!b->n && (b->ngram_data[0] || arguments_have(a, flags, "ngram-tokens")))
        FAIL(USAGE, "%s has no effect without --ngram",
             b->ngram_data[0] ? "--ngram-data" : "--ngram-tokens");
    if (task_column && task_column[0])
        FAIL(USAGE, "--column requires DATA: the format of a task names its columns");
    return STATUS_OK;
}

enum status command_eval(int argc, char **argv)
{
    const char *tokenizer = "", *column = "";
    int64_t seq_len = 0, rows = 8, batches = -1;
    struct evaluating e = {.baselines = {.ngram_data = "", .ngram_tokens = 10000000},
                           .co_smoothing = {.windows = 16}};
    struct co_smoothing *co = &e.co_smoothing;
    struct task_session session = {.format = -1, .per_item = ""};
    struct flag_list tasks = {0};
    bool json = false, ema = false, is_rank;
    struct launch_flags launch = LAUNCH_NONE;
    struct baselines *b = &e.baselines;
    const struct flag flags[] = {
        {"tokenizer", FLAG_FILE, &tokenizer, "tokenizer to use instead of the model's own"},
        {"ema", FLAG_SWITCH, &ema, "use the moving average of the weights (optimizer.ema_decay)"},
        {"column", FLAG_TEXT, &column,
         "JSON key or column that holds the text or the spike counts (default text)"},
        {"seq-len", FLAG_INT(1, 1 << 24), &seq_len, "tokens per row (default: as in training)"},
        {"batch-size", FLAG_INT(1, 1 << 20), &rows, "rows per batch on each rank"},
        {"batches", FLAG_INT(1, FLAG_UNLIMITED), &batches,
         "stop after this many batches, summed over all ranks (default: all data)"},
        {"ngram", FLAG_INT(0, 64), &b->n,
         "compare with an n-gram model of this order, Laplace-smoothed (default: none)"},
        {"ngram-data", FLAG_FILE, &b->ngram_data,
         "data to count n-grams in (default: the run's training data)"},
        {"ngram-tokens", FLAG_INT(0, FLAG_UNLIMITED), &b->ngram_tokens,
         "count n-grams in at most this many tokens (default; 0: all)"},
        {"held-out", FLAG_REAL(0, 0.999), &co->held_out,
         "spike counts: fraction of neurons to hold out for co-smoothing (default: none)"},
        {"windows", FLAG_INT(1, 1 << 20), &co->windows,
         "evaluate co-smoothing in at most this many windows of a row's length"},
        {"task", FLAG_FILES, &tasks,
         "data set to score, as FILE or NAME=FILE; may be repeated, or followed by more FILEs"},
        {"task-format", FLAG_CHOICE(OPT_UNIT_ENUM(TASK_FORMATS)), &session.format,
         "format of the tasks (default: by the columns)"},
        {"limit", FLAG_INT(0, FLAG_UNLIMITED), &session.limit,
         "evaluate this many items of each task (default: all)"},
        {"per-item", FLAG_FILE, &session.per_item,
         "write each item's log-likelihoods and choice to this .jsonl file"},
        LAUNCH_FLAGS(&launch),
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(launch_flags_apply(&launch, &a));
    TRY(sort_words(&a, &tasks));
    TRY(check_used(&a, flags, &e, tasks.count ? column : NULL));
    session.words = (struct option_list){tasks.items, (size_t)tasks.count};
    session.rows = (int)rows;
    TRY(task_session_check(&session));
    if (tasks.count && (batches >= 0 || b->n || co->held_out > 0))
        FAIL(USAGE, "--batches, --ngram and --held-out require DATA; not supported with --task");
    struct evaluation v = {0};
    struct source_config source = {
        .path = a.words[1], .column = column[0] ? column : "text", .weight = 1};
    bool has_column = column[0];
    column = source.column;
    enum status st = STATUS_OK;
    struct loaded_model_options o = {.path = a.words[0],
                                     .tokenizer = tokenizer,
                                     .settings = a.settings,
                                     .num_settings = a.num_settings,
                                     .ema = ema,
                                     .max_tokens = (int)seq_len};
    TRY_OUT(launch_flags_start(&launch, "", &is_rank));
    if (!is_rank) goto out;
    if (tasks.count) {
        st = evaluate_tasks(&session, &o, &e.loaded, json);
        goto out;
    }
    TRY_OUT(machine_join(&e.loaded.machine));
    TRY_OUT(loaded_model_open(&e.loaded, &o));
    TRY_OUT(hub_fetch(source.path, HUB_DATA, &e.loaded.machine.world));
    if (!seq_len) seq_len = e.loaded.config.training.seq_len;
    loaded_model_warn_context(&e.loaded, seq_len);
    e.rows = (int)rows;
    if (has_column) TRY_OUT(comm_agree(&e.loaded.machine.world, source_check_column(&source)));
    b->source = &source, b->ngram_column = column, b->config = &e.loaded.config;
    b->tokenizer = e.loaded.tokenizer, b->vocab_size = e.loaded.shape.V;
    if (co->held_out > 0)
        TRY_OUT(comm_agree(&e.loaded.machine.world, co_smoothing_check(&e.loaded, &source)));
    TRY_OUT(comm_agree(&e.loaded.machine.world, open_evaluator(&e, (int)seq_len)));
    TRY_OUT(evaluate_source(&e, &source, batches, &v));
    co->row = seq_len;
    const struct corpus sessions = baselines_corpus(b);
    if (co->held_out > 0) TRY_OUT(co_smoothing_measure(co, &e.loaded, &sessions));
    if (!e.loaded.machine.world.rank) report(&e, &v, json);
out:
    evaluator_release(&e.evaluator);
    task_session_release(&session);
    loaded_model_close(&e.loaded, st);
    arena_release(&e.run);
    return st;
}
