// SPDX-License-Identifier: Apache-2.0
#include "app/data_plan.h"

#include "base/log.h"
#include "config/batch_ramp.h"
#include "config/data_stages.h"
#include "data/source_estimate.h"
#include "metrics/console.h"
#include "train/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Fills in documents and tokens_per_document. */
static enum status estimate(struct planned_source *s, const struct source_config *from,
                            const struct data_config *data, const struct preflight *p)
{
    struct source source;
    struct source_estimate e = {0};
    bool is_megatron = data->order == ORDER_megatron;
    const struct source_tokens tokens = {
        .tokenizer = p->tokenizer, .vocab_size = p->shape.V, .bos = data->bos, .eos = data->eos};
    TRY(source_open(&source, from));
    enum status st = is_megatron ? source_estimate_megatron(&e, &source, data->split)
                                 : source_estimate_run(&e, &source, &tokens);
    source_close(&source);
    TRY(st);
    s->documents = e.documents * (is_megatron ? 1 : 1 - data->validation_share);
    s->tokens_per_document = e.tokens_per_document;
    return STATUS_OK;
}

static enum status list_sources(struct data_plan *d, const struct data_config *data,
                                const struct preflight *p)
{
    d->num_sources = data->num_sources;
    d->sources = heap((d->num_sources + 1) * sizeof *d->sources);
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct source_config *from = &data->sources[i];
        d->sources[i] = (struct planned_source){.label = data_config_label(from),
                                                .path = from->path,
                                                .is_checked = p->has_source[i],
                                                .documents = NAN,
                                                .tokens_per_document = NAN};
        if (p->has_source[i]) TRY(estimate(&d->sources[i], from, data, p));
    }
    return STATUS_OK;
}

static double megatron_samples(const struct planned_source *s, int64_t seq_len)
{
    return floor((s->documents * s->tokens_per_document - 1) / (double)seq_len);
}

/* What the shares of the sources are in proportion to. */
static double weight_of(const struct data_plan *d, const struct data_config *data, size_t i,
                        int64_t seq_len)
{
    bool by_lengths =
        data->blend == BLEND_BY_lengths || (data->blend == BLEND_BY_auto && data->num_sources < 2);
    if (d->is_exact && by_lengths) return megatron_samples(&d->sources[i], seq_len);
    return data->sources[i].weight;
}

/* Tokens that a row reads on: with overlap its last one is the first of the next row. */
static double row_tokens(const struct config *c)
{
    bool has_next = c->objective.name == OBJECTIVE_causal;
    return (double)c->training.seq_len + (has_next && !c->data.row_overlap);
}

static void plan_readings(struct data_plan *d, struct planned_stage *to, const struct config *c)
{
    struct source_config one;
    const struct data_config data = inputs_data_config(c, &one);
    double weights = 0, mean = 0, rows = (double)to->rows, tokens = rows * (double)to->seq_len;
    for (size_t i = 0; i < d->num_sources; i++) weights += weight_of(d, &data, i, to->seq_len);
    for (size_t i = 0; i < d->num_sources; i++) {
        struct planned_reading *r = &to->readings[i];
        r->share = weight_of(d, &data, i, to->seq_len) / weights;
        if (r->share > 0) mean += r->share * d->sources[i].tokens_per_document;
    }
    for (size_t i = 0; i < d->num_sources; i++) {
        struct planned_reading *r = &to->readings[i];
        struct planned_source *s = &d->sources[i];
        r->epochs_before = s->epochs;
        if (!(r->share <= 0)) { /* NAN: unknown */
            double samples = megatron_samples(s, to->seq_len);
            double draws = rows * row_tokens(c) / mean;
            double epochs =
                d->is_exact ? rows * r->share / samples : draws * r->share / s->documents;
            r->documents = epochs * s->documents;
            r->tokens =
                d->is_exact ? tokens * r->share : tokens * r->share * s->tokens_per_document / mean;
            s->epochs += epochs;
        }
        r->epochs = s->epochs;
    }
}

