// SPDX-License-Identifier: Apache-2.0
#include "model/float8.h"

#include "base/log.h"
#include "model/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* GPUs multiply FP8 matrices whose sides are multiples of 16; hexadecimal digits of an f32. */
enum { FLOAT8_MULTIPLE = 16, DIGITS = 8 };

static size_t num_matmuls(const struct float8_state *f) { return (size_t)f->blocks * MATMUL_COUNT; }
static size_t num_tensors(const struct float8_state *f) { return num_matmuls(f) * FLOAT8_ROLES; }
static size_t tensor_index(int block, enum matmul_id id, enum float8_role role)
{
    return ((size_t)block * MATMUL_COUNT + id) * FLOAT8_ROLES + role;
}
static bool is_delayed(const struct float8_state *f)
{
    return f->delayed[FLOAT8_INPUT] || f->delayed[FLOAT8_WEIGHT] || f->delayed[FLOAT8_GRADIENT];
}

/* --- configuration --- */

enum status float8_resolve(const struct model_config *m, const struct float8_config *c,
                           bool *enabled)
{
    *enabled = c->enable_float8_linear;
    for (size_t i = 0; i < m->converters.count; i++) {
        const char *name = m->converters.items[i];
        if (strcmp(name, "float8") && strcmp(name, "quantize.linear.float8"))
            FAIL(CONFIG, "model.converters: \"%s\" is not supported; expected \"float8\"", name);
        *enabled = true;
    }
    bool rowwise = c->recipe_name == FLOAT8_RECIPE_rowwise ||
                   c->recipe_name == FLOAT8_RECIPE_rowwise_with_gw_hp;
    if (*enabled && rowwise)
        FAIL(CONFIG,
             "float8.recipe_name = \"%s\": rowwise scaling is not supported; use \"tensorwise\" or "
             "\"delayed\"",
             float8_recipe_word(c->recipe_name));
    return STATUS_OK;
}

static bool is_filtered(const struct float8_config *c, enum param_id id, int block)
{
    char name[96];
    snprintf(name, sizeof name, params[id].name, block);
    for (size_t i = 0; i < c->filter_fqns.count; i++)
        if (strstr(name, c->filter_fqns.items[i])) return true;
    return false;
}

static bool has_float8_sizes(const struct model_shape *s, enum matmul_id p)
{
    int Q = s->H * s->K, P = s->G * s->K;
    int other = p == MATMUL_attn_q ? P : p == MATMUL_attn_out ? Q : s->F;
    return s->D % FLOAT8_MULTIPLE == 0 && other % FLOAT8_MULTIPLE == 0 && Q % FLOAT8_MULTIPLE == 0;
}

/* The weights that each matrix multiply takes as one matrix. */
static const struct {
    enum param_id first, last;
} weights[MATMUL_COUNT] = {
    [MATMUL_attn_q] = {PARAM_attn_q, PARAM_attn_v},
    [MATMUL_attn_out] = {PARAM_attn_out, PARAM_attn_out},
    [MATMUL_mlp_gate] = {PARAM_mlp_gate, PARAM_mlp_up},
    [MATMUL_mlp_down] = {PARAM_mlp_down, PARAM_mlp_down},
};

static enum status choose_matmuls(struct float8_state *f, const struct float8_config *c,
                                  const struct model_shape *s)
{
    for (int block = 0; block < s->L; block++)
        for (enum matmul_id p = 0; p < MATMUL_COUNT; p++) {
            bool filtered = is_filtered(c, weights[p].first, block);
            for (enum param_id id = weights[p].first; id <= weights[p].last; id++)
                if (is_filtered(c, id, block) != filtered)
                    FAIL(CONFIG,
                         "float8.filter_fqns matches only some weights of block %d that form one "
                         "matrix: match all or none of wq, wk, wv, and of w1, w3",
                         block);
            f->enabled[(size_t)block * MATMUL_COUNT + p] = !filtered && has_float8_sizes(s, p);
        }
    return STATUS_OK;
}

/* `type` is of enum float8_scaling; auto follows recipe_name. */
static bool is_delayed_type(const struct float8_config *c, int type)
{
    if (type == FLOAT8_SCALING_auto) return c->recipe_name == FLOAT8_RECIPE_delayed;
    return type == FLOAT8_SCALING_delayed;
}

