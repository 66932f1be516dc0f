// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_state.h"

void trainer_state_save(const struct trainer *t, struct json_writer *w)
{
    json_write_int(w, "tokens_seen", t->tokens_seen);
    json_write_int(w, "rows_done", t->rows_done);
    json_write_int(w, "skips", t->skips);
    if (!t->has_float8) return;
    json_write_key(w, "float8");
    float8_save(&t->float8, w);
}

/* A checkpoint without rows_done has full steps. */
static enum status load_rows(struct trainer *t, const struct json *from)
{
    const struct batch_ramp full = {.global = t->ramp.global};
    t->rows_done = batch_ramp_advance(&full, 0, t->steps_done);
    if (!t->steps_done || !json_get(from, "rows_done")) return STATUS_OK;
    return json_get_int(from, "rows_done", 0, INT64_C(1) << 53, &t->rows_done);
}

enum status trainer_state_load(struct trainer *t, const struct json *from)
{
    int64_t max = INT64_C(1) << 53;
    TRY(json_get_int(from, "tokens_seen", 0, max, &t->tokens_seen));
    TRY(load_rows(t, from));
    TRY(json_get_int(from, "skips", 0, max, &t->skips));
    if (t->has_float8) TRY(float8_load(&t->float8, json_get(from, "float8")));
    return STATUS_OK;
}
