// SPDX-License-Identifier: Apache-2.0
#include "data/prepare.h"
#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "data/source.h"
#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double rate(const struct prepare_stats *p, double seconds)
{
    return seconds > 0 ? (double)(p->text_bytes - p->text_resumed) / 1e6 / seconds : 0;
}

static void report_progress(void *context, const struct prepare_stats *p)
{
    (void)context;
    progress_set((double)p->text_bytes, (double)p->text_total);
}

static void report(const char *prefix, const struct prepare_stats *p, double seconds, bool json)
{
    if (!json) {
        printf("%s.bin: %s of %d bytes, %s, from %.1f MB at %.1f MB/s\n", prefix,
               counted_format((int64_t)p->tokens, "token").text, p->token_bytes,
               counted_format((int64_t)p->documents, "document").text, (double)p->text_bytes / 1e6,
               rate(p, seconds));
        if (p->bad_records)
            log_line(LOG_WARN,
                     "%llu of %llu records are bad and were skipped; %s.bad_records lists "
                     "them",
                     (unsigned long long)p->bad_records, (unsigned long long)p->records, prefix);
        return;
    }
    struct text t = {0};
    struct json_writer w = {.text = &t};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "output", prefix);
    json_write_int(&w, "documents", (int64_t)p->documents);
    json_write_int(&w, "tokens", (int64_t)p->tokens);
    json_write_int(&w, "text_bytes", (int64_t)p->text_bytes);
    json_write_int(&w, "token_bytes", p->token_bytes);
    json_write_int(&w, "bad_records", (int64_t)p->bad_records);
    json_write_format(&w, "seconds", "%.3f", seconds);
    json_end_object(&w);
    json_finish(&w);
    puts(t.data);
    text_release(&t);
}

static const struct usage usage = {
    "prepare",
    {{NULL, {USAGE_FLAGS("--tokenizer FILE --output PREFIX"), USAGE_SOME(FILE, "SOURCE")}}},
    "Reads text (.txt, .jsonl, either also as .gz or .zst; .parquet, .arrow; quoted glob\n"
    "patterns) or token IDs (columns of .parquet and .arrow, .npy, .bin/.idx, .bin), and\n"
    "writes token IDs in Megatron's format, PREFIX.bin and PREFIX.idx, which training reads\n"
    "without a tokenizer.  PREFIX.sum has their checksums, which `check --deep` and `checkpoint\n"
    "verify` compare.  If interrupted, the same command resumes where it stopped, unless a source "
    "or\n"
    "the tokenizer has changed: see --accept-changed and --force.\n\n"
    "A bad record, such as a line that is not UTF-8 or has no key \"text\", ends the command;\n"
    "with --on-bad-record skip it is skipped and listed in PREFIX.bad_records.",
};

/* The files' names get their suffixes here. */
static enum status check_prefix(const char *output)
{
    size_t len = strlen(output);
    const char *suffix = len > 4 ? output + len - 4 : "";
    if (!strcmp(suffix, ".bin") || !strcmp(suffix, ".idx"))
        FAIL(USAGE, "prepare: --output %s: expected a prefix without \"%s\", such as %.*s", output,
             suffix, (int)(len - 4), output);
    if (!file_name(output)[0])
        FAIL(USAGE,
             "prepare: --output %s: expected a prefix of file names in that folder, such as "
             "%stokens",
             output, output);
    char *folder = file_parent(output);
    enum file_kind kind;
    enum status st = file_find(folder, &kind);
    if (!st && kind == FILE_ABSENT)
        FAIL_OUT(MISSING, "prepare: --output %s: no such folder: %s; create it first (mkdir -p %s)",
                 output, folder, folder);
    if (!st && kind != FILE_FOLDER)
        FAIL_OUT(MISSING, "prepare: --output %s: %s is a file, not a folder", output, folder);
out:
    free(folder);
    return st;
}

