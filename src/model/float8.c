// SPDX-License-Identifier: Apache-2.0
#include "model/float8.h"

#include "base/log.h"
#include "model/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 16, DIGITS = 8 }; /* sides that devices multiply divide by; digits of an f32 */

static size_t products_of(const struct float8_state *f) { return (size_t)f->blocks * PRODUCTS; }
static size_t tensors_of(const struct float8_state *f) { return products_of(f) * FLOAT8_ROLES; }
static size_t tensor(int block, enum product_id p, enum float8_role role)
{
    return ((size_t)block * PRODUCTS + p) * FLOAT8_ROLES + role;
}
static bool is_delayed(const struct float8_state *f)
{
    return f->delayed[FLOAT8_INPUT] || f->delayed[FLOAT8_WEIGHT] || f->delayed[FLOAT8_GRADIENT];
}

/* --- what is asked for --------------------------------------------------------------------- */

enum status float8_wanted(const struct model_config *m, const struct float8_config *c, bool *on)
{
    *on = c->enable_float8_linear;
    for (size_t i = 0; i < m->converters.count; i++) {
        const char *name = m->converters.items[i];
        if (strcmp(name, "float8") && strcmp(name, "quantize.linear.float8"))
            FAIL(CONFIG, "model.converters has \"%s\": \"float8\" is the only one here", name);
        *on = true;
    }
    if (*on && !strncmp(c->recipe_name, "rowwise", 7))
        FAIL(CONFIG,
             "float8.recipe_name = \"%s\": scales are of whole tensors here; \"tensorwise\" or "
             "\"delayed\"",
             c->recipe_name);
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

static bool is_whole(const struct model_shape *s, enum product_id p)
{
    int Q = s->H * s->K, P = s->G * s->K;
    int narrow = p == PRODUCT_attn_q ? P : p == PRODUCT_attn_out ? Q : s->F;
    return s->D % WHOLE == 0 && narrow % WHOLE == 0 && Q % WHOLE == 0;
}

/* The weights of each product. */
static const struct {
    enum param_id first, last;
} weights[PRODUCTS] = {
    [PRODUCT_attn_q] = {PARAM_attn_q, PARAM_attn_v},
    [PRODUCT_attn_out] = {PARAM_attn_out, PARAM_attn_out},
    [PRODUCT_mlp_gate] = {PARAM_mlp_gate, PARAM_mlp_up},
    [PRODUCT_mlp_down] = {PARAM_mlp_down, PARAM_mlp_down},
};

static enum status choose(struct float8_state *f, const struct float8_config *c,
                          const struct model_shape *s)
{
    for (int block = 0; block < s->L; block++)
        for (enum product_id p = 0; p < PRODUCTS; p++) {
            bool out = is_filtered(c, weights[p].first, block);
            for (enum param_id id = weights[p].first; id <= weights[p].last; id++)
                if (is_filtered(c, id, block) != out)
                    FAIL(CONFIG,
                         "float8.filter_fqns takes some of the weights of block %d that are "
                         "multiplied as one matrix: all of wq, wk, wv, or of w1, w3, or none",
                         block);
            f->chosen[(size_t)block * PRODUCTS + p] = !out && is_whole(s, p);
        }
    return STATUS_OK;
}

static bool delays(const struct float8_config *c, const char *asked)
{
    return !strcmp(strcmp(asked, "auto") ? asked : c->recipe_name, "delayed");
}

enum status float8_init(struct float8_state *f, const struct float8_config *c,
                        const struct model_shape *shape, struct arena *run, struct arena *shared)
{
    *f = (struct float8_state){
        .blocks = shape->L,
        .delayed = {[FLOAT8_INPUT] = delays(c, c->scaling_type_input),
                    [FLOAT8_WEIGHT] = delays(c, c->scaling_type_weight),
                    [FLOAT8_GRADIENT] = delays(c, c->scaling_type_grad_output)},
        .window = (int)c->amax_history_len,
        .newest_only = !strcmp(c->amax_compute_algo, "most_recent"),
        .margin = (int)c->margin};
    size_t kept = is_delayed(f) ? tensors_of(f) : 0;
    f->chosen = heap(products_of(f) * sizeof *f->chosen);
    f->weight_scales = arena_take(run, products_of(f), sizeof *f->weight_scales);
    f->largest = arena_take(run, 1, sizeof *f->largest);
    f->largest_of_part = arena_take(shared, 1, sizeof *f->largest);
    f->met = arena_take(shared, kept, sizeof *f->met);
    f->seen = arena_take(shared, kept, sizeof *f->seen);
    f->scales = arena_take(shared, kept, sizeof *f->scales);
    f->history = arena_take(shared, kept * (size_t)f->window, sizeof *f->history);
    TRY(choose(f, c, shape));
    return STATUS_OK;
}

void float8_release(struct float8_state *f)
{
    free(f->chosen);
    f->chosen = NULL;
}

/* --- scales -------------------------------------------------------------------------------- */

float float8_delayed(float amax, float before, enum float8 format, int margin)
{
    if (!(amax > 0) || !isfinite(amax)) return before;
    float scale = ldexpf(float8_largest(format) / amax, -margin);
    return isinf(scale) ? FLT_MAX : scale;
}

void float8_held(const struct float8_state *f, int block, enum product_id p, enum float8_role role,
                 float **met, const float **scale)
{
    size_t at = tensor(block, p, role);
    bool held = f->delayed[role] && f->met; /* which measuring has not */
    *met = held ? &f->met[at] : NULL;
    *scale = held ? &f->scales[at] : NULL;
}

size_t float8_seen(const struct float8_state *f) { return is_delayed(f) ? tensors_of(f) : 0; }

void float8_begin(struct float8_state *f)
{
    for (size_t i = 0; i < float8_seen(f); i++) f->met[i] = 0;
}

void float8_gather(struct float8_state *f)
{
    for (size_t i = 0; i < float8_seen(f); i++) f->seen[i] = (double)f->met[i];
}

/* What a history comes to. */
static float amax_of(const struct float8_state *f, const float *history, int newest)
{
    float most = 0;
    if (f->newest_only) return history[newest];
    for (int i = 0; i < f->known; i++) most = history[i] > most ? history[i] : most;
    return most;
}

void float8_learn(struct float8_state *f)
{
    int newest = f->next;
    if (!float8_seen(f)) return;
    f->next = (f->next + 1) % f->window;
    if (f->known < f->window) f->known++;
    for (size_t i = 0; i < tensors_of(f); i++) {
        float *history = f->history + i * (size_t)f->window;
        /* Infinity says nothing of how large numbers usually are. */
        history[newest] = isfinite(f->seen[i]) ? (float)f->seen[i] : 0;
        enum float8 format = float8_format((enum float8_role)(i % FLOAT8_ROLES));
        f->scales[i] = float8_delayed(amax_of(f, history, newest), f->scales[i], format, f->margin);
    }
}

/* --- on disk ------------------------------------------------------------------------------- */

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
static int place(const struct float8_state *f, int i)
{
    return (f->next - f->known + i + f->window) % f->window;
}

void float8_save(const struct float8_state *f, struct text *json)
{
    text_addf(json, "{\"known\": %d, \"tensors\": [", f->known);
    for (size_t i = 0; i < float8_seen(f); i++) {
        text_adds(json, i ? ", \"" : "\"");
        write_float(json, f->scales[i]);
        for (int n = 0; n < f->known; n++)
            write_float(json, f->history[i * (size_t)f->window + (size_t)place(f, n)]);
        text_adds(json, "\"");
    }
    text_adds(json, "]}");
}

enum status float8_load(struct float8_state *f, const struct json *saved)
{
    enum { MOST = 1 << 20 };
    int64_t known;
    size_t i = 0;
    if (!float8_seen(f)) return STATUS_OK;
    if (!saved) {
        log_line(LOG_WARN, "the checkpoint has no scales of float8: they begin anew");
        return STATUS_OK;
    }
    TRY(json_get_int(saved, "known", 0, MOST, &known));
    const struct json *tensors = json_get(saved, "tensors");
    if (json_is_array(tensors) && !json_count(tensors)) {
        log_line(LOG_WARN, "the checkpoint's scales of float8 were current ones: histories begin");
        return STATUS_OK;
    }
    if (!json_is_array(tensors) || json_count(tensors) != tensors_of(f))
        FAIL(DATA, "float8: the checkpoint has not the %zu histories of this model", tensors_of(f));
    int skipped = known > f->window ? (int)known - f->window : 0;
    f->known = (int)known - skipped, f->next = f->known % f->window;
    for (const struct json *v = json_first(tensors); v; v = json_next(v), i++) {
        bool good = json_is_string(v) && strlen(json_string(v)) == (size_t)(known + 1) * DIGITS;
        good = good && read_float(json_string(v), &f->scales[i]);
        for (int n = 0; good && n < f->known; n++)
            good = read_float(json_string(v) + (size_t)(1 + skipped + n) * DIGITS,
                              &f->history[i * (size_t)f->window + (size_t)n]);
        if (!good) FAIL(DATA, "float8: history %zu of the checkpoint is damaged", i);
    }
    return STATUS_OK;
}
