// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <math.h>

enum status rope(const struct ops *ops, const struct rope *a, const struct rope_io *io,
                 struct queue *queue)
{
    if (a->B < 1 || a->T < 1 || a->H < 1 || a->J < 1 || a->K < 2 * a->J)
        FAIL(SHAPE,
             "rope: B %d, T %d, H %d, K %d, J %d: each must be at least 1, and K at least 2 J",
             a->B, a->T, a->H, a->K, a->J);
    if (a->first < 0 || a->stride < (size_t)a->H * (size_t)a->K)
        FAIL(
            SHAPE,
            "rope: first position %d must not be negative, and stride %zu not below %d heads of %d",
            a->first, a->stride, a->H, a->K);
    BUG_IF(a->is_packed && io->positions_BT);
    OP_RUN(rope);
}

const char *rope_method_name(const struct rope_scaling *s)
{
    static const char *const names[] = {
#define ROPE_METHOD(name) #name,
        ROPE_METHODS(ROPE_METHOD)
#undef ROPE_METHOD
    };
    return s->factor > 0 ? names[s->method] : "default";
}

bool rope_scaling_equals(const struct rope_scaling *a, const struct rope_scaling *b)
{
    double off = fabs(a->factor - b->factor) +
                 fabs(a->low_frequency_factor - b->low_frequency_factor) +
                 fabs(a->high_frequency_factor - b->high_frequency_factor) +
                 fabs(a->beta_fast - b->beta_fast) + fabs(a->beta_slow - b->beta_slow) +
                 fabs(rope_attention_factor(a) - rope_attention_factor(b));
    for (int j = 0; j < a->num_factors && j < b->num_factors; j++)
        off += fabs(a->short_factors[j] - b->short_factors[j]) +
               fabs(a->long_factors[j] - b->long_factors[j]);
    return off <= 0 && a->original_context == b->original_context &&
           a->num_factors == b->num_factors && (a->method == b->method || a->factor <= 0);
}

double rope_attention_factor(const struct rope_scaling *s)
{
    if (!(s->factor > 0) || s->method < ROPE_yarn) return 1;
    if (s->attention_factor > 0) return s->attention_factor;
    if (s->method == ROPE_yarn) return 1 + log(s->factor) / 10;
    return s->factor > 1 ? sqrt(1 + log(s->factor) / log(s->original_context)) : 1;
}

static enum status check_longrope(const struct rope_scaling *s)
{
    for (int j = 0; j < s->num_factors; j++)
        if (!(s->short_factors[j] > 0 && s->long_factors[j] > 0) ||
            !isfinite(s->short_factors[j]) || !isfinite(s->long_factors[j]))
            FAIL(CONFIG,
                 "model.rope_short_factor[%d] = %g, model.rope_long_factor[%d] = %g: both "
                 "must be above 0",
                 j, s->short_factors[j], j, s->long_factors[j]);
    return STATUS_OK;
}

static enum status check_yarn(const struct rope_scaling *s)
{
    if (!(s->beta_slow > 0) || !(s->beta_fast >= s->beta_slow) || !isfinite(s->beta_fast))
        FAIL(CONFIG,
             "model.rope_beta_fast = %g, model.rope_beta_slow = %g: rope_beta_slow must be above 0 "
             "and at most rope_beta_fast",
             s->beta_fast, s->beta_slow);
    return STATUS_OK;
}

static enum status check_llama3(const struct rope_scaling *s)
{
    double low = s->low_frequency_factor, high = s->high_frequency_factor;
    if (!(low > 0) || !(high > low) || !isfinite(high))
        FAIL(CONFIG,
             "model.rope_low_freq_factor = %g, model.rope_high_freq_factor = %g: "
             "rope_low_freq_factor must be above 0 and less than rope_high_freq_factor",
             low, high);
    return STATUS_OK;
}

