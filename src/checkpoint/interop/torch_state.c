// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_state.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/interop/state_json.h"
#include "checkpoint/interop/tensor_slices.h"
#include "formats/torch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER     "optimizer.state."
#define STEP          ".step"
#define MOMENTUM      ".momentum_buffer" /* of torch's SGD and Muon */
#define LLAMERO_TRAIN "llamero.train"

enum { MAX_COUNT_BITS = 53 };

void torch_state_init(struct torch_state *s)
{
    *s = (struct torch_state){.step = -1,
                              .schedule_step = -1,
                              .optimizer_step = -1,
                              .other_step = -1,
                              .tokens_seen = -1,
                              .samples = -1,
                              .iteration = -1};
}

void torch_state_release(struct torch_state *s)
{
    text_release(&s->train), text_release(&s->order_args);
    torch_state_init(s);
}

static bool starts_with(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t len = strlen(name), tail = strlen(suffix);
    return len >= tail && !strcmp(name + len - tail, suffix);
}

static bool is_optimizer_step(const char *name)
{
    return starts_with(name, OPTIMIZER) && strlen(name) > strlen(OPTIMIZER STEP) &&
           ends_with(name, STEP);
}

/* The counter of that name, or NULL. */
static int64_t *counter_of(struct torch_state *s, const char *name)
{
    if (!strcmp(name, "train_state.step")) return &s->step;
    if (!strcmp(name, "train_state.ntokens_seen")) return &s->tokens_seen;
    if (!strcmp(name, "lr_scheduler.last_epoch")) return &s->schedule_step;
    if (is_optimizer_step(name)) return &s->optimizer_step;
    return NULL;
}

bool torch_state_handles(const char *name)
{
    struct torch_state any;
    return counter_of(&any, name) || !strcmp(name, LLAMERO_TRAIN);
}

void torch_state_note(struct torch_state *s, const char *name)
{
    if (starts_with(name, "dataloader.")) s->has_data = true;
    if (starts_with(name, "train_state.global_")) s->has_losses = true;
    struct tensor_name of;
    bool is_moment = tensor_name_kind(name) != TENSOR_WEIGHT || ends_with(name, MOMENTUM) ||
                     (starts_with(name, OPTIMIZER) && !is_optimizer_step(name));
    if (starts_with(name, "optimizer") && is_moment && !s->other_moment[0] &&
        !tensor_name_parse(name, &of))
        snprintf(s->other_moment, sizeof s->other_moment, "%s", name);
}

static bool to_count(double value, int64_t *out)
{
    if (!(value >= 0 && value <= ldexp(1, MAX_COUNT_BITS)) || value > floor(value)) return false;
    *out = (int64_t)value;
    return true;
}

/* Reads a 0-d tensor, or one with a single element. */
static bool read_scalar(const struct torch_tensor *t, int64_t *out)
{
    int32_t small;
    int64_t large = 0;
    float real;
    for (int d = 0; d < t->num_dims; d++)
        if (t->shape[d] != 1) return false;
    if (tensor_slices_supports(t->dtype)) {
        safetensors_to_f32(t->dtype, t->data, 1, &real);
        return to_count((double)real, out);
    }
    if (t->dtype != SAFETENSORS_I64 && t->dtype != SAFETENSORS_I32) return false;
    memcpy(&large, t->data, t->dtype == SAFETENSORS_I64 ? sizeof large : 0);
    memcpy(&small, t->data, sizeof small);
    *out = large = t->dtype == SAFETENSORS_I64 ? large : small;
    return large >= 0 && large <= INT64_C(1) << MAX_COUNT_BITS;
}

/* Reads a count, saved as a tensor or as a Python number. */
static enum status read_count(const struct torch_archive *a, const char *name, int64_t *out)
{
    const struct pickle_value *v = a->pickle.root;
    struct torch_tensors t = {0};
    bool read = false;
    if (v->kind == PICKLE_IS_INT) {
        *out = v->integer;
        read = v->integer >= 0 && v->integer <= INT64_C(1) << MAX_COUNT_BITS;
    } else if (v->kind == PICKLE_IS_FLOAT) {
        read = to_count(v->real, out);
    } else {
        TRY(torch_archive_tensors(a, &t));
        read = t.count == 1 && !t.all[0].name[0] && read_scalar(&t.all[0], out);
        torch_tensors_release(&t);
    }
    if (!read) FAIL(DATA, "%s: expected a non-negative integer", name);
    return STATUS_OK;
}

/* Validates the JSON, which is copied to state.json as it is. */
static enum status read_train(struct torch_state *s, const struct pickle_value *v, const char *name)
{
    struct json *root;
    if (v->kind != PICKLE_IS_STRING) FAIL(DATA, "%s: expected a string", name);
    TRY(json_parse(v->text, v->len, name, &root));
    bool fits = json_is_object(root);
    json_free(root);
    if (!fits) FAIL(DATA, "%s: expected a JSON object", name);
    text_clear(&s->train);
    text_add(&s->train, v->text, v->len);
    return STATUS_OK;
}

