// SPDX-License-Identifier: Apache-2.0
#include "app/data_stats.h"

#include "app/deep_check.h"
#include "app/length_chart.h"
#include "base/counted.h"
#include "base/log.h"
#include "data/source_stats.h"
#include "train/inputs.h"

#include <stdio.h>
#include <stdlib.h>

enum { BAR = 40, MAX_BAD = 5 };

/* The range of a bin: from, to. */
static uint64_t bin_begin(int bin) { return bin ? UINT64_C(1) << (bin - 1) : 0; }
static uint64_t bin_end(int bin) { return bin ? (UINT64_C(1) << bin) - 1 : 0; }

static double percent(uint64_t part, uint64_t of)
{
    return of ? 100 * (double)part / (double)of : 0;
}

static double bytes_per_token(const struct source_stats *s)
{
    return s->tokens ? (double)s->text_bytes / (double)s->tokens : 0;
}

static void add_lengths(const struct source_stats *s, struct text *out)
{
    int first, last;
    uint64_t most = 1;
    source_stats_bins(s, &first, &last);
    for (int b = first; b <= last; b++)
        if (s->lengths[b] > most) most = s->lengths[b];
    text_adds(out, "  tokens per document    documents\n");
    for (int b = first; b <= last; b++) {
        char range[48];
        unsigned long long from = bin_begin(b), to = bin_end(b), n = s->lengths[b];
        snprintf(range, sizeof range, from < to ? "%llu to %llu" : "%llu", from, to);
        text_addf(out, "  %21s %10llu %5.1f %%  ", range, n, percent(n, s->documents));
        /* rounded up, so that no document is invisible */
        for (uint64_t i = 0; i < (n * BAR + most - 1) / most; i++) text_adds(out, "#");
        text_adds(out, "\n");
    }
}

static void add_place(const struct source_stats *s, size_t i, struct text *out)
{
    const struct source *from = s->scan.source;
    const struct special_place *p = &s->places[i];
    text_adds(out, "    ");
    text_add_escaped(out, source_file_path(from, p->file));
    text_addf(out, ", %s %llu: ", source_unit(from), (unsigned long long)p->at);
    text_add_escaped(out, tokenizer_special_name(s->scan.tokenizer, p->id));
    text_adds(out, "\n");
}

static void add_bad(const struct bad_records *b, struct text *out)
{
    text_addf(out, "  bad records: %llu of %llu\n", (unsigned long long)b->num_bad,
              (unsigned long long)b->num_read);
    for (size_t i = 0; i < b->count && i < MAX_BAD; i++) {
        const struct bad_record *r = &b->list[i];
        text_adds(out, "    ");
        text_add_escaped(out, r->file);
        text_addf(out, ", %s %llu: ", r->unit, (unsigned long long)r->at);
        text_add_escaped(out, r->reason);
        text_adds(out, "\n");
    }
}

static void add_stats(const struct source_stats *s, struct text *out)
{
    const struct source *from = s->scan.source;
    text_add_escaped(out, from->config->path);
    if (s->scan.max_bytes)
        text_addf(out, " (a sample of about %llu bytes)", (unsigned long long)s->scan.max_bytes);
    text_addf(out, ": %s, %s, the longest has %llu",
              counted_format((int64_t)s->documents, "document").text,
              counted_format((int64_t)s->tokens, "token").text, (unsigned long long)s->longest);
    if (!from->holds_ids)
        text_addf(out, "; %llu bytes of text, %.3f per token", (unsigned long long)s->text_bytes,
                  bytes_per_token(s));
    text_adds(out, "\n");
    if (s->documents) add_lengths(s, out);
    text_addf(out, "  duplicates: %s%llu (%.2f %%)\n", s->is_estimated ? "about " : "",
              (unsigned long long)s->duplicates, percent(s->duplicates, s->documents));
    if (s->scan.tokenizer)
        text_addf(out, "  documents that contain a special token: %llu\n",
                  (unsigned long long)s->num_special);
    for (size_t i = 0; i < s->num_places; i++) add_place(s, i, out);
    add_bad(&s->scan.bad, out);
}

static void write_places(const struct source_stats *s, struct json_writer *w)
{
    const struct source *from = s->scan.source;
    json_write_int(w, "special_documents", (int64_t)s->num_special);
    json_begin_array(w, "special", JSON_INLINE);
    for (size_t i = 0; i < s->num_places; i++) {
        const struct special_place *p = &s->places[i];
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "file", source_file_path(from, p->file));
        json_write_int(w, source_unit(from), (int64_t)p->at);
        json_write_string(w, "token", tokenizer_special_name(s->scan.tokenizer, p->id));
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_stats(const struct source_stats *s, struct json_writer *w)
{
    const struct source *from = s->scan.source;
    int first, last;
    source_stats_bins(s, &first, &last);
    json_newline(w, 1);
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "path", from->config->path);
    json_write_int_or_null(w, "sample_bytes", s->scan.max_bytes ? (int64_t)s->scan.max_bytes : -1);
    json_write_int(w, "documents", (int64_t)s->documents);
    json_write_int(w, "tokens", (int64_t)s->tokens);
    json_write_int(w, "longest", (int64_t)s->longest);
    json_write_int_or_null(w, "text_bytes", from->holds_ids ? -1 : (int64_t)s->text_bytes);
    if (from->holds_ids)
        json_write_null(w, "bytes_per_token");
    else
        json_write_real(w, "bytes_per_token", bytes_per_token(s));
    json_begin_array(w, "lengths", JSON_INLINE);
    for (int b = first; b <= last && s->documents; b++) {
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_int(w, "from", (int64_t)bin_begin(b));
        json_write_int(w, "to", (int64_t)bin_end(b));
        json_write_int(w, "documents", (int64_t)s->lengths[b]);
        json_end_object(w);
    }
    json_end_array(w);
    json_write_int(w, "duplicates", (int64_t)s->duplicates);
    json_write_bool(w, "duplicates_estimated", s->is_estimated);
    write_places(s, w);
    json_write_int(w, "records", (int64_t)s->scan.bad.num_read);
    json_write_int(w, "bad_records", (int64_t)s->scan.bad.num_bad);
    json_end_object(w);
}