enum status float8_init(struct float8_state *f, const struct float8_config *c,
                        const struct model_shape *shape, struct arena *run, struct arena *shared)
{
    *f = (struct float8_state){
        .blocks = shape->L,
        .delayed = {[FLOAT8_INPUT] = is_delayed_type(c, (int)c->scaling_type_input),
                    [FLOAT8_WEIGHT] = is_delayed_type(c, c->scaling_type_weight),
                    [FLOAT8_GRADIENT] = is_delayed_type(c, c->scaling_type_grad_output)},
        .history_len = (int)c->amax_history_len,
        .most_recent = c->amax_compute_algo == AMAX_ALGO_most_recent,
        .margin = (int)c->margin};
    size_t count = is_delayed(f) ? num_tensors(f) : 0;
    f->enabled = heap(num_matmuls(f) * sizeof *f->enabled);
    f->has_weight_scale = heap(num_matmuls(f) * sizeof *f->has_weight_scale);
    f->weight_scales = arena_alloc(run, num_matmuls(f), sizeof *f->weight_scales);
    f->amax = arena_alloc(run, (size_t)shape->H, sizeof *f->amax);
    f->local_amax = arena_alloc(shared, count, sizeof *f->local_amax);
    f->global_amax = arena_alloc(shared, count, sizeof *f->global_amax);
    f->scales = arena_alloc(shared, count, sizeof *f->scales);
    f->history = arena_alloc(shared, count * (size_t)f->history_len, sizeof *f->history);
    f->device.max_parts = shape->H; /* at most a part a head */
    float8_device_alloc(&f->device, num_tensors(f), (size_t)FLOAT8_ROLES * MATMUL_COUNT, run,
                        shared);
    TRY(choose_matmuls(f, c, shape));
    return STATUS_OK;
}

void float8_release(struct float8_state *f)
{
    free(f->enabled), free(f->has_weight_scale);
    f->enabled = f->has_weight_scale = NULL;
}

/* --- scales --- */

float float8_scale_from_amax(float amax, float old_scale, enum float8 format, int margin)
{
    if (!(amax > 0) || !isfinite(amax)) return old_scale;
    float scale = ldexpf(float8_max(format) / amax, -margin);
    return isinf(scale) ? FLT_MAX : scale;
}

struct float8_delayed float8_delayed_scale(const struct float8_state *f, int block,
                                           enum matmul_id id, enum float8_role role)
{
    size_t i = tensor_index(block, id, role);
    bool has_state = f->delayed[role] && f->local_amax; /* NULL in a sizing pass */
    return has_state ? (struct float8_delayed){&f->local_amax[i], &f->scales[i]}
                     : (struct float8_delayed){NULL, NULL};
}

size_t float8_num_amax(const struct float8_state *f) { return is_delayed(f) ? num_tensors(f) : 0; }

bool float8_has_block(const struct float8_state *f, int block)
{
    for (int id = 0; id < MATMUL_COUNT; id++)
        if (f->enabled[(size_t)block * MATMUL_COUNT + (size_t)id]) return true;
    return false;
}

static void clear_amax(struct float8_state *f, enum float8_role role)
{
    if (!f->local_amax) return; /* a sizing pass */
    for (size_t i = role; i < float8_num_amax(f); i += FLOAT8_ROLES) f->local_amax[i] = 0;
}

void float8_begin_step(struct float8_state *f)
{
    clear_amax(f, FLOAT8_INPUT);
    clear_amax(f, FLOAT8_GRADIENT);
    f->device.starts_step = true;
}

void float8_forget_weights(struct float8_state *f)
{
    memset(f->has_weight_scale, 0, num_matmuls(f) * sizeof *f->has_weight_scale);
    clear_amax(f, FLOAT8_WEIGHT);
}

enum status float8_collect_amax(struct float8_state *f)
{
    size_t count = float8_num_amax(f);
    if (f->device.queue && count) TRY(float8_device_collect(&f->device, f->local_amax, count));
    for (size_t i = 0; i < count; i++) f->global_amax[i] = (double)f->local_amax[i];
    return STATUS_OK;
}

/* --- native FP8 --- */

/* Pass amaxes: of input and weight of each matrix multiply, then of all gradients. */
static size_t pass_index(const struct float8_state *f, size_t matmul, enum float8_role role)
{
    return role == FLOAT8_GRADIENT ? 2 * num_matmuls(f) + matmul : 2 * matmul + (size_t)role;
}

enum status float8_begin_pass(struct float8_state *f, enum float8_role role, int begin, int end)
{
    size_t first = pass_index(f, (size_t)begin * MATMUL_COUNT, role);
    size_t last = pass_index(f, (size_t)end * MATMUL_COUNT, role);
    if (!f->device.queue || begin >= end) return STATUS_OK;
    return float8_device_clear_pass(&f->device, first, last - first);
}

struct float8_slot float8_slot_of(const struct float8_state *f, int block, enum matmul_id id,
                                  enum float8_role role)
{
    const struct float8_device *d = &f->device;
    size_t matmul = (size_t)block * MATMUL_COUNT + id, i = tensor_index(block, id, role);
    struct float8_delayed delayed = float8_delayed_scale(f, block, id, role);
    if (!d->unsaved) return (struct float8_slot){NULL, NULL, NULL, NULL}; /* a sizing pass */
    float *pass_amax = d->pass_amax + pass_index(f, matmul, role) * (size_t)d->max_parts;
    return (struct float8_slot){pass_amax, &d->step_amax_MR[i],
                                delayed.scale && *delayed.scale > 0 ? &d->scales_MR[i] : NULL,
                                &d->unsaved[(size_t)role * MATMUL_COUNT + id]};
}