static enum status read_item(struct torch_state *s, const char *name, const struct torch_archive *a)
{
    int64_t value = -1, *to = counter_of(s, name);
    if (!to) {
        TRY(read_train(s, a->pickle.root, name));
        return STATUS_OK;
    }
    TRY(read_count(a, name, &value));
    if (to == &s->optimizer_step && *to >= 0 && *to != value)
        s->other_step = value;
    else
        *to = value;
    return STATUS_OK;
}

enum status torch_state_read(struct torch_state *s, const char *name, const unsigned char *bytes,
                             uint64_t size)
{
    struct torch_archive a = {0};
    enum status st = torch_archive_open(&a, bytes, size, name);
    if (!st) st = read_item(s, name, &a);
    torch_archive_close(&a);
    return st;
}

enum status torch_state_finish(struct torch_state *s, const char *path)
{
    if (s->other_step >= 0)
        FAIL(
            UNSUPPORTED,
            "%s: some weights were updated %lld times and others %lld times: load only the weights",
            path, (long long)s->other_step, (long long)s->optimizer_step);
    if (s->step < 0) s->step = s->schedule_step;
    if (s->step < 0) s->step = s->optimizer_step;
    if (s->step < 0)
        FAIL(DATA,
             "%s: found optimizer moments, but neither train_state.step, lr_scheduler.last_epoch "
             "nor an optimizer step",
             path);
    return STATUS_OK;
}

void torch_state_train(const struct torch_state *s, struct text *json)
{
    if (s->train.len) {
        text_add(json, s->train.data, s->train.len);
        return;
    }
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "tokens_seen", s->tokens_seen < 0 ? 0 : s->tokens_seen);
    if (s->samples >= 0) json_write_int(&w, "rows_done", s->samples);
    json_write_int(&w, "skips", 0);
    if (s->optimizer_step >= 0 && s->optimizer_step != s->step)
        json_write_int(&w, "moment_steps", s->optimizer_step);
    if (s->samples >= 0) {
        json_begin_object(&w, "data", JSON_INLINE);
        json_write_int(&w, "consumed_train_samples", s->samples); /* see loader_load */
        if (s->order_args.len) json_write_raw(&w, "args", s->order_args.data);
        json_end_object(&w);
    } else {
        json_write_null(&w, "data");
    }
    json_end_object(&w);
    json_finish(&w);
}

void torch_state_json(const struct torch_state *s, struct text *json)
{
    struct text train = {0};
    torch_state_train(s, &train);
    state_json_write(s->step, train.data, json);
    text_release(&train);
}

enum status torch_state_or_file(const struct torch_state *s, const char *folder,
                                struct json **state)
{
    char *path = file_join(folder, "state.json");
    struct text json = {0};
    enum status st = STATUS_OK;
    *state = NULL;
    if (s->step >= 0) {
        torch_state_json(s, &json);
        st = json_parse(json.data, json.len, folder, state);
    } else if (file_exists(path)) {
        st = json_read(path, 1 << 30, state);
    }
    text_release(&json);
    free(path);
    return st;
}

void torch_state_log(const struct torch_state *s, const char *path, bool with_moments)
{
    struct text line = {0};
    text_addf(&line, "%s: loaded %sstep %lld%s", path,
              with_moments ? "the optimizer's moments of " : "", (long long)s->step,
              with_moments ? "" : " without the optimizer's moments");
    if (s->tokens_seen >= 0) text_addf(&line, ", %lld tokens seen", (long long)s->tokens_seen);
    if (s->samples >= 0) text_addf(&line, ", %lld samples consumed", (long long)s->samples);
    if (s->optimizer_step >= 0 && s->optimizer_step != s->step)
        text_addf(&line, "; its optimizer counts %lld steps, resumes from %lld",
                  (long long)s->optimizer_step, (long long)s->step);
    if (s->schedule_step >= 0 && s->schedule_step != s->step)
        text_addf(&line, "; its lr_scheduler counts %lld steps, resumes from %lld",
                  (long long)s->schedule_step, (long long)s->step);
    if (!s->train.len && s->samples < 0)
        text_addf(&line, "; not loaded: %s%s, so data starts from the beginning",
                  s->has_data ? "the data position (dataloader.*, pickled objects)"
                              : "the data position, which it does not have",
                  s->has_losses ? ", old losses" : "");
    log_line(LOG_INFO, "%s", line.data);
    text_release(&line);
}

enum status torch_state_check_moments(const struct torch_state *s, const char *path)
{
    if (s->other_moment[0])
        FAIL(
            UNSUPPORTED,
            "%s: %s does not belong to AdamW of a Llama, which has exp_avg, exp_avg_sq and step of "
            "each weight; to load without the optimizer, set checkpoint.exclude_from_loading = "
            "[\"optimizer\"], or convert with --model-only",
            path, s->other_moment);
    return STATUS_OK;
}

void torch_state_warn(const struct torch_state *s, const char *path)
{
    if (s->other_moment[0])
        log_line(LOG_WARN,
                 "%s: ignoring the optimizer's moments that are not AdamW's of a Llama's weights, "
                 "such as %s",
                 path, s->other_moment);
    if (s->iteration > 0)
        log_line(LOG_WARN, "%s: found no optimizer moments, so iteration %lld is not resumed", path,
                 (long long)s->iteration);
}
