// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_state.h"

#include <string.h>

void trainer_state_save(const struct trainer *t, struct json_writer *w)
{
    json_write_int(w, "tokens_seen", t->tokens_seen);
    json_write_int(w, "rows_done", t->rows_done);
    json_write_int(w, "full_step_rows", t->ramp.global);
    json_write_int(w, "skips", t->skips);
    if (t->moments_begin) json_write_int(w, "moment_steps", t->steps_done - t->moments_begin);
    if (t->config->optimizer.name != OPTIMIZER_AdamW)
        json_write_string(w, "optimizer", optimizer_name_word(t->config->optimizer.name));
    if (!t->model.float8) return;
    json_write_key(w, "float8");
    float8_save(&t->float8, w);
}

/* A checkpoint without rows_done has full steps. */
static enum status load_rows(struct trainer *t, const struct json *from)
{
    const struct batch_ramp full = {.global = t->ramp.global};
    t->rows_done = batch_ramp_advance(&full, 0, t->steps_done);
    if (!t->steps_done || !json_get(from, "rows_done")) return STATUS_OK;
    return json_get_int(from, "rows_done", 0, JSON_MAX_INT, &t->rows_done);
}

/* A checkpoint without a name has AdamW's moments. */
static enum status check_optimizer(const struct trainer *t, const struct json *from)
{
    const char *name = optimizer_name_word(t->config->optimizer.name);
    const char *saved = optimizer_name_word(OPTIMIZER_AdamW);
    if (json_get(from, "optimizer")) TRY(json_get_string(from, "optimizer", &saved));
    if (!strcmp(saved, name)) return STATUS_OK;
    bool was_excluded =
        option_list_contains(&t->config->checkpoint.exclude_from_loading, "optimizer");
    FAIL(
        CONFIG,
        "optimizer.name = \"%s\": the checkpoint has the state of %s; set optimizer.name = \"%s\", "
        "or %s to start with empty moments",
        name, saved, saved,
        was_excluded ? "a new job.dump_folder, with this checkpoint as "
                       "checkpoint.initial_load_path (checkpoint.exclude_from_loading had its "
                       "effect on an earlier start)"
                     : "checkpoint.exclude_from_loading = [\"optimizer\"]");
}

enum status trainer_state_load(struct trainer *t, const struct json *from, bool has_moments)
{
    int64_t moment_steps = t->steps_done;
    if (has_moments) TRY(check_optimizer(t, from));
    TRY(json_get_int(from, "tokens_seen", 0, JSON_MAX_INT, &t->tokens_seen));
    TRY(load_rows(t, from));
    TRY(json_get_int(from, "skips", 0, JSON_MAX_INT, &t->skips));
    if (json_get(from, "moment_steps"))
        TRY(json_get_int(from, "moment_steps", 0, JSON_MAX_INT, &moment_steps));
    t->moments_begin = t->steps_done - moment_steps;
    if (t->model.float8) TRY(float8_load(&t->float8, json_get(from, "float8")));
    return STATUS_OK;
}
