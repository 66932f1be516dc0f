// SPDX-License-Identifier: Apache-2.0
#include "system/draw_compare.h"

#include "checkpoint/comparison.h"
#include "system/draw_runs.h"
#include "system/runs.h"

enum answer draw_broken(struct text *why, int code, const struct text *err)
{
    text_addf(why, "exit code %d: %s", code, err->data);
    return BROKEN;
}

enum answer draw_same_metrics(const struct draw *d, const char *a, const char *b, bool resumes,
                              struct text *why)
{
    struct text x = {0}, y = {0};
    draw_read_metrics(test_path(d->folder, a), &x), draw_read_metrics(test_path(d->folder, b), &y);
    bool same = y.len && (resumes ? x.len > y.len : x.len == y.len) &&
                !strcmp(x.data + x.len - y.len, y.data);
    if (!same) text_addf(why, "metrics of the first run:\n%sof the second:\n%s", x.data, y.data);
    text_release(&x), text_release(&y);
    return same ? HOLDS : BROKEN;
}

static bool is_state(const char *name)
{
    return strstr(name, ".safetensors") || !strcmp(name, "state.json");
}

enum answer draw_same_state(const struct draw *d, const char *a, const char *b, struct text *why)
{
    struct file_list names;
    enum answer answer = HOLDS;
    int compared = 0;
    const char *from = draw_checkpoint(d, a, d->steps), *to = draw_checkpoint(d, b, d->steps);
    CHECK_STATUS(OK, file_list_dir(&names, from));
    for (size_t i = 0; i < names.count; i++) {
        if (!is_state(names.paths[i])) continue;
        compared++;
        struct text x = {0}, y = {0};
        const char *path = test_path(to, names.paths[i]);
        CHECK_STATUS(OK, file_read(test_path(from, names.paths[i]), UINT64_MAX, &x));
        if (file_exists(path)) CHECK_STATUS(OK, file_read(path, UINT64_MAX, &y));
        if (x.len != y.len || memcmp(x.data, y.data, x.len)) {
            text_addf(why, "%s of step %d differs\n", names.paths[i], d->steps);
            answer = BROKEN;
        }
        text_release(&x), text_release(&y);
    }
    /* Weights, moments and state.json. */
    CHECK(compared >= (draw_has(d, "last_save_model_only=true") ? 1 : 3));
    file_list_release(&names);
    return answer;
}

bool draw_is_float32(const struct draw *d)
{
    const char *last = d->settings.data, *key = "mixed_precision_param=";
    for (const char *at = last; (at = strstr(at, key));) last = at += strlen(key);
    /* Moments and gradients may be narrower. */
    bool is_narrow = draw_has(d, "gradient_dtype=bfloat16") ||
                     draw_has(d, "state_dtype=bfloat16") || draw_has(d, "state_dtype=int8");
    return !strncmp(last, "float32", 7) && !is_narrow;
}

/* The largest relative difference of the values of a key in the metrics of two runs, of which the
 * second may have resumed; steps: of so many; 0: of all. */
static double max_difference(const char *a, const char *b, const char *key, int steps)
{
    struct text x = {0}, y = {0};
    double most = 0;
    int lines = 0;
    draw_read_metrics(a, &x), draw_read_metrics(b, &y);
    char *begin = heap_string(y.data, strcspn(y.data, "l")); /* step N */
    const char *p = strstr(x.data, begin), *q = y.data;
    for (; p && (!steps || lines < steps) && (p = strstr(p, key)) && (q = strstr(q, key));
         lines++) {
        p += strlen(key), q += strlen(key);
        double off = fabs(strtod(p, NULL) / strtod(q, NULL) - 1);
        if (!(off <= most)) most = isnan(off) ? INFINITY : off;
    }
    if ((p && !steps) || !lines) most = INFINITY;
    free(begin);
    text_release(&x), text_release(&y);
    return most;
}

/* Of a projection or norm of q or k: vanishes where tokens only see themselves, as that of the bias
 * of k does without RoPE. */
static bool can_vanish(const struct difference *x)
{
    return strstr(x->name, ".self_attn.q_") || strstr(x->name, ".self_attn.k_");
}

/* The first moments after step 1 are its gradients, except for one factor.  Of gradients that
 * vanish, an element's rounding error is some 1e-9. */
static double max_gradient_difference(const struct draw *d, const char *a, const char *b)
{
    struct comparison c;
    double most = 0;
    CHECK_STATUS(OK, comparison_make(&c, draw_checkpoint(d, a, 1), draw_checkpoint(d, b, 1)));
    for (size_t i = 0; i < c.count; i++) {
        const struct difference *x = &c.all[i];
        if (!strstr(x->name, "exp_avg") || strstr(x->name, "exp_avg_sq")) continue;
        double off = x->kind == DIFFERENCE_NUMBERS ? x->relative : INFINITY;
        if (x->kind == DIFFERENCE_NUMBERS && can_vanish(x) && x->most < 1e-8) off = 0;
        if (!(off <= most)) most = isnan(off) ? INFINITY : off;
    }
    comparison_release(&c);
    return most;
}

/* In float32 layouts only add in another order: the error of a sum is some 2^-24 of the root of its
 * squares, and 2e-5 allows for cancellation in the gradient of a tensor (5e-7 is common).  Steps
 * amplify it: after some, with initial weights of 0.3, norms differed by up to 1.9e-5.  In bfloat16
 * partial sums, which are rounded to 2^-9, differ: with these weights norms by up to 2.8e-2, and
 * losses by up to 2.8e-3. */
const struct draw_limits draw_in_float32 = {2e-6, 1e-4, 2e-5, 0},
                         draw_in_bfloat16 = {4e-3, 5e-2, 0, 0}, draw_in_float8 = {1e-2, 0.25, 0, 0};

const struct draw_limits *draw_limits(const struct draw *d)
{
    /* Few have a checkpoint of step 1. */
    static const struct draw_limits in_float32 = {2e-6, 1e-4, 0, 0};
    if (draw_has(d, "float8")) return &draw_in_float8;
    return draw_is_float32(d) ? &in_float32 : &draw_in_bfloat16;
}

enum answer draw_close(const struct draw *d, const char *a, const char *b,
                       const struct draw_limits *most, struct text *why)
{
    const char *first = test_path(d->folder, a), *second = test_path(d->folder, b);
    double loss = max_difference(first, second, " loss ", 0),
           norm = max_difference(first, second, " grad_norm ", most->norm_steps),
           gradient = most->gradient > 0 ? max_gradient_difference(d, a, b) : 0;
    text_addf(why, "losses differ by %g, norms by %g, gradients by %g\n", loss, norm, gradient);
    bool is_close = loss <= most->loss && norm <= most->norm && gradient <= most->gradient;
    return is_close ? HOLDS : BROKEN;
}