enum status rope_scaling_check(const struct rope_scaling *s)
{
    if (s->factor == 0) return STATUS_OK;
    const char *name = rope_method_name(s);
    const int least = s->method == ROPE_linear ? 0 : s->method == ROPE_longrope ? 2 : 1;
    if (!(s->factor >= 1) || !isfinite(s->factor))
        FAIL(CONFIG, "model.rope_factor = %g: must be at least 1 with model.rope_scaling = \"%s\"",
             s->factor, name);
    if (s->original_context < least)
        FAIL(CONFIG,
             "model.rope_original_context = %d: must be at least %d with model.rope_scaling = "
             "\"%s\"",
             s->original_context, least, name);
    if (!(s->attention_factor >= 0 && s->attention_factor <= 1e6))
        FAIL(CONFIG, "model.rope_attention_factor = %g: must be between 0 and 1000000",
             s->attention_factor);
    if (s->method == ROPE_llama3) TRY(check_llama3(s));
    if (s->method == ROPE_yarn) TRY(check_yarn(s));
    if (s->method == ROPE_longrope) TRY(check_longrope(s));
    return STATUS_OK;
}

static const double PI = 3.14159265358979323846;

static double llama3_frequency(double frequency, const struct rope_scaling *s)
{
    double wavelength = 2 * PI / frequency, context = s->original_context;
    if (wavelength < context / s->high_frequency_factor) return frequency;
    if (wavelength > context / s->low_frequency_factor) return frequency / s->factor;
    double part = (context / wavelength - s->low_frequency_factor) /
                  (s->high_frequency_factor - s->low_frequency_factor);
    return (1 - part) * frequency / s->factor + part * frequency;
}

/* The pair, a fraction, that turns this often in the original context. */
static double pair_that_turns(double times, const struct rope_angles *a)
{
    return a->J * log(a->scaling->original_context / (2 * PI * times)) / log(a->theta);
}

static double yarn_frequency(int j, double frequency, const struct rope_angles *a)
{
    const struct rope_scaling *s = a->scaling;
    double first = fmax(floor(pair_that_turns(s->beta_fast, a)), 0);
    double last = fmin(ceil(pair_that_turns(s->beta_slow, a)), 2 * a->J - 1);
    if (!(first < last) && !(first > last)) last += 0.001; /* as Transformers */
    double ramp = fmin(fmax((j - first) / (last - first), 0), 1);
    return ramp * frequency / s->factor + (1 - ramp) * frequency;
}

static double dynamic_theta(const struct rope_angles *a)
{
    const struct rope_scaling *s = a->scaling;
    double old = s->original_context, tokens = a->tokens > old ? a->tokens : old;
    return a->theta *
           pow(s->factor * tokens / old - (s->factor - 1), (double)a->J / (double)(a->J - 1));
}

static double longrope_frequency(int j, double frequency, const struct rope_angles *a)
{
    const struct rope_scaling *s = a->scaling;
    return frequency / (a->tokens > s->original_context ? s->long_factors : s->short_factors)[j];
}

bool rope_scaling_agrees(const struct rope_scaling *s, int a, int b)
{
    if (!(s->factor > 0)) return true;
    bool is_scaled = a > s->original_context, both = is_scaled == (b > s->original_context);
    return s->method == ROPE_longrope  ? both
           : s->method == ROPE_dynamic ? both && (!is_scaled || a == b)
                                       : true;
}

double rope_frequency(int j, const struct rope_angles *a)
{
    double frequency = pow(a->theta, -(double)j / a->J);
    if (!a->scaling || !(a->scaling->factor > 0)) return frequency;
    switch (a->scaling->method) {
    case ROPE_llama3: return llama3_frequency(frequency, a->scaling);
    case ROPE_linear: return frequency / a->scaling->factor;
    case ROPE_dynamic: return pow(dynamic_theta(a), -(double)j / a->J);
    case ROPE_yarn: return yarn_frequency(j, frequency, a);
    case ROPE_longrope: return longrope_frequency(j, frequency, a);
    }
    return frequency;
}

void rope_table(int T, const struct rope_angles *angles, float *cos_TJ, float *sin_TJ)
{
    int J = angles->J;
    struct rope_angles row = *angles;
    double scale = row.scaling ? rope_attention_factor(row.scaling) : 1;
    row.tokens = T;
    for (int j = 0; j < J; j++) {
        /* position * f in f32, as in Transformers: it matters for large positions. */
        float f = (float)rope_frequency(j, &row);
        for (int t = 0; t < T; t++) {
            size_t at = (size_t)t * (size_t)J + (size_t)j;
            float angle = (float)t * f;
            cos_TJ[at] = (float)(scale * cos((double)angle));
            sin_TJ[at] = (float)(scale * sin((double)angle));
        }
    }
}