enum status command_prepare(int argc, char **argv)
{
    const char *tokenizer = "", *output = "", *pattern = "", *column = "";
    int skips = false;
    int64_t workers = 0;
    double bad_limit = 0.001;
    struct flag_list accepted = {0};
    bool cuts = false, bos = false, no_eod = false, force = false, json = false;
    const struct flag flags[] = {
        {"tokenizer", FLAG_FILE, &tokenizer, "\"bytes\", a .model, a tokenizer.json or its folder"},
        {"output", FLAG_FILE, &output, "PREFIX of the output files"},
        {"column", FLAG_TEXT, &column, "JSON key or column that holds the text (default text)"},
        {"bos", FLAG_SWITCH, &bos,
         "put a begin-of-text token before each document; one that is also end-of-text goes only "
         "there"},
        {"no-eod", FLAG_SWITCH, &no_eod, "put no end-of-text token after each document"},
        {"pattern", FLAG_TEXT, &pattern,
         "pre-tokenizer pattern of a tiktoken file: llama3, gpt2, ..."},
        {"meta-cuts", FLAG_SWITCH, &cuts, "split long text as Meta's tokenizer.py does"},
        {"on-bad-record", FLAG_CHOICE("stop|skip"), &skips,
         "what to do about a record that cannot be used"},
        {"bad-record-limit", FLAG_REAL(0, 1), &bad_limit,
         "skip: fail if more than 10 records and more than this fraction are bad (default; "
         "1: no limit)"},
        {"workers", FLAG_INT(1, 4096), &workers, "threads (default: all cores)"},
        {"accept-changed", FLAG_FILES, &accepted,
         "FILE (or pattern, or tokenizer): resume although it has changed"},
        {"force", FLAG_SWITCH, &force, "overwrite existing output and start from scratch"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    struct source_config sources[64];
    struct tokenizer *t = NULL;
    struct prepare_stats done;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (!tokenizer[0]) FAIL(USAGE, "prepare: --tokenizer FILE is required");
    if (!output[0]) FAIL(USAGE, "prepare: --output PREFIX is required");
    if (file_url_scheme(output))
        FAIL(CONFIG, "prepare: --output %s: expected a local path, got a URL", output);
    TRY(check_prefix(output));
    if (!skips && arguments_have(&a, flags, "bad-record-limit"))
        FAIL(USAGE, "--bad-record-limit requires --on-bad-record skip; a bad record ends the "
                    "command otherwise");
    for (int i = 0; i < a.num_words; i++)
        sources[i] = (struct source_config){.path = a.words[i],
                                            .column = column[0] ? column : "text",
                                            .weight = 1,
                                            .may_be_empty = a.num_words > 1};
    struct tokenizer_config config = {.meta_cuts = cuts, .pattern = pattern};
    TRY(hub_fetch(tokenizer, HUB_TOKENIZER, comm_self()));
    for (int i = 0; i < a.num_words; i++) TRY(hub_fetch(a.words[i], HUB_DATA, comm_self()));
    for (int i = 0; i < a.num_words && column[0]; i++) TRY(source_check_column(&sources[i]));
    TRY(tokenizer_open(&t, tokenizer, &config));
    if (cuts && !encoder_uses_cuts(t)) {
        tokenizer_close(t);
        FAIL(USAGE, "--meta-cuts has no effect with the tokenizer %s, which does not split text",
             tokenizer);
    }
    double begin = clock_monotonic_s();
    struct prepare_request request = {
        .sources = sources,
        .num_sources = (size_t)a.num_words,
        .tokenizer = t,
        .prefix = output,
        .bos = bos,
        .eos = !no_eod,
        .force = force,
        .skips_bad = skips,
        .bad_record_limit = bad_limit,
        .accept_changed = {accepted.items, (size_t)accepted.count},
        .threads = (int)workers,
        .progress = report_progress,
    };
    signals_catch();
    progress_begin("prepare", PROGRESS_BYTES, 0);
    enum status st = prepare_token_files(&request, &done);
    progress_end();
    if (st == STATUS_REQUEUE) {
        log_line(LOG_INFO, "%s", status_message());
        signals_raise_pending();
    }
    st = bad_records_stop(st, "--on-bad-record skip");
    if (!st) report(output, &done, clock_monotonic_s() - begin, json);
    tokenizer_close(t);
    return st;
}
