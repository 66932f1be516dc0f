// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "base/file.h"
#include "config/config.h"
#include "train/run.h"
#include "train/trainer.h"

#include <stdio.h>

/* Tokenizer, shape and files, as far as they can be looked at without training. */
static enum status look(const struct config *c, const struct mesh *mesh, struct model_shape *shape)
{
    struct tokenizer *t = NULL;
    struct source_config one;
    struct data_config d = run_data_config(c, &one);
    enum status st = STATUS_OK;
    const char *path = run_tokenizer_path(c);
    if (path[0]) TRY_OUT(tokenizer_open(&t, path, &c->tokenizer));
    TRY_OUT(model_shape_resolve(shape, &c->model, t ? tokenizer_vocab_size(t) : 0));
    TRY_OUT(config_fit(c, shape, mesh));
    struct loader *loader = NULL;
    struct loader_options o = run_loader_options(c, mesh, &d, t, shape->V);
    o.rows_ahead = 0;
    TRY_OUT(loader_open(&loader, &o));
    loader_close(loader);
out:
    tokenizer_close(t);
    return st;
}

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
    struct model_shape shape = {0};
    struct mesh mesh;
    enum status st = config_load(&c, a.words[0], a.settings, a.num_settings);
    if (!st) st = config_check(&c, (int)ranks);
    if (!st) st = mesh_resolve(&mesh, &c.parallelism, 0, (int)ranks);
    if (!st) st = look(&c, &mesh, &shape);
    if (json) {
        struct text out = {0};
        text_addf(&out, "{\"ok\": %s, \"message\": ", st ? "false" : "true");
        json_quote(&out, st ? status_message() : "");
        printf("%s}\n", out.data);
        text_release(&out);
    } else if (!st) {
        printf("%s is fine: %d blocks of width %d, %lld steps of %lld tokens\n", a.words[0],
               shape.L, shape.D, (long long)c.training.steps,
               (long long)(c.training.seq_len * trainer_rows(&c, &mesh) * trainer_readers(&mesh)));
    }
    config_release(&c);
    return st;
}