/* Finds the step in which a source's second epoch begins, rows_before rows into the run. */
static void find_repeats(struct data_plan *d, size_t stage, const struct data_stage *s,
                         const struct mesh *mesh, int64_t rows_before)
{
    const struct planned_stage *at = &d->stages[stage];
    const struct batch_ramp ramp =
        batch_ramp_of(&s->config.training, config_step_rows(&s->config, mesh));
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct planned_reading *r = &at->readings[i];
        struct planned_source *source = &d->sources[i];
        if (source->repeat_step || !(r->epochs > 1)) continue;
        double part = (1 - r->epochs_before) / (r->epochs - r->epochs_before);
        double rows = floor((double)rows_before + part * (double)at->rows) + 1;
        source->repeat_stage = stage;
        source->repeat_step = at->end;
        if (rows < 0x1p62)
            source->repeat_step =
                at->begin + batch_ramp_steps_to(&ramp, rows_before, (int64_t)rows);
        if (source->repeat_step > at->end) source->repeat_step = at->end;
    }
}

enum status data_plan_make(struct data_plan *d, const struct config *c, const struct preflight *p)
{
    struct source_config one;
    const struct data_config data = inputs_data_config(c, &one);
    *d = (struct data_plan){.is_exact = data.order == ORDER_megatron};
    TRY(list_sources(d, &data, p));
    d->stages = heap(data_stages_count(c) * sizeof *d->stages);
    int64_t rows = 0;
    for (size_t i = 0; i < data_stages_count(c); i++) {
        struct data_stage s;
        data_stages_open(&s, c, &p->mesh, i);
        if (s.begin < s.end) {
            struct planned_stage *to = &d->stages[d->num_stages++];
            int64_t after = data_stages_advance(c, &p->mesh, s.begin, rows, s.end);
            *to = (struct planned_stage){.begin = s.begin,
                                         .end = s.end,
                                         .rows = after - rows,
                                         .seq_len = s.config.training.seq_len,
                                         .readings =
                                             heap((d->num_sources + 1) * sizeof *to->readings)};
            plan_readings(d, to, &s.config);
            find_repeats(d, i, &s, &p->mesh, rows);
            rows = after;
        }
        data_stages_close(&s);
    }
    return STATUS_OK;
}

void data_plan_release(struct data_plan *d)
{
    for (size_t i = 0; i < d->num_stages; i++) free(d->stages[i].readings);
    free(d->stages), free(d->sources);
    *d = (struct data_plan){0};
}

/* An estimate has three digits. */
static double rounded(double value, bool is_exact)
{
    if (is_exact || !(value >= 1000)) return value;
    double unit = pow(10, floor(log10(value)) - 2);
    return round(value / unit) * unit;
}

static void add_epochs(struct text *out, double epochs)
{
    if (epochs < 999.5)
        text_addf(out, "%.3g", epochs);
    else
        console_thousands(out, round(epochs));
}

void data_plan_warn(const struct data_plan *d)
{
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct planned_source *s = &d->sources[i];
        struct text t = {0};
        if (!s->repeat_step) continue;
        if (d->num_stages > 1) text_addf(&t, "data stage %zu: ", s->repeat_stage);
        text_add_escaped(&t, s->label);
        text_addf(&t, " is read more than once: it has about ");
        console_thousands(&t, rounded(s->documents, d->is_exact));
        text_addf(&t, " documents, which repeat from about step %lld on; ",
                  (long long)s->repeat_step);
        add_epochs(&t, s->epochs);
        text_adds(&t, " epochs in the run");
        log_line(LOG_WARN, "%s", t.data);
        text_release(&t);
    }
}

static void add_number(struct text *out, double value, bool is_exact)
{
    struct text t = {0};
    if (isnan(value))
        text_adds(&t, "unknown");
    else
        console_thousands(&t, rounded(value, is_exact));
    text_addf(out, " %17s", t.data);
    text_release(&t);
}

