// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/preflight.h"
#include "base/file.h"
#include "base/json.h"
#include "train/trainer.h"

#include <stdio.h>

static const char usage[] =
    "check CONFIG [--ranks N] [section.key=value ...]\n\n"
    "Checks that a configuration is consistent, fits the number of ranks, and that its\n"
    "tokenizer and data can be read.  Trains nothing.";

enum status command_check(int argc, char **argv)
{
    bool json = false;
    int64_t ranks = 1;
    const struct flag flags[] = {
        {"ranks", FLAG_INT, &ranks, "number of ranks of the run (default 1)"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){usage, flags, 1, 1}, argc, argv));
    if (a.help) return STATUS_OK;
    if (ranks < 1 || ranks > 1 << 24)
        FAIL(USAGE, "--ranks: must be between 1 and 2^24, is %lld", (long long)ranks);
    struct config c;
    struct preflight p;
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) st = preflight(&p, &c, (int)ranks);
    if (json) {
        struct text out = {0};
        struct json_writer w = {.text = &out};
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_bool(&w, "ok", !st);
        json_write_string(&w, "message", st ? status_message() : "");
        json_end_object(&w);
        json_finish(&w);
        puts(out.data);
        text_release(&out);
    } else if (!st) {
        printf("%s is valid: %d blocks of width %d, %lld steps of %lld tokens\n", a.words[0],
               p.shape.L, p.shape.D, (long long)c.training.steps,
               (long long)(c.training.seq_len * trainer_step_rows(&c, &p.mesh)));
    }
    config_release(&c);
    return st;
}
