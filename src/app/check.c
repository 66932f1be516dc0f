// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/preflight.h"
#include "base/json.h"
#include "train/trainer.h"

#include <stdio.h>

static const char usage[] =
    "check CONFIG [--ranks N] [section.key=value ...]\n\n"
    "Checks that a configuration is consistent, fits the number of ranks, and that its\n"
    "tokenizer and data can be read.  Trains nothing.\n\n"
    "Data on the Hugging Face Hub is not downloaded.  If the cache does not have it, or the Hub\n"
    "cannot be reached, a line on stderr says that it was not checked, and the exit code is 0.";

static void print_json(enum status st, int ranks, bool data_checked)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_bool(&w, "ok", !st);
    json_write_string(&w, "message", st ? status_message() : "");
    json_write_int(&w, "ranks", ranks);
    json_write_bool(&w, "data_checked", data_checked);
    json_end_object(&w);
    json_finish(&w);
    printf("%s\n", out.data);
    text_release(&out);
}

enum status command_check(int argc, char **argv)
{
    bool json = false;
    int64_t requested = -1;
    int ranks = 0;
    const struct flag flags[] = {
        {"ranks", FLAG_INT, &requested,
         "number of ranks of the run (default: the product of the parallel degrees)"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 1, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    struct config c;
    struct preflight p = {0};
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) st = preflight_ranks(&c, requested, &ranks);
    if (!st) st = preflight(&p, &c, ranks);
    if (json) {
        print_json(st, ranks, p.data_checked);
    } else if (!st) {
        printf("%s is valid for %d rank%s: %d blocks of width %d, %lld steps of %lld tokens\n",
               a.words[0], ranks, ranks == 1 ? "" : "s", p.shape.L, p.shape.D,
               (long long)c.training.steps,
               (long long)(c.training.seq_len * trainer_step_rows(&c, &p.mesh)));
    }
    config_release(&c);
    return st;
}
