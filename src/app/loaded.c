// SPDX-License-Identifier: Apache-2.0
#include "app/loaded.h"

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "parallel/plan.h"

#include <stdlib.h>
#include <string.h>

enum status loaded_folder(const char *path, char **folder)
{
    char *config = file_join(path, "config.json"), *below = file_join(path, "checkpoint");
    enum status st = STATUS_OK;
    *folder = NULL;
    if (!file_is_dir(path)) FAIL_OUT(MISSING, "%s: no such folder", path);
    if (file_exists(config))
        *folder = heap_string(path, strlen(path));
    else
        TRY_OUT(checkpoint_find(file_is_dir(below) ? below : path, INT64_MAX, NULL, folder));
    if (!*folder)
        FAIL_OUT(MISSING, "%s: neither a Hugging Face folder, a checkpoint nor a run with one",
                 path);
out:
    free(config);
    free(below);
    return st;
}

/* The run's own configuration where the checkpoint has it, with the settings given now. */
static enum status open_config(struct loaded *l, const char *const *settings, int num_settings)
{
    char *toml = file_join(l->folder, "config.toml");
    enum status st =
        config_load(&l->config, file_exists(toml) ? toml : NULL, settings, num_settings);
    free(toml);
    l->config_is_open = true;
    return st;
}

static enum status load_weights(struct loaded *l, const struct model_shape *shape, int max_tokens)
{
    bool f32 = !strcmp(l->config.training.mixed_precision_param, "float32");
    struct model *m = &l->model;
    void *weights = NULL;
    for (int pass = 0; pass < 2; pass++) { /* measure, then take */
        TRY(model_init(m, shape, max_tokens, 1, &l->run));
        size_t n = m->layout.elements;
        weights = arena_take(&l->run, n, dtype_bytes(f32 ? F32 : BF16));
        if (l->run.overflow) FAIL(DATA, "%s: the model fits into no memory", l->folder);
        m->weights = weights;
        if (pass) break;
        size_t bytes = l->run.used;
        model_release(m);
        TRY(arena_init(&l->run, bytes));
    }
    m->ops = l->machine.ops, m->plan = plan_alone(), m->on = l->machine.on;
    m->dtype = f32 ? F32 : BF16;
    struct pieces whole;
    pieces_init(&whole, &m->layout, 0, 1);
    struct checkpoint_state state = {.shape = &m->shape, .layout = &m->layout, .pieces = &whole};
    enum status st = checkpoint_load_weights(l->folder, &state, m->dtype, weights);
    pieces_release(&whole);
    TRY(st);
    return STATUS_OK;
}

enum status loaded_open(struct loaded *l, const char *path, const char *tokenizer,
                        const char *const *settings, int num_settings, int max_tokens)
{
    struct model_shape shape;
    *l = (struct loaded){0};
    TRY(loaded_folder(path, &l->folder));
    TRY(open_config(l, settings, num_settings));
    TRY(tokenizer_open(&l->tokenizer, tokenizer[0] ? tokenizer : l->folder, &l->config.tokenizer));
    TRY(checkpoint_read_shape(l->folder, &shape));
    if (tokenizer_vocab_size(l->tokenizer) > shape.V)
        FAIL(CONFIG, "%s: the tokenizer has %d tokens, the model %d", tokenizer_path(l->tokenizer),
             tokenizer_vocab_size(l->tokenizer), shape.V);
    TRY(machine_open(&l->machine, &l->config.device));
    TRY(load_weights(l, &shape, max_tokens ? max_tokens : (int)l->config.training.seq_len));
    return STATUS_OK;
}

void loaded_close(struct loaded *l)
{
    model_release(&l->model);
    arena_release(&l->step);
    arena_release(&l->run);
    if (l->machine.on) arena_release(&l->machine.on->scratch);
    machine_close(&l->machine);
    tokenizer_close(l->tokenizer);
    if (l->config_is_open) config_release(&l->config);
    free(l->folder);
}

enum status loaded_arena(struct loaded *l, enum status (*forward)(void *context), void *context)
{
    struct queue *on = l->machine.on;
    arena_release(&on->scratch);
    arena_release(&l->step);
    on->measuring = true;
    enum status st = forward(context);
    on->measuring = false;
    TRY(st);
    size_t step = l->step.peak, scratch = on->scratch.peak;
    TRY(arena_init(&l->step, step));
    TRY(arena_init(&on->scratch, scratch));
    return STATUS_OK;
}
