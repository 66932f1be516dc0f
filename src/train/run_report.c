// SPDX-License-Identifier: Apache-2.0
#include "train/run_report.h"

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/hf_family.h"
#include "config/data_stages.h"
#include "metrics/console.h"
#include "model/layout.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 4096 };

/* "853,888", "124.7 million", "8.03 billion" */
static void append_count(struct text *t, double n)
{
    static const char *const words[] = {"million", "billion", "trillion"};
    double scaled = n / 1e6;
    int i = 0;
    if (n < 1e6) {
        console_thousands(t, n);
        return;
    }
    for (; scaled >= 999.95 && i < 2; i++) scaled /= 1e3;
    text_addf(t, scaled < 9.995 ? "%.2f %s" : "%.1f %s", scaled, words[i]);
}

static void append_plural(struct text *t, int64_t n, const char *noun)
{
    console_thousands(t, (double)n);
    text_addf(t, " %s%s", noun, n == 1 ? "" : "s");
}

static void append_model(struct text *t, const struct training_run *r)
{
    const struct model_shape *s = &r->trainer.shape;
    struct layout layout;
    layout_init(&layout, s, 1);
    const char *class = hf_family_of(s)->architecture; /* "Qwen3ForCausalLM" */
    text_addf(t, "llamero " LLAMERO_VERSION ": a %.*s with ", (int)strcspn(class, "F"), class);
    append_count(t, (double)layout.parameters);
    text_addf(t, " parameters (dim %d, ", s->D);
    append_plural(t, s->L, "layer");
    text_addf(t, ", %d tokens%s)", s->V, s->tied ? ", tied embeddings" : "");
    layout_release(&layout);
}

/* "4 ranks (dp_shard 2, tp 2) of 2 threads, on cpu avx512, in bfloat16" */
static void append_machine(struct text *t, const struct training_run *r)
{
    static const char *const names[] = {
#define X(name, key) [AXIS_##name] = #name,
        AXIS_LIST(X)
#undef X
    };
    const struct machine *m = &r->trainer.machine;
    const char *separator = " (";
    append_plural(t, m->world.size, "rank");
    for (int i = 0; i < AXIS_COUNT; i++) {
        if (m->mesh.degree[i] < 2) continue;
        text_addf(t, "%s%s %d", separator, names[i], m->mesh.degree[i]);
        separator = ", ";
    }
    if (*separator == ',') text_adds(t, ")");
    text_adds(t, " of ");
    append_plural(t, m->queue->num_threads, "thread");
    bool is_known_gpu = m->queue->device && m->hardware;
    text_addf(t, ", on %s", is_known_gpu ? m->hardware->name : m->ops->backend);
    text_addf(t, ", in %s",
              training_compute_dtype(&r->config->training) == F32 ? "float32" : "bfloat16");
    if (m->queue->device && !r->config->device.deterministic)
        text_adds(t, ", with other bits in each run (device.deterministic = false)");
}

/* "steps 41 to 100 of 4 rows of 128 tokens: 30,720 tokens" */
static void append_steps(struct text *t, const struct training_run *r)
{
    const struct config *c = r->whole;
    const struct mesh *mesh = &r->trainer.machine.mesh;
    int64_t done = r->trainer.steps_done, last = c->training.steps;
    struct data_stage stage;
    size_t index = data_stages_find(c, mesh, done);
    data_stages_open(&stage, c, mesh, index);
    text_addf(t, "steps %lld to %lld: ", (long long)done + 1, (long long)last);
    data_stages_describe(&stage, mesh, t);
    data_stages_close(&stage);
    size_t stages = data_stages_count(c);
    if (stages > 1) {
        text_addf(t, " (stage %zu of %zu)", index, stages - 1);
        return;
    }
    int64_t rows = data_stages_advance(c, mesh, done, r->trainer.rows_done, last);
    text_adds(t, "; ");
    append_count(t, (double)(rows - r->trainer.rows_done) * (double)c->training.seq_len);
    text_adds(t, " tokens");
}

static void append_output(struct text *t, const struct training_run *r)
{
    const struct checkpoint_config *k = &r->config->checkpoint;
    text_addf(t, "writes to %s: ", r->config->job.dump_folder);
    if (!k->enable || k->load_only) {
        text_addf(t, "metrics, but no checkpoint, as checkpoint.%s: the model is lost at the end",
                  k->enable ? "load_only = true" : "enable = false");
        return;
    }
    bool seconds = k->interval_type == SAVE_INTERVAL_seconds;
    text_adds(t, "a checkpoint every ");
    append_plural(t, k->interval, seconds ? "second" : "step");
    text_adds(t, " and at the end");
    if (k->keep_latest_k > 0) text_addf(t, ", of which %lld are kept", (long long)k->keep_latest_k);
}

