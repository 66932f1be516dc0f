/* operations.c -- what each instruction computes. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine.h"

#include <fenv.h>
#include <math.h>
#include <string.h>

static uint32_t predicate(struct warp *w, struct operand o)
{
    return *(uint32_t *)machine_register(w, o);
}

/* --- arithmetic that C does not have --- */

static float round_to(int mode, float a, float b, float c, bool is_fma)
{
    volatile float x = a, y = b, z = c, r;
    int before = fegetround();
    fesetround(mode);
    if (is_fma)
        r = fmaf(x, y, z);
    else
        r = x + y;
    fesetround(before);
    return r;
}

static float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
static float saturate(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

static int32_t to_int32(float x)
{
    if (isnan(x)) return 0;
    return x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x;
}

static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x)) return 0x7FFF;
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* To the nearest value of `mantissa` bits and exponents from `least` on; what exceeds `largest`
 * becomes it.  `nan`: its bits. */
static uint32_t to_fp8(float x, int mantissa, int least, float largest, uint32_t nan)
{
    uint32_t sign = signbit(x) ? 0x80 : 0;
    if (isnan(x)) return nan;
    float a = fabsf(x);
    if (a >= largest) a = largest;
    int e = a > 0 ? ilogbf(a) : least;
    if (e < least) e = least;
    float units = nearbyintf(ldexpf(a, mantissa - e)); /* may be 2^(mantissa + 1) */
    uint32_t bits = (uint32_t)(e - least) << mantissa;
    bits += (uint32_t)units; /* a normal's leading one adds 1 to the exponent */
    return sign | bits;
}
static uint32_t to_e4m3(float x) { return to_fp8(x, 3, -6, 448, 0x7F); }
static uint32_t to_e5m2(float x) { return to_fp8(x, 2, -14, 57344, 0x7F); }

/* Which the manual makes 0 for finite divisors of more than 2^126. */
static float divide_approximately(float x, float y)
{
    return fabsf(y) > 0x1p126f && isfinite(y) ? x * 0 : x / y;
}

static uint32_t permute(uint32_t a, uint32_t b, uint32_t select)
{
    uint64_t bytes = a | (uint64_t)b << 32;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 4 * i & 15, byte = bytes >> 8 * (s & 7) & 255;
        if (s & 8) byte = byte & 0x80 ? 255 : 0;
        r |= byte << 8 * i;
    }
    return r;
}

static uint32_t insert_bits(uint32_t a, uint32_t b, uint32_t at, uint32_t length)
{
    at &= 255, length &= 255;
    for (uint32_t i = 0; i < length && at + i < 32; i++)
        b = (b & ~(1u << (at + i))) | (a >> i & 1) << (at + i);
    return b;
}

#define DIVIDE(x, y, T)    ((y) ? (T)((x) / (y)) : (T)-1)
#define REMAINDER(x, y, T) ((y) ? (T)((x) % (y)) : (T)(x))
/* INT_MIN / -1 traps in C. */
#define DIVIDE_SIGNED(x, y, T, U) ((y) == -1 ? (T)(0 - (U)(x)) : DIVIDE(x, y, T))
#define REMAINDER_SIGNED(x, y, T) ((y) == -1 ? 0 : REMAINDER(x, y, T))
/* +0 is larger than -0. */
#define SMALLER(x, y, min)       ((x) == (y) ? (signbit(x) ? (x) : (y)) : min(x, y))
#define LARGER(x, y, max)        ((x) == (y) ? (signbit(x) ? (y) : (x)) : max(x, y))
#define SHIFT(x, n, op, bits)    ((n) < (bits) ? (uint64_t)(x)op(n) : 0)
#define SHIFT_SIGNED(x, n, bits) ((x) >> ((n) < (bits) ? (n) : (bits)-1))

/* --- the list: name, type of the result, types of the inputs, expression --- */

