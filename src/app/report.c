/* report.c -- writes one HTML page about runs. */
// SPDX-License-Identifier: Apache-2.0
#include "runs/report.h"

#include "app/app.h"
#include "app/arguments.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/terminal_text.h"
#include "infer/text_generation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    "report",
    {{NULL, {USAGE_SOME(FILE, "RUN"), USAGE_FLAGS("[-o FILE] [flags]")}}},
    "Writes a page about runs, from their dump folders: a summary, curves that can be zoomed, the\n"
    "settings that differ, checkpoints, how the runs were started, and the ends of their logs.  "
    "The\n"
    "page is one file that needs no network: it can be mailed, or opened from a disk.\n"
    "With --prompt the newest checkpoint of each run generates text for it.",
};

struct report_flags {
    const char *output;
    struct flag_list prompts;
    int64_t max_tokens;
};

/* A run, and what its model generated. */
struct reported {
    struct run_folder folder;
    struct report_sample *samples;
    size_t num_samples;
};

static void release_reported(struct reported *r)
{
    for (size_t i = 0; i < r->num_samples; i++) free((char *)r->samples[i].text);
    free(r->samples);
    run_folder_close(&r->folder);
}

static enum status generate_samples(struct reported *r, struct generation *g,
                                    const struct report_flags *f)
{
    const struct loaded_model_options o = {
        .path = r->folder.path, .tokenizer = "", .max_tokens = -1};
    struct text_generation t = {0};
    struct text shown = {0};
    enum status st = STATUS_OK;
    TRY_OUT(machine_join(&g->loaded.machine));
    TRY_OUT(loaded_model_open(&g->loaded, &o));
    for (int i = 0; i < f->prompts.count; i++) /* a token is at least a byte; BOS and EOS */
        if (strlen(f->prompts.items[i]) + 2 > g->max_prompt)
            g->max_prompt = strlen(f->prompts.items[i]) + 2;
    for (int i = 0; i < f->prompts.count; i++) {
        TRY_OUT(text_generation_encode(&g->loaded, f->prompts.items[i], &g->ids));
        TRY_OUT(i ? generation_restart(g) : generation_open(g));
        TRY_OUT(text_generation_run(&t, g));
        text_clear(&shown);
        terminal_text_add(&shown, t.bytes.data ? t.bytes.data : "", t.bytes.len, true);
        char *text = heap_string(shown.len ? shown.data : "", shown.len);
        r->samples[r->num_samples++] = (struct report_sample){f->prompts.items[i], text};
    }
out:
    text_generation_release(&t);
    text_release(&shown);
    return st;
}

/* A run whose model generates no text, such as one without a checkpoint, is reported without. */
static void add_samples(struct reported *r, const struct report_flags *f)
{
    struct generation g = {.max_tokens = f->max_tokens,
                           .repeat_penalty = 1,
                           .sampling = {.temperature = 0.8, .top_p = 1}};
    if (!f->prompts.count) return;
    r->samples = heap((size_t)f->prompts.count * sizeof *r->samples);
    enum status st = generate_samples(r, &g, f);
    if (st) log_line(LOG_WARN, "no samples of %s: %s", r->folder.title, status_message());
    generation_release(&g, st);
}

static enum status write_page(const struct reported *all, size_t count, const char *path)
{
    struct text page = {0};
    struct report_run *runs = heap(count * sizeof *runs);
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count; i++)
        runs[i] = (struct report_run){&all[i].folder, all[i].samples, all[i].num_samples};
    report_page(runs, count, clock_wall_s(), &page);
    if (strcmp(path, "-"))
        TRY_OUT(file_write(path, page.data, page.len));
    else
        fwrite(page.data, 1, page.len, stdout);
    if (strcmp(path, "-")) log_line(LOG_INFO, "wrote %s: open it in a browser", path);
out:
    free(runs);
    text_release(&page);
    return st;
}

static enum status report_runs(const struct arguments *a, const struct report_flags *f)
{
    struct reported *all = heap((size_t)a->num_words * sizeof *all);
    size_t count = 0;
    enum status st = STATUS_OK;
    for (int i = 0; i < a->num_words; i++) {
        struct reported *r = &all[count];
        *r = (struct reported){0};
        TRY_OUT(run_folder_open(&r->folder, a->words[i], false));
        count++;
        add_samples(r, f);
    }
    TRY_OUT(write_page(all, count, f->output));
out:
    for (size_t i = 0; i < count; i++) release_reported(&all[i]);
    free(all);
    return st;
}

enum status command_report(int argc, char **argv)
{
    struct report_flags f = {.output = "report.html", .max_tokens = 128};
    const struct flag flags[] = {
        {"output", FLAG_FILE, &f.output, "page to write; -: stdout"},
        {"prompt", FLAG_LIST, &f.prompts, "generate text for this; may be repeated"},
        {"max-tokens", FLAG_INT(1, 1 << 16), &f.max_tokens, "tokens of a text, at most"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    if (arguments_have(&a, flags, "max-tokens") && !f.prompts.count)
        FAIL(USAGE, "--max-tokens requires --prompt");
    signals_catch();
    TRY(report_runs(&a, &f));
    return STATUS_OK;
}
