// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/preflight.h"
#include "base/file.h"
#include "train/trainer.h"

#include <stdio.h>

enum status command_check(int argc, char **argv)
{
    bool json = false;
    int64_t ranks = 1;
    const struct flag flags[] = {
        {"ranks", FLAG_INT, &ranks, "ranks the run will have (default 1)"},
        {"json", FLAG_SWITCH, &json, "print one JSON object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "check CONFIG [--ranks N] [section.key=value ...]\n\n"
        "Checks a configuration against itself, a number of ranks, its tokenizer and "
        "its data.\nTrains nothing.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    if (ranks < 1 || ranks > 1 << 24)
        FAIL(USAGE, "--ranks: %lld is not positive", (long long)ranks);
    struct config c;
    struct preflight p;
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) st = preflight(&p, &c, (int)ranks);
    if (json) {
        struct text out = {0};
        text_addf(&out, "{\"ok\": %s, \"message\": ", st ? "false" : "true");
        json_quote(&out, st ? status_message() : "");
        printf("%s}\n", out.data);
        text_release(&out);
    } else if (!st) {
        printf("%s is fine: %d blocks of width %d, %lld steps of %lld tokens\n", a.words[0],
               p.shape.L, p.shape.D, (long long)c.training.steps,
               (long long)(c.training.seq_len * trainer_step_rows(&c, &p.mesh)));
    }
    config_release(&c);
    return st;
}