#define INTEGERS(F1, F2, F3, S, U, bits)                                                           \
    F2(add_s##bits, U, U, U, x + y)                                                                \
    F2(add_u##bits, U, U, U, x + y)                                                                \
    F2(sub_s##bits, U, U, U, x - y)                                                                \
    F2(sub_u##bits, U, U, U, x - y)                                                                \
    F2(mul_lo_s##bits, U, U, U, ((uint64_t)x * y))                                                 \
    F2(mul_lo_u##bits, U, U, U, ((uint64_t)x * y))                                                 \
    F3(mad_lo_s##bits, U, U, U, U, ((uint64_t)x * y) + z)                                          \
    F3(mad_lo_u##bits, U, U, U, U, ((uint64_t)x * y) + z)                                          \
    F2(div_u##bits, U, U, U, DIVIDE(x, y, U))                                                      \
    F2(rem_u##bits, U, U, U, REMAINDER(x, y, U))                                                   \
    F2(div_s##bits, S, S, S, DIVIDE_SIGNED(x, y, S, U))                                            \
    F2(rem_s##bits, S, S, S, REMAINDER_SIGNED(x, y, S))                                            \
    F2(min_s##bits, S, S, S, x < y ? x : y)                                                        \
    F2(max_s##bits, S, S, S, x > y ? x : y)                                                        \
    F2(min_u##bits, U, U, U, x < y ? x : y)                                                        \
    F2(max_u##bits, U, U, U, x > y ? x : y)                                                        \
    F1(neg_s##bits, U, U, 0 - x)                                                                   \
    F1(abs_s##bits, S, S, x < 0 ? (S)(0 - (U)x) : x)                                               \
    F1(not_b##bits, U, U, ~x)                                                                      \
    F2(and_b##bits, U, U, U, (x & y))                                                              \
    F2(or_b##bits, U, U, U, x | y)                                                                 \
    F2(xor_b##bits, U, U, U, x ^ y)                                                                \
    F2(shl_b##bits, U, U, uint32_t, SHIFT(x, y, <<, bits))                                         \
    F2(shr_u##bits, U, U, uint32_t, SHIFT(x, y, >>, bits))                                         \
    F2(shr_s##bits, S, S, uint32_t, SHIFT_SIGNED(x, y, bits))

#define WIDE(F2, F3, small, large, bits)                                                           \
    F2(mul_wide_##bits, large, small, small, ((large)x * (large)y))                                \
    F3(mad_wide_##bits, large, small, small, large, ((large)x * (large)y) + z)

#define FLOATS(F1, F2, F3, T, bits, suffix)                                                        \
    F2(add_f##bits, T, T, T, x + y)                                                                \
    F2(add_rn_f##bits, T, T, T, x + y)                                                             \
    F2(sub_f##bits, T, T, T, x - y)                                                                \
    F2(sub_rn_f##bits, T, T, T, x - y)                                                             \
    F2(mul_f##bits, T, T, T, (x * y))                                                              \
    F2(mul_rn_f##bits, T, T, T, (x * y))                                                           \
    F2(div_rn_f##bits, T, T, T, x / y)                                                             \
    F1(rcp_rn_f##bits, T, T, 1 / x)                                                                \
    F1(sqrt_rn_f##bits, T, T, sqrt##suffix(x))                                                     \
    F3(fma_rn_f##bits, T, T, T, T, fma##suffix(x, y, z))                                           \
    F2(min_f##bits, T, T, T, SMALLER(x, y, fmin##suffix))                                          \
    F2(max_f##bits, T, T, T, LARGER(x, y, fmax##suffix))                                           \
    F1(abs_f##bits, T, T, fabs##suffix(x))                                                         \
    F1(neg_f##bits, T, T, -x)

#define CONVERSION(F1, to, to_type, from, from_type)                                               \
    F1(cvt_##to##_##from, to_type, from_type, (to_type)x)
#define CONVERSIONS(F1, from, type)                                                                \
    CONVERSION(F1, u16, uint16_t, from, type)                                                      \
    CONVERSION(F1, s16, int16_t, from, type)                                                       \
    CONVERSION(F1, u32, uint32_t, from, type)                                                      \
    CONVERSION(F1, s32, int32_t, from, type)                                                       \
    CONVERSION(F1, u64, uint64_t, from, type)                                                      \
    CONVERSION(F1, s64, int64_t, from, type)                                                       \
    F1(cvt_rn_f32_##from, float, type, (float)x)                                                   \
    F1(cvt_rn_f64_##from, double, type, (double)x)

#define MOVES(F1, T, bits, name) F1(mov_##name##bits, T, T, x)

#define LIST(F1, F2, F3)                                                                           \
    INTEGERS(F1, F2, F3, int16_t, uint16_t, 16)                                                    \
    INTEGERS(F1, F2, F3, int32_t, uint32_t, 32)                                                    \
    INTEGERS(F1, F2, F3, int64_t, uint64_t, 64)                                                    \
    WIDE(F2, F3, int16_t, int32_t, s16)                                                            \
    WIDE(F2, F3, uint16_t, uint32_t, u16)                                                          \
    WIDE(F2, F3, int32_t, int64_t, s32)                                                            \
    WIDE(F2, F3, uint32_t, uint64_t, u32)                                                          \
    F2(mul_hi_s32, int32_t, int32_t, int32_t, (int32_t)((int64_t)x * y >> 32))                     \
    F2(mul_hi_u32, uint32_t, uint32_t, uint32_t, (uint32_t)((uint64_t)x * y >> 32))                \
    FLOATS(F1, F2, F3, float, 32, f)                                                               \
    FLOATS(F1, F2, F3, double, 64, )                                                               \
    F2(add_rz_f32, float, float, float, round_to(FE_TOWARDZERO, x, y, 0, false))                   \
    F3(fma_rm_f32, float, float, float, float, round_to(FE_DOWNWARD, x, y, z, true))               \
    F2(div_approx_f32, float, float, float, divide_approximately(x, y))                            \
    F1(ex2_approx_f32, float, float, exp2f(x))                                                     \
    F1(ex2_approx_ftz_f32, float, float, flush(exp2f(flush(x))))                                   \
    F1(cvt_sat_f32_f32, float, float, saturate(x))                                                 \
    F1(cvt_rzi_s32_f32, int32_t, float, to_int32(x))                                               \
    F1(cvt_f64_f32, double, float, x)                                                              \
    F1(cvt_rn_f32_f64, float, double, (float)x)                                                    \
    F1(cvt_rn_bf16_f32, uint16_t, float, to_bf16(x))                                               \
    F2(cvt_rn_bf16x2_f32, uint32_t, float, float, (uint32_t)to_bf16(x) << 16 | to_bf16(y))         \
    F2(cvt_rn_satfinite_e4m3x2_f32, uint16_t, float, float,                                        \
       (uint16_t)(to_e4m3(x) << 8 | to_e4m3(y)))                                                   \
    F2(cvt_rn_satfinite_e5m2x2_f32, uint16_t, float, float,                                        \
       (uint16_t)(to_e5m2(x) << 8 | to_e5m2(y)))                                                   \
    CONVERSIONS(F1, u16, uint16_t)                                                                 \
    CONVERSIONS(F1, s16, int16_t)                                                                  \
    CONVERSIONS(F1, u32, uint32_t)                                                                 \
    CONVERSIONS(F1, s32, int32_t)                                                                  \
    CONVERSIONS(F1, u64, uint64_t)                                                                 \
    CONVERSIONS(F1, s64, int64_t)                                                                  \
    F3(prmt_b32, uint32_t, uint32_t, uint32_t, uint32_t, permute(x, y, z))                         \
    MOVES(F1, uint16_t, 16, b)                                                                     \
    MOVES(F1, uint16_t, 16, u)                                                                     \
    MOVES(F1, uint32_t, 32, b)                                                                     \
    MOVES(F1, uint32_t, 32, u)                                                                     \
    MOVES(F1, uint32_t, 32, s)                                                                     \
    MOVES(F1, uint32_t, 32, f)                                                                     \
    MOVES(F1, uint64_t, 64, b)                                                                     \
    MOVES(F1, uint64_t, 64, u)                                                                     \
    MOVES(F1, uint64_t, 64, s)                                                                     \
    MOVES(F1, uint64_t, 64, f)                                                                     \
    F1(cvta_to_global_u64, uint64_t, uint64_t, x) F1(cvta_global_u64, uint64_t, uint64_t, x)

#define DEFINE1(id, R, X, value)                                                                   \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        const X *a = machine_register(w, i->in[0]);                                                \
        R r[LANES];                                                                                \
        EACH_LANE                                                                                  \
        {                                                                                          \
            X x = a[l];                                                                            \
            r[l] = (R)(value);                                                                     \
        }                                                                                          \
        MACHINE_STORE(R, i->out[0], r);                                                            \
    }
#define DEFINE2(id, R, X, Y, value)                                                                \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        const X *a = machine_register(w, i->in[0]);                                                \
        const Y *b = machine_register(w, i->in[1]);                                                \
        R r[LANES];                                                                                \
        EACH_LANE                                                                                  \
        {                                                                                          \
            X x = a[l];                                                                            \
            Y y = b[l];                                                                            \
            r[l] = (R)(value);                                                                     \
        }                                                                                          \
        MACHINE_STORE(R, i->out[0], r);                                                            \
    }
#define DEFINE3(id, R, X, Y, Z, value)                                                             \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        const X *a = machine_register(w, i->in[0]);                                                \
        const Y *b = machine_register(w, i->in[1]);                                                \
        const Z *c = machine_register(w, i->in[2]);                                                \
        R r[LANES];                                                                                \
        EACH_LANE                                                                                  \
        {                                                                                          \
            X x = a[l];                                                                            \
            Y y = b[l];                                                                            \
            Z z = c[l];                                                                            \
            r[l] = (R)(value);                                                                     \
        }                                                                                          \
        MACHINE_STORE(R, i->out[0], r);                                                            \
    }
LIST(DEFINE1, DEFINE2, DEFINE3)

/* --- comparisons and predicates --- */

#define COMPARE_INTEGERS(F, S, U, bits)                                                            \
    F(setp_eq_s##bits, S, x == y)                                                                  \
    F(setp_ne_s##bits, S, x != y)                                                                  \
    F(setp_lt_s##bits, S, x < y)                                                                   \
    F(setp_le_s##bits, S, x <= y)                                                                  \
    F(setp_gt_s##bits, S, x > y)                                                                   \
    F(setp_ge_s##bits, S, x >= y)                                                                  \
    F(setp_eq_b##bits, S, x == y)                                                                  \
    F(setp_ne_b##bits, S, x != y)                                                                  \
    F(setp_eq_u##bits, U, x == y)                                                                  \
    F(setp_ne_u##bits, U, x != y)                                                                  \
    F(setp_lt_u##bits, U, x < y)                                                                   \
    F(setp_le_u##bits, U, x <= y)                                                                  \
    F(setp_gt_u##bits, U, x > y)                                                                   \
    F(setp_ge_u##bits, U, x >= y)
#define COMPARE_FLOATS(F, T, bits)                                                                 \
    F(setp_eq_f##bits, T, x == y)                                                                  \
    F(setp_ne_f##bits, T, x<y || x> y)                                                             \
    F(setp_lt_f##bits, T, x < y)                                                                   \
    F(setp_le_f##bits, T, x <= y)                                                                  \
    F(setp_gt_f##bits, T, x > y)                                                                   \
    F(setp_ge_f##bits, T, x >= y)                                                                  \
    F(setp_equ_f##bits, T, !(x < y || x > y))                                                      \
    F(setp_neu_f##bits, T, x != y)                                                                 \
    F(setp_ltu_f##bits, T, !(x >= y))                                                              \
    F(setp_leu_f##bits, T, !(x > y))                                                               \
    F(setp_gtu_f##bits, T, !(x <= y))                                                              \
    F(setp_geu_f##bits, T, !(x < y))                                                               \
    F(setp_nan_f##bits, T, isnan(x) || isnan(y))                                                   \
    F(setp_num_f##bits, T, !isnan(x) && !isnan(y))
#define COMPARISONS(F)                                                                             \
    COMPARE_INTEGERS(F, int16_t, uint16_t, 16)                                                     \
    COMPARE_INTEGERS(F, int32_t, uint32_t, 32)                                                     \
    COMPARE_INTEGERS(F, int64_t, uint64_t, 64)                                                     \
    COMPARE_FLOATS(F, float, 32)                                                                   \
    COMPARE_FLOATS(F, double, 64)

#define DEFINE_COMPARISON(id, T, value)                                                            \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        const T *a = machine_register(w, i->in[0]), *b = machine_register(w, i->in[1]);            \
        uint32_t r = 0;                                                                            \
        EACH_LANE                                                                                  \
        {                                                                                          \
            T x = a[l], y = b[l];                                                                  \
            r |= (uint32_t)(value) << l;                                                           \
        }                                                                                          \
        machine_set_predicate(w, i->out[0], r, mask);                                              \
    }
COMPARISONS(DEFINE_COMPARISON)

#define PREDICATES(F)                                                                              \
    F(and_pred, (x & y))                                                                           \
    F(or_pred, x | y)                                                                              \
    F(xor_pred, x ^ y)                                                                             \
    F(not_pred, ~x)                                                                                \
    F(mov_pred, x)
#define DEFINE_PREDICATE(id, value)                                                                \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        uint32_t x = predicate(w, i->in[0]), y = i->num_in > 1 ? predicate(w, i->in[1]) : 0;       \
        (void)y;                                                                                   \
        machine_set_predicate(w, i->out[0], value, mask);                                          \
    }
PREDICATES(DEFINE_PREDICATE)

#define SELECTIONS(F)                                                                              \
    F(selp_b16, uint16_t)                                                                          \
    F(selp_u16, uint16_t)                                                                          \
    F(selp_s16, uint16_t)                                                                          \
    F(selp_b32, uint32_t)                                                                          \
    F(selp_u32, uint32_t)                                                                          \
    F(selp_s32, uint32_t)                                                                          \
    F(selp_f32, uint32_t)                                                                          \
    F(selp_b64, uint64_t)                                                                          \
    F(selp_u64, uint64_t)                                                                          \
    F(selp_s64, uint64_t)                                                                          \
    F(selp_f64, uint64_t)
#define DEFINE_SELECTION(id, T)                                                                    \
    static void id(struct warp *w, const struct instruction *i, uint32_t mask)                     \
    {                                                                                              \
        const T *a = machine_register(w, i->in[0]), *b = machine_register(w, i->in[1]);            \
        uint32_t p = predicate(w, i->in[2]);                                                       \
        T r[LANES];                                                                                \
        EACH_LANE r[l] = p >> l & 1 ? a[l] : b[l];                                                 \
        MACHINE_STORE(T, i->out[0], r);                                                            \
    }
SELECTIONS(DEFINE_SELECTION)

static void bfi_b32(struct warp *w, const struct instruction *i, uint32_t mask)
{
    const uint32_t *a = machine_register(w, i->in[0]), *b = machine_register(w, i->in[1]);
    const uint32_t *at = machine_register(w, i->in[2]), *length = machine_register(w, i->in[3]);
    uint32_t r[LANES];
    EACH_LANE r[l] = insert_bits(a[l], b[l], at[l], length[l]);
    MACHINE_STORE(uint32_t, i->out[0], r);
}

/* --- the table --- */

#define LETTER(T) ((char)('0' + sizeof(T)))
#define SIZES(...)                                                                                 \
    (const char[]) { __VA_ARGS__, 0 }
#define ENTRY1(id, R, X, value)    {#id, id, PLAIN, SIZES(LETTER(X)), sizeof(R)},
#define ENTRY2(id, R, X, Y, value) {#id, id, PLAIN, SIZES(LETTER(X), LETTER(Y)), sizeof(R)},
#define ENTRY_SELECTION(id, T)     {#id, id, PLAIN, SIZES(LETTER(T), LETTER(T), 'p'), sizeof(T)},
#define ENTRY3(id, R, X, Y, Z, value)                                                              \
    {#id, id, PLAIN, SIZES(LETTER(X), LETTER(Y), LETTER(Z)), sizeof(R)},
#define ENTRY_COMPARISON(id, T, value)  {#id, id, PLAIN, SIZES(LETTER(T), LETTER(T)), 0},
#define ENTRY_PREDICATE(id, value)      {#id, id, PLAIN, "pp", 0},
#define ENTRY_LANES(id, control, sizes) {#id, id, control, sizes, -1},

static const struct operation operations[] = {
    {"bra", NULL, BRANCH, "", -1},
    {"bra_uni", NULL, BRANCH, "", -1},
    {"ret", NULL, RETURN, "", -1},
    {"exit", NULL, RETURN, "", -1},
    {"bar_sync", NULL, BARRIER, "4", -1},
    {"bfi_b32", bfi_b32, PLAIN, "4444", 4},
    LIST(ENTRY1, ENTRY2, ENTRY3) COMPARISONS(ENTRY_COMPARISON) PREDICATES(ENTRY_PREDICATE)
        SELECTIONS(ENTRY_SELECTION) LANE_OPERATIONS(ENTRY_LANES)};

const struct operation *operation_find(const char *mnemonic, size_t length)
{
    for (size_t n = 0; n < sizeof operations / sizeof *operations; n++) {
        const char *name = operations[n].name;
        size_t k = 0;
        while (k < length && name[k] &&
               (name[k] == mnemonic[k] || (name[k] == '_' && mnemonic[k] == '.')))
            k++;
        if (k == length && !name[k]) return &operations[n];
    }
    return NULL;
}
