// SPDX-License-Identifier: Apache-2.0
#include "model/value_check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct value_bound {
    const char *suffix; /* of the tensor's name */
    float most;         /* in magnitude */
    bool is_signed;
};

static const struct value_bound bounds[VALUE_KINDS] = {
    [VALUE_WEIGHT] = {"", 1e6f, true},
    [VALUE_EXP_AVG] = {".exp_avg", 1e6f, true},
    [VALUE_EXP_AVG_SQ] = {".exp_avg_sq", 1e12f, false},
    [VALUE_EMA] = {" (EMA)", 1e6f, true},
    [VALUE_GRADIENT] = {".grad", FLT_MAX, true},
};

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The bits of element i as f32; bf16 is its upper half. */
static inline uint32_t bits_at(enum dtype dtype, const void *x, size_t i)
{
    uint32_t bits;
    uint16_t half;
    if (dtype == F32) {
        memcpy(&bits, (const float *)x + i, sizeof bits);
        return bits;
    }
    memcpy(&half, (const bf16 *)x + i, sizeof half);
    return (uint32_t)half << 16;
}

/* Bits of floats of one sign are in the order of the floats, NaN last.  So a value is bad if its
 * bits, without the sign where that is free, exceed the bound's; -0 is not negative. */
static inline bool is_bad(uint32_t bits, uint32_t mask, uint32_t most)
{
    return (bits & mask) > most && bits != UINT32_C(0x80000000);
}

struct bit_bound {
    uint32_t mask, most;
};

/* Block by block: a first pass, which vectorizes, only tells whether the block has a bad value. */
static inline size_t find(enum dtype dtype, const void *x, size_t n, struct bit_bound b)
{
    enum { BLOCK = 4096 };
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t end = n - at < BLOCK ? n : at + BLOCK;
        uint32_t any = 0;
        for (size_t i = at; i < end; i++) any |= is_bad(bits_at(dtype, x, i), b.mask, b.most);
        for (size_t i = at; any && i < end; i++)
            if (is_bad(bits_at(dtype, x, i), b.mask, b.most)) return i;
    }
    return n;
}

size_t value_check_find(enum value_kind kind, enum dtype dtype, const void *x, size_t n)
{
    const struct value_bound *of = &bounds[kind];
    struct bit_bound b = {of->is_signed ? UINT32_C(0x7fffffff) : UINT32_MAX, bits_of(of->most)};
    return dtype == F32 ? find(F32, x, n, b) : find(BF16, x, n, b);
}

void value_check_part(struct value_check *c, size_t first, const void *x, size_t n)
{
    size_t bad = value_check_find(c->kind, c->dtype, x, n);
    if (bad == n) return;
#pragma omp critical(value_check_part)
    if (!c->is_bad || first + bad < c->element) {
        float value =
            c->dtype == F32 ? ((const float *)x)[bad] : bf16_to_f32(((const bf16 *)x)[bad]);
        c->is_bad = true, c->element = first + bad, c->value = (double)value;
    }
}

static void describe_named(const struct bad_element *bad, const char *name, struct text *out)
{
    const struct value_bound *b = &bounds[bad->kind];
    double value = isnan(bad->value) ? (double)NAN : bad->value; /* printf prints a NaN's sign */
    text_addf(out, "%s: element %zu is %g, expected a finite value", name, bad->element, value);
    if (!b->is_signed) text_adds(out, " of at least 0");
    if (b->most < FLT_MAX)
        text_addf(out, "%s at most %g%s", b->is_signed ? " of" : " and", (double)b->most,
                  b->is_signed ? " in magnitude" : "");
}

void value_check_describe(const struct bad_element *bad, struct text *out)
{
    char stem[96], name[112];
    if (!bad->tensor) {
        describe_named(bad, bad->name, out);
        return;
    }
    layout_tensor_name(bad->tensor, true, stem);
    snprintf(name, sizeof name, "%s%s", stem, bounds[bad->kind].suffix);
    describe_named(bad, name, out);
}

enum status value_check_fail(enum status st, const char *where, const struct bad_element *bad)
{
    struct text what = {0};
    value_check_describe(bad, &what);
    status_fail(st, __FILE__, __LINE__, "%s: tensor %s", where, what.data);
    text_release(&what);
    return st;
}
