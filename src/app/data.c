/* data.c -- the documents of a training step, and statistics of sources. */
// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/data_stats.h"
#include "app/preflight.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "data/source.h"
#include "data/stream.h"
#include "train/step_data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    "data",
    {{"show",
      {USAGE_ONE(FILE, "RUN"), USAGE_FLAGS("--step N [--rank R] [--text]"), USAGE_SETTINGS}},
     {"stats",
      {USAGE_SOME(FILE, "CONFIG|PATH"), USAGE_FLAGS("[--svg FILE] [--sample BYTES]"),
       USAGE_SETTINGS}}},
    "show   lists the rows of one training step, past or future, with the data-parallel rank that\n"
    "       trains on each and the documents that it consists of.  RUN is a dump folder, or the\n"
    "       configuration of a run that may not have started yet.  It trains nothing: it begins "
    "at\n"
    "       the newest checkpoint before the step and reads past the rows in between.  Of a dump\n"
    "       folder, the settings are those that the first checkpoint from the step on was saved\n"
    "       with, or after the newest those of the run.\n"
    "stats  counts documents, tokens, duplicates, bad records and documents that contain special\n"
    "       tokens, with a histogram of the documents' lengths, for each source of a\n"
    "       configuration or for files: then text requires data.tokenizer=...\n\n"
    "A document's tokens are numbered from 0, with BOS and EOS as training inserts them.  A row\n"
    "has training.seq_len + 1 tokens, as the last one is only predicted; with objective.name =\n"
    "\"masked\" or \"diffusion\" it has training.seq_len, shown before masking.\n\n"
    "Duplicates are documents whose text, or IDs, are those of one before them.  Beyond 2^26\n"
    "documents they are estimated.",
};

struct show_flags {
    int64_t step, rank, ranks;
    bool text, json;
};

/* Where the document of a span is: "corpus.jsonl, offset 120". */
static const struct source *source_of(const struct step_data *s, const struct token_span *span)
{
    return loader_source(s->loader, span->source);
}

static const char *unit_of(const struct step_data *s, const struct token_span *span)
{
    return s->data.order == ORDER_megatron ? "sequence" : source_unit(source_of(s, span));
}

/* A NUL in the text would end it; incomplete characters are replaced when it is written. */
static enum status decode(const struct step_data *s, const struct step_row *row,
                          const struct token_span *span, struct text *out)
{
    text_clear(out);
    text_adds(out, "");
    TRY(tokenizer_decode_part(s->tokenizer, row->tokens->ids + span->begin, (size_t)span->count,
                              out));
    for (size_t i = 0; i < out->len; i++)
        if (!out->data[i]) out->data[i] = ' ';
    return STATUS_OK;
}

static enum status add_row(const struct step_data *s, const struct step_row *row, bool with_text,
                           struct text *out)
{
    const struct token_spans *spans = row->tokens->spans;
    struct text decoded = {0};
    enum status st = STATUS_OK;
    text_addf(out, "row %llu: rank %d, place %d\n", (unsigned long long)row->number, row->reader,
              row->place);
    for (size_t i = 0; i < spans->count; i++) {
        const struct token_span *x = &spans->items[i];
        text_adds(out, "  ");
        text_add_escaped(out, source_file_path(source_of(s, x), x->file));
        text_addf(out, ", %s %llu: tokens %llu to %llu%s\n", unit_of(s, x),
                  (unsigned long long)x->at, (unsigned long long)x->first,
                  (unsigned long long)x->first + (unsigned long long)x->count - 1,
                  x->is_skipped ? " (a bad record, skipped)" : "");
        if (!with_text) continue;
        TRY_OUT(decode(s, row, x, &decoded));
        text_adds(out, "    ");
        text_add_escaped(out, decoded.data);
        text_adds(out, "\n");
    }
out:
    text_release(&decoded);
    return st;
}