static void describe_stage(const struct data_plan *d, size_t index, struct text *out)
{
    const struct planned_stage *s = &d->stages[index];
    text_addf(out, "data stage %zu, steps %lld to %lld: ", index, (long long)s->begin + 1,
              (long long)s->end);
    console_thousands(out, (double)s->rows);
    text_addf(out, " rows of %lld tokens, ", (long long)s->seq_len);
    console_thousands(out, (double)s->rows * (double)s->seq_len);
    text_addf(out, " tokens\n  %7s  %16s  %16s  %16s  %s\n", d->is_exact ? "samples" : "draws",
              "about documents", "tokens", "epochs so far", "source");
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct planned_reading *r = &s->readings[i];
        struct text epochs = {0};
        text_addf(out, "  %5.1f %%", 100 * r->share);
        add_number(out, r->documents, false);
        add_number(out, r->tokens, d->is_exact);
        if (!isnan(r->epochs)) {
            add_epochs(&epochs, r->epochs_before);
            text_adds(&epochs, " to ");
            add_epochs(&epochs, r->epochs);
        }
        text_addf(out, "  %16s  ", epochs.len ? epochs.data : "unknown");
        text_release(&epochs);
        text_add_escaped(out, d->sources[i].label);
        text_adds(out, d->sources[i].is_checked ? "\n" : " (not checked: not on this machine)\n");
    }
}

void data_plan_describe(const struct data_plan *d, struct text *out)
{
    for (size_t i = 0; i < d->num_stages; i++) describe_stage(d, i, out);
    if (d->num_stages && !d->is_exact)
        text_adds(out, "documents, tokens and epochs are estimates from a sample of each source\n");
}

static void write_sources(const struct data_plan *d, struct json_writer *w)
{
    json_begin_array(w, "sources", JSON_INLINE);
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct planned_source *s = &d->sources[i];
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "source", s->label);
        json_write_string(w, "path", s->path);
        json_write_bool(w, "checked", s->is_checked);
        json_write_bool(w, "estimated", !d->is_exact);
        json_write_format(w, "documents", "%.0f", s->documents);
        json_write_format(w, "tokens_per_document", "%.6g", s->tokens_per_document);
        json_write_format(w, "epochs", "%.6g", s->epochs);
        json_write_bool(w, "repeats", s->repeat_step > 0);
        json_write_int_or_null(w, "repeat_stage", s->repeat_step ? (int64_t)s->repeat_stage : -1);
        json_write_int_or_null(w, "repeat_step", s->repeat_step ? s->repeat_step : -1);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_stage(const struct data_plan *d, size_t index, struct json_writer *w)
{
    const struct planned_stage *s = &d->stages[index];
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "stage", (int64_t)index);
    json_write_int(w, "first_step", s->begin + 1);
    json_write_int(w, "last_step", s->end);
    json_write_int(w, "rows", s->rows);
    json_write_int(w, "seq_len", s->seq_len);
    json_write_format(w, "tokens", "%.0f", (double)s->rows * (double)s->seq_len);
    json_begin_array(w, "sources", JSON_INLINE);
    for (size_t i = 0; i < d->num_sources; i++) {
        const struct planned_reading *r = &s->readings[i];
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "source", d->sources[i].label);
        json_write_format(w, "share", "%.6g", r->share);
        json_write_format(w, "documents", "%.0f", r->documents);
        json_write_format(w, "tokens", "%.0f", r->tokens);
        json_write_format(w, "epochs_before", "%.6g", r->epochs_before);
        json_write_format(w, "epochs", "%.6g", r->epochs);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

void data_plan_write(const struct data_plan *d, struct json_writer *w)
{
    write_sources(d, w);
    json_begin_array(w, "stages", JSON_INLINE);
    for (size_t i = 0; i < d->num_stages; i++) write_stage(d, i, w);
    json_end_array(w);
}