/* The amax that a history stands for. */
static float history_amax(const struct float8_state *f, const float *history, int newest)
{
    float max = 0;
    if (f->most_recent) return history[newest];
    for (int i = 0; i < f->num_steps; i++) max = history[i] > max ? history[i] : max;
    return max;
}

void float8_update_scales(struct float8_state *f)
{
    int newest = f->next;
    float8_forget_weights(f);
    if (!float8_num_amax(f)) return;
    f->next = (f->next + 1) % f->history_len;
    if (f->num_steps < f->history_len) f->num_steps++;
    for (size_t i = 0; i < num_tensors(f); i++) {
        float *history = f->history + i * (size_t)f->history_len;
        /* An infinite amax does not predict later steps: record none. */
        history[newest] = isfinite(f->global_amax[i]) ? (float)f->global_amax[i] : 0;
        enum float8 format = float8_format((enum float8_role)(i % FLOAT8_ROLES));
        f->scales[i] = float8_scale_from_amax(history_amax(f, history, newest), f->scales[i],
                                              format, f->margin);
    }
    float8_device_set_scales(&f->device, f->scales, num_tensors(f));
}

/* --- checkpoint --- */

static void write_float(struct text *t, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    text_addf(t, "%08x", bits);
}

static bool read_float(const char *digits, float *x)
{
    uint32_t bits = 0;
    for (int i = 0; i < DIGITS; i++) {
        const char *all = "0123456789abcdef", *at = digits[i] ? strchr(all, digits[i]) : NULL;
        if (!at) return false;
        bits = bits << 4 | (uint32_t)(at - all);
    }
    memcpy(x, &bits, sizeof *x);
    return isfinite(*x) && *x >= 0;
}

/* The i-th oldest entry of a ring. */
static int ring_index(const struct float8_state *f, int i)
{
    return (f->next - f->num_steps + i + f->history_len) % f->history_len;
}

void float8_save(const struct float8_state *f, struct json_writer *w)
{
    struct text digits = {0};
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_int(w, "known", f->num_steps);
    json_begin_array(w, "tensors", JSON_INLINE);
    for (size_t i = 0; i < float8_num_amax(f); i++) {
        text_clear(&digits);
        write_float(&digits, f->scales[i]);
        for (int n = 0; n < f->num_steps; n++)
            write_float(&digits, f->history[i * (size_t)f->history_len + (size_t)ring_index(f, n)]);
        json_write_string(w, NULL, digits.data);
    }
    json_end_array(w);
    json_end_object(w);
    text_release(&digits);
}

enum status float8_load(struct float8_state *f, const struct json *saved)
{
    enum { MAX_STEPS = 1 << 20 };
    int64_t num_steps;
    size_t i = 0;
    if (!float8_num_amax(f)) return STATUS_OK;
    if (!saved) {
        log_line(LOG_WARN, "the checkpoint has no FP8 scales: they are reinitialized");
        return STATUS_OK;
    }
    TRY(json_get_int(saved, "known", 0, MAX_STEPS, &num_steps));
    const struct json *tensors = json_get(saved, "tensors");
    if (json_is_array(tensors) && !json_count(tensors)) {
        log_line(LOG_WARN, "the checkpoint used current FP8 scaling: amax histories start empty");
        return STATUS_OK;
    }
    if (!json_is_array(tensors) || json_count(tensors) != num_tensors(f))
        FAIL(DATA, "float8: expected %zu amax histories in the checkpoint", num_tensors(f));
    int dropped = num_steps > f->history_len ? (int)num_steps - f->history_len : 0;
    f->num_steps = (int)num_steps - dropped, f->next = f->num_steps % f->history_len;
    for (const struct json *v = json_first(tensors); v; v = json_next(v), i++) {
        bool valid =
            json_is_string(v) && strlen(json_string(v)) == (size_t)(num_steps + 1) * DIGITS;
        valid = valid && read_float(json_string(v), &f->scales[i]);
        for (int n = 0; valid && n < f->num_steps; n++)
            valid = read_float(json_string(v) + (size_t)(1 + dropped + n) * DIGITS,
                               &f->history[i * (size_t)f->history_len + (size_t)n]);
        if (!valid) FAIL(DATA, "float8: amax history %zu of the checkpoint is damaged", i);
    }
    float8_device_set_scales(&f->device, f->scales, num_tensors(f));
    return STATUS_OK;
}