static enum status write_span(const struct step_data *s, const struct step_row *row,
                              const struct token_span *x, bool with_text, struct json_writer *w)
{
    const struct source *from = source_of(s, x);
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "source", from->config->path);
    json_write_string(w, "file", source_file_path(from, x->file));
    json_write_int(w, unit_of(s, x), (int64_t)x->at);
    json_write_int(w, "begin", x->begin);
    json_write_int(w, "first_token", (int64_t)x->first);
    json_write_int(w, "tokens", x->count);
    if (x->is_skipped) json_write_bool(w, "skipped", true);
    if (with_text) {
        struct text decoded = {0};
        enum status st = decode(s, row, x, &decoded);
        if (!st) json_write_string(w, "text", decoded.data);
        text_release(&decoded);
        TRY(st);
    }
    json_end_object(w);
    return STATUS_OK;
}

static enum status write_row(const struct step_data *s, const struct step_row *row, bool with_text,
                             struct json_writer *w)
{
    const struct token_row *tokens = row->tokens;
    json_newline(w, 1);
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "row", (int64_t)row->number);
    json_write_int(w, "rank", row->reader);
    json_write_int(w, "place", row->place);
    json_begin_array(w, "spans", JSON_INLINE);
    for (size_t i = 0; i < tokens->spans->count; i++)
        TRY(write_span(s, row, &tokens->spans->items[i], with_text, w));
    json_end_array(w);
    json_begin_array(w, "ids", JSON_COMPACT);
    for (int i = 0; i < tokens->filled; i++) json_write_int(w, NULL, tokens->ids[i]);
    json_end_array(w);
    json_end_object(w);
    return STATUS_OK;
}

/* Row by row, as a step of many long rows may be larger than memory. */
static void flush_text(struct text *out)
{
    fwrite(out->data, 1, out->len, stdout);
    text_clear(out);
}

static enum status print_rows(struct step_data *s, const struct show_flags *f, struct text *out)
{
    struct json_writer w = {.text = out};
    if (f->json) {
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_int(&w, "step", s->step);
        json_write_int(&w, "rows", s->num_rows);
        json_write_string(&w, "checkpoint", s->checkpoint);
        json_write_bool(&w, "skipped", s->is_skipped);
        json_begin_array(&w, "data", JSON_INLINE);
    } else {
        text_addf(out, "step %lld: %s from row %llu on, read from %s\n", (long long)s->step,
                  counted_format(s->num_rows, "row").text,
                  (unsigned long long)loader_position(s->loader),
                  s->checkpoint ? s->checkpoint : "the start of the data");
        if (s->is_skipped) text_adds(out, "guard.skip_steps: the step does not train on them\n");
    }
    for (bool none = false;;) {
        struct step_row row;
        TRY(step_data_next(s, &row, &none));
        if (none) break;
        if (f->rank >= 0 && row.reader != f->rank) continue;
        TRY(f->json ? write_row(s, &row, f->text, &w) : add_row(s, &row, f->text, out));
        flush_text(out);
    }
    if (f->json) {
        json_end_array(&w);
        json_end_object(&w);
        json_finish(&w);
        text_adds(out, "\n");
    }
    flush_text(out);
    return STATUS_OK;
}

/* Loads the config.toml of a folder of the run, if it has one; *has: it does. */
static enum status load_config_in(struct config *c, const char *folder, const char *run,
                                  const struct arguments *a, bool *has)
{
    char *path = file_join(folder, "config.toml");
    enum status st = STATUS_OK;
    *has = file_exists(path);
    if (*has) {
        config_release(c);
        st = config_load(c, path, a->settings, a->num_settings);
        if (!st) st = config_assign(c, "job.dump_folder", run, "command line");
    }
    free(path);
    return st;
}