static void warn_of_slow_float8(const struct trainer *t)
{
    if (!t->model.float8 || !t->machine.queue->device || t->float8.device.queue) return;
    log_line(LOG_WARN, "FP8 makes this run slower: on this GPU the program multiplies FP8 values "
                       "in bfloat16, after quantizing them; to train without FP8, remove "
                       "\"float8\" from model.converters and float8.enable_float8_linear");
}

void run_report_begin(struct run_report *t, const struct training_run *r)
{
    static void (*const lines[])(struct text *, const struct training_run *) = {
        append_model, append_machine, append_steps, append_output};
    struct text line = {0};
    if (t->has_begun) return;
    text_reserve(&line, LINE_BYTES);
    *t = (struct run_report){.has_begun = true,
                             .begin_s = clock_monotonic_s(),
                             .begin_step = r->trainer.steps_done,
                             .begin_tokens = r->trainer.tokens_seen,
                             .best_loss = (double)NAN};
    for (size_t i = 0; r->is_main && i < sizeof lines / sizeof *lines; i++) {
        if (r->trainer.steps_done >= r->whole->training.steps && i == 2) continue; /* no steps */
        text_clear(&line);
        lines[i](&line, r);
        log_line(LOG_INFO, "%s", line.data);
    }
    if (r->is_main) warn_of_slow_float8(&r->trainer);
    text_release(&line);
}

void run_report_validation(struct run_report *t, int64_t step, double loss)
{
    if (!(loss < t->best_loss || isnan(t->best_loss))) return;
    t->best_loss = loss, t->best_step = step;
}

void run_report_rollback(struct run_report *t, int64_t step)
{
    if (t->best_step > step) t->best_loss = (double)NAN;
}

/* The command to use the model with. */
static void append_next(struct text *t, const struct training_run *r, const char *model)
{
    if (!r->tokenizer) {
        text_adds(t, "llamero convert ");
        text_add_shell(t, model);
        text_adds(t, " FOLDER");
        return;
    }
    text_adds(t, "llamero generate ");
    text_add_shell(t, model);
    text_adds(t, r->config->objective.name == OBJECTIVE_masked ? " --fill TEXT" : " --prompt TEXT");
}

static void log_model(const struct training_run *r, int64_t step, bool is_complete)
{
    struct text line = {0};
    text_reserve(&line, LINE_BYTES);
    char *folder = folder_step_path(r->checkpoint_folder, step);
    text_addf(&line, "the %s is in %s; ", is_complete ? "model" : "state", folder);
    if (is_complete) {
        text_adds(&line, "next: ");
        append_next(&line, r, r->config->job.dump_folder);
    } else {
        text_adds(&line, "the same command resumes there");
    }
    log_line(LOG_INFO, "%s", line.data);
    text_release(&line);
    free(folder);
}

void run_report_end(const struct run_report *t, const struct training_run *r, bool is_complete)
{
    const struct checkpoint_config *k = &r->config->checkpoint;
    struct text line = {0};
    int64_t steps = r->trainer.steps_done - t->begin_step;
    double seconds = clock_monotonic_s() - t->begin_s;
    double tokens = (double)(r->trainer.tokens_seen - t->begin_tokens);
    if (!r->is_main) return;
    text_reserve(&line, LINE_BYTES); /* as many allocations whatever the numbers */
    if (is_complete && !steps) {
        if (r->trainer.steps_done)
            log_line(LOG_INFO, "training.steps = %lld: no step is left after step %lld%s",
                     (long long)r->config->training.steps, (long long)r->trainer.steps_done,
                     r->has_only_model ? "" : "; increase it to continue");
        else
            log_line(LOG_WARN, "training.steps = 0: nothing was trained");
        if (k->enable && !k->load_only) log_model(r, r->trainer.steps_done, true);
        text_release(&line);
        return;
    }
    text_adds(&line, is_complete ? "completed " : "stopped after ");
    append_plural(&line, steps, "step");
    text_adds(&line, " and ");
    append_count(&line, tokens);
    text_adds(&line, " tokens in ");
    console_duration(&line, seconds);
    text_adds(&line, ", ");
    console_thousands(&line, seconds > 0 ? tokens / seconds : 0);
    text_adds(&line, " tokens/s");
    if (!isnan(t->best_loss))
        text_addf(&line, "; best validation loss %.4f at step %lld", t->best_loss,
                  (long long)t->best_step);
    log_line(LOG_INFO, "%s", line.data);
    text_release(&line);
    if (k->enable && !k->load_only) log_model(r, r->trainer.steps_done, is_complete);
}