static void print_stats(const struct source_stats *all, size_t count, bool json)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    text_adds(&out, "");
    if (json) {
        json_begin_object(&w, NULL, JSON_INLINE);
        json_begin_array(&w, "sources", JSON_INLINE);
    }
    for (size_t i = 0; i < count; i++) {
        if (json)
            write_stats(&all[i], &w);
        else
            add_stats(&all[i], &out);
    }
    if (json) {
        json_end_array(&w);
        json_end_object(&w);
        json_finish(&w);
        text_adds(&out, "\n");
    }
    fputs(out.data, stdout);
    text_release(&out);
}

/* Reads all sources, even after one is damaged. */
static enum status run_all(struct source_stats *all, struct source *sources,
                           const struct data_config *d)
{
    struct failure damage = {0};
    for (size_t i = 0; i < d->num_sources; i++) {
        struct scan_report report = deep_check_begin_report();
        TRY(source_open(&sources[i], &d->sources[i]));
        all[i].scan.source = &sources[i];
        all[i].scan.progress = deep_check_report, all[i].scan.context = &report;
        TRY(source_stats_run(&all[i]));
        all[i].scan.context = NULL;
        if (!all[i].scan.damage.len) continue;
        if (damage.status) log_line(LOG_ERROR, "%s", all[i].scan.damage.data);
        status_save(&damage, FAILURE(DATA, "%s", all[i].scan.damage.data));
    }
    return status_restore(&damage);
}

/* The sources of the configuration, or one per path; on the heap. */
static struct source_config *list_sources(const struct config *c, const char *const *paths,
                                          size_t count, struct data_config *d)
{
    struct source_config one;
    *d = inputs_data_config(c, &one);
    if (count) d->num_sources = count;
    struct source_config *sources = heap((d->num_sources + 1) * sizeof *sources);
    for (size_t i = 0; i < d->num_sources && !count; i++) sources[i] = d->sources[i];
    for (size_t i = 0; i < count; i++)
        sources[i] =
            (struct source_config){.path = paths[i], .column = c->data.column, .weight = 1};
    d->sources = sources;
    return sources;
}

/* The bound of token IDs; 0: unknown. */
static enum status find_vocab_size(const struct config *c, const struct tokenizer *t,
                                   bool is_config, int64_t *size)
{
    struct model_shape shape;
    *size = c->model.vocab_size;
    if (!is_config) return STATUS_OK;
    TRY(model_shape_resolve(&shape, &c->model, tokenizer_vocab_size(t)));
    *size = shape.V;
    return STATUS_OK;
}

enum status data_stats(const struct config *c, const char *const *paths, size_t count,
                       const struct data_stats_flags *flags)
{
    struct data_config d;
    struct source_config *configs = list_sources(c, paths, count, &d);
    struct source_stats *all = heap((d.num_sources + 1) * sizeof *all);
    struct source *sources = heap((d.num_sources + 1) * sizeof *sources);
    struct tokenizer *t = NULL;
    int64_t vocab_size;
    enum status st = STATUS_OK, damage;
    if (!d.num_sources) FAIL_OUT(CONFIG, "no [[data.source]] is configured");
    TRY_OUT(inputs_fetch_tokenizer(c, comm_self()));
    TRY_OUT(inputs_open_tokenizer(c, false, &t));
    TRY_OUT(find_vocab_size(c, t, !count, &vocab_size));
    for (size_t i = 0; i < d.num_sources; i++)
        all[i].scan = (struct source_scan){.tokenizer = t,
                                           .vocab_size = vocab_size,
                                           .bos = d.bos,
                                           .eos = d.eos,
                                           .max_bytes = (uint64_t)flags->sample};
    damage = run_all(all, sources, &d);
    if (damage && damage != STATUS_DATA) TRY_OUT(damage);
    for (size_t i = 0; i < d.num_sources; i++)
        if (!all[i].scan.source) TRY_OUT(damage); /* it could not be opened */
    print_stats(all, d.num_sources, flags->json);
    st = damage;
    if (!st && flags->svg[0]) TRY_OUT(length_chart_write(all, d.num_sources, flags->svg));
out:
    for (size_t i = 0; i < d.num_sources; i++) {
        source_stats_release(&all[i]);
        source_close(&sources[i]);
    }
    tokenizer_close(t);
    free(all), free(sources), free(configs);
    return st;
}