/* The configuration of a run, or a configuration file. */
static enum status load_config(struct config *c, const char *run, const struct arguments *a)
{
    bool has;
    if (!file_is_dir(run)) return config_load(c, run, a->settings, a->num_settings);
    TRY(load_config_in(c, run, run, a, &has));
    if (!has)
        FAIL(MISSING,
             "%s has no config.toml: expected the dump folder of a run, or a configuration file",
             run);
    return STATUS_OK;
}

/* A run may have resumed with other settings since: those of a past step are in the first
 * checkpoint from it on. */
static enum status load_config_of_step(struct config *c, const char *run, int64_t step,
                                       const struct arguments *a)
{
    char *folder = NULL;
    bool has;
    TRY(load_config(c, run, a));
    if (!file_is_dir(run)) return STATUS_OK;
    char *checkpoints = file_join(run, c->checkpoint.folder);
    enum status st = step_data_find_checkpoint(checkpoints, step, &folder);
    if (!st && folder) st = load_config_in(c, folder, run, a, &has);
    free(checkpoints), free(folder);
    return st;
}

static enum status show(const struct arguments *a, const struct show_flags *f)
{
    struct config c = {0};
    struct step_data s = {0};
    struct text out = {0};
    int ranks, readers;
    enum status st = load_config_of_step(&c, a->words[1], f->step, a);
    TRY_OUT(st);
    TRY_OUT(preflight_ranks(&c, f->ranks, &ranks));
    TRY_OUT(step_data_open(&s, &c, ranks, f->step));
    readers = (int)s.split.readers;
    if (f->rank >= readers)
        FAIL_OUT(USAGE, "--rank %lld: the run has data-parallel ranks 0 to %d", (long long)f->rank,
                 readers - 1);
    if (f->text && !s.tokenizer)
        FAIL_OUT(CONFIG, "--text requires a tokenizer: set data.tokenizer");
    TRY_OUT(print_rows(&s, f, &out));
out:
    text_release(&out);
    step_data_close(&s);
    config_release(&c);
    return st;
}

static enum status stats(const struct arguments *a, const struct data_stats_flags *f)
{
    const char *first = a->words[1];
    char *toml = file_join(first, "config.toml");
    bool is_config = a->num_words == 2 && (file_has_suffix(first, ".toml") || file_exists(toml));
    struct config c = {0};
    enum status st =
        is_config ? load_config(&c, first, a) : config_load(&c, NULL, a->settings, a->num_settings);
    if (!st && is_config) st = data_stats(&c, NULL, 0, f);
    if (!st && !is_config) st = data_stats(&c, a->words + 1, (size_t)a->num_words - 1, f);
    config_release(&c);
    free(toml);
    return st;
}

enum status command_data(int argc, char **argv)
{
    struct show_flags s = {.step = INT64_MIN, .rank = -1, .ranks = PREFLIGHT_FEWEST_RANKS};
    struct data_stats_flags f = {.svg = ""};
    const struct flag flags[] = {
        {"step", FLAG_INT(1, FLAG_UNLIMITED), &s.step, "show: the training step"},
        {"rank", FLAG_INT(0, FLAG_UNLIMITED), &s.rank,
         "show: only the rows of this data-parallel rank"},
        {"ranks", FLAG_INT(1, PREFLIGHT_MAX_RANKS), &s.ranks,
         "show: number of ranks of the run (default: the product of the parallel degrees)"},
        {"text", FLAG_SWITCH, &s.text, "show: decode the tokens"},
        {"svg", FLAG_FILE, &f.svg, "stats: write the lengths as an SVG image to this file"},
        {"sample", FLAG_INT(1, FLAG_UNLIMITED), &f.sample,
         "stats: read about this many bytes of each source"},
        {"json", FLAG_SWITCH, &s.json, "print one JSON object; show: with the token IDs"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    const char *verb = a.words[0];
    bool shows = !strcmp(verb, "show");
    f.json = s.json;
    if (shows && s.step == INT64_MIN) FAIL(USAGE, "data show: --step N is required");
    return shows ? show(&a, &s) : stats(&a, &f);
}
