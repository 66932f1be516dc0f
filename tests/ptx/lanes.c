/* lanes.c -- memory, and what the lanes of a warp do together. */
// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine.h"

#include <stdlib.h>
#include <string.h>

static float from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, 4);
    return y;
}

static uint64_t lane_bits(struct warp *w, struct operand o, int l)
{
    uint64_t x = 0;
    memcpy(&x, w->registers + o.slot + o.bytes * l, o.bytes);
    return x;
}

static void set_lane_bits(struct warp *w, struct operand o, int l, uint64_t x)
{
    if (o.slot >= 0) memcpy(w->registers + o.slot + o.bytes * l, &x, o.bytes);
}

/* mov of a vector into a scalar, or of a scalar into a vector. */
void mov_vector(struct warp *w, const struct instruction *i, uint32_t mask)
{
    EACH_LANE
    {
        if (!(mask >> l & 1)) continue;
        uint64_t x = 0;
        for (int v = 0, at = 0; v < i->num_in; v++, at += 8 * i->bytes)
            x |= lane_bits(w, i->in[v], l) << at;
        for (int v = 0, at = 0; v < i->num_out; v++, at += 8 * i->bytes)
            set_lane_bits(w, i->out[v], l, x >> at);
    }
}

/* --- memory --- */

enum space { GLOBAL, SHARED, LOCAL, PARAMETER };

static char *locate(struct warp *w, const struct instruction *i, int lane, enum space space,
                    size_t bytes)
{
    struct operand o = i->in[0];
    uint64_t address = lane_bits(w, o, lane) + (uint64_t)i->offset;
    if (o.bytes == 4) address = (uint32_t)address;
    if (address % bytes)
        machine_fail(w, i, lane, "address %#llx of %zu bytes is misaligned",
                     (unsigned long long)address, bytes);
    const struct block *b = w->block;
    char *base = space == SHARED ? b->shared : space == LOCAL ? w->local : b->parameters;
    size_t limit = space == SHARED  ? b->shared_bytes
                   : space == LOCAL ? b->kernel->local_bytes
                                    : b->kernel->parameter_bytes;
    if (space == GLOBAL) {
        if (!ptx_memory_has(address, bytes))
            machine_fail(w, i, lane, "%zu bytes at global address %#llx are not allocated", bytes,
                         (unsigned long long)address);
        return (char *)(uintptr_t)address;
    }
    if (address > limit || limit - address < bytes)
        machine_fail(w, i, lane, "%zu bytes at address %lld are beyond the %zu bytes of %s memory",
                     bytes, (long long)address, limit,
                     space == SHARED  ? "shared"
                     : space == LOCAL ? "local"
                                      : "parameter");
    if (space == LOCAL) base += (size_t)lane * limit;
    return base + address;
}

static uint64_t extend(const char *from, int bytes, bool is_signed)
{
    uint64_t x = 0;
    memcpy(&x, from, (size_t)bytes);
    if (is_signed && bytes < 8 && x >> (8 * bytes - 1)) x |= ~(uint64_t)0 << 8 * bytes;
    return x;
}

static void load(struct warp *w, const struct instruction *i, uint32_t mask, enum space space)
{
    EACH_LANE
    {
        if (!(mask >> l & 1)) continue;
        const char *from = locate(w, i, l, space, (size_t)(i->bytes * i->num_out));
        for (int v = 0; v < i->num_out; v++)
            set_lane_bits(w, i->out[v], l, extend(from + v * i->bytes, i->bytes, i->is_signed));
    }
}

/* in[0] is the address. */
static void store(struct warp *w, const struct instruction *i, uint32_t mask, enum space space)
{
    int count = i->num_in - 1;
    EACH_LANE
    {
        if (!(mask >> l & 1)) continue;
        char *to = locate(w, i, l, space, (size_t)(i->bytes * count));
        for (int v = 0; v < count; v++) {
            uint64_t x = lane_bits(w, i->in[1 + v], l);
            memcpy(to + v * i->bytes, &x, i->bytes);
        }
    }
}

#define DEFINE_SPACE(id, space)                                                                    \
    void ld_##id(struct warp *w, const struct instruction *i, uint32_t mask)                       \
    {                                                                                              \
        load(w, i, mask, space);                                                                   \
    }                                                                                              \
    void st_##id(struct warp *w, const struct instruction *i, uint32_t mask)                       \
    {                                                                                              \
        store(w, i, mask, space);                                                                  \
    }
DEFINE_SPACE(global, GLOBAL)
DEFINE_SPACE(shared, SHARED)
DEFINE_SPACE(local, LOCAL)

void ld_param(struct warp *w, const struct instruction *i, uint32_t mask)
{
    load(w, i, mask, PARAMETER);
}

#define ATOMICS(F)                                                                                 \
    F(atom_global_max_u32, GLOBAL, old > x ? old : x)                                              \
    F(atom_shared_add_u32, SHARED, old + x)
#define DEFINE_ATOMIC(id, space, value)                                                            \
    void id(struct warp *w, const struct instruction *i, uint32_t mask)                            \
    {                                                                                              \
        EACH_LANE                                                                                  \
        {                                                                                          \
            if (!(mask >> l & 1)) continue;                                                        \
            uint32_t *p = (uint32_t *)(void *)locate(w, i, l, space, 4), old = *p;                 \
            uint32_t x = (uint32_t)lane_bits(w, i->in[1], l);                                      \
            *p = value;                                                                            \
            if (i->num_out) set_lane_bits(w, i->out[0], l, old);                                   \
        }                                                                                          \
    }
ATOMICS(DEFINE_ATOMIC)

/* --- asynchronous copies --- */

/* Inputs: the shared address, the global one, 16, the bytes that are read; the rest becomes 0. */
void cp_async_cg_shared_global(struct warp *w, const struct instruction *i, uint32_t mask)
{
    EACH_LANE
    {
        if (!(mask >> l & 1)) continue;
        struct copy c = {.lane = l, .group = w->groups[l], .bytes = 16};
        if (i->num_in > 3) c.bytes = (uint32_t)lane_bits(w, i->in[3], l);
        c.from = lane_bits(w, i->in[1], l);
        char *to = locate(w, i, l, SHARED, 16);
        c.to = (uint32_t)(to - w->block->shared);
        if (c.from % 16 || c.bytes > 16 || (c.bytes && !ptx_memory_has(c.from, c.bytes)))
            machine_fail(w, i, l, "cannot copy %u bytes from global address %#llx", c.bytes,
                         (unsigned long long)c.from);
        GROW(w->copies, w->num_copies, w->room_copies);
        memset(to, PTX_LEFTOVER, 16);
        w->copies[w->num_copies++] = c;
    }
}

void cp_async_commit_group(struct warp *w, const struct instruction *i, uint32_t mask)
{
    (void)i;
    EACH_LANE if (mask >> l & 1) w->groups[l]++;
}

static void finish_copies(struct warp *w, uint32_t mask, int64_t pending)
{
    int kept = 0;
    for (int n = 0; n < w->num_copies; n++) {
        struct copy c = w->copies[n];
        if (!(mask >> c.lane & 1) || c.group >= w->groups[c.lane] - pending) {
            w->copies[kept++] = c;
            continue;
        }
        char *to = w->block->shared + c.to;
        memset(to, 0, 16);
        memcpy(to, (const char *)(uintptr_t)c.from, c.bytes);
    }
    w->num_copies = kept;
}

void cp_async_wait_group(struct warp *w, const struct instruction *i, uint32_t mask)
{
    const uint32_t *pending = machine_register(w, i->in[0]);
    finish_copies(w, mask, pending[0]);
}

/* --- lanes of a warp together --- */

/* out: the value, and whether the other lane is in range; in: value, lane, clamp, members. */
static void shuffle(struct warp *w, const struct instruction *i, uint32_t mask, bool is_xor)
{
    const uint32_t *a = machine_register(w, i->in[0]), *b = machine_register(w, i->in[1]),
                   *c = machine_register(w, i->in[2]);
    uint32_t r[LANES], in_range = 0;
    EACH_LANE
    {
        int segment = c[l] >> 8 & 31, clamp = c[l] & 31;
        int last = (l & segment) | (clamp & ~segment), first = l & segment;
        int from = is_xor ? l ^ (int)(b[l] & 31) : first | ((int)(b[l] & 31) & ~segment);
        if (from > last)
            from = l;
        else
            in_range |= 1u << l;
        if (mask >> l & 1 && !(mask >> from & 1))
            machine_fail(w, i, l, "lane %d does not take part", from);
        r[l] = a[from];
    }
    MACHINE_STORE(uint32_t, i->out[0], r);
    if (i->num_out > 1) machine_set_predicate(w, i->out[1], in_range, mask);
}
void shfl_sync_bfly_b32(struct warp *w, const struct instruction *i, uint32_t mask)
{
    shuffle(w, i, mask, true);
}
void shfl_sync_idx_b32(struct warp *w, const struct instruction *i, uint32_t mask)
{
    shuffle(w, i, mask, false);
}
void bar_warp_sync(struct warp *w, const struct instruction *i, uint32_t mask)
{
    (void)w, (void)i, (void)mask;
}

/* Lanes 8 m to 8 m + 7 have the addresses of the rows of matrix m. */
static void load_matrices(struct warp *w, const struct instruction *i, bool transposed)
{
    const char *rows[LANES];
    EACH_LANE rows[l] = locate(w, i, l, SHARED, 16);
    for (int m = 0; m < 4; m++) {
        uint32_t *to = machine_register(w, i->out[m]);
        EACH_LANE
        {
            int major = l / 4, minor = l % 4 * 2;
            uint16_t pair[2];
            for (int e = 0; e < 2; e++) {
                int row = transposed ? minor + e : major, column = transposed ? major : minor + e;
                memcpy(&pair[e], rows[8 * m + row] + 2 * column, 2);
            }
            to[l] = pair[0] | (uint32_t)pair[1] << 16;
        }
    }
}
void ldmatrix_sync_aligned_m8n8_x4_shared_b16(struct warp *w, const struct instruction *i,
                                              uint32_t mask)
{
    (void)mask;
    load_matrices(w, i, false);
}
void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(struct warp *w, const struct instruction *i,
                                                    uint32_t mask)
{
    (void)mask;
    load_matrices(w, i, true);
}

/* D = A B + C: in[0..3] A of 16 x 16, in[4..5] B of 16 x 8, in[6..9] C of 16 x 8. */
void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(struct warp *w,
                                                         const struct instruction *i, uint32_t mask)
{
    (void)mask;
    float a[16][16], b[16][8], d[16][8];
    const uint32_t *A[4], *B[2];
    const float *C[4];
    for (int n = 0; n < 4; n++)
        A[n] = machine_register(w, i->in[n]), C[n] = machine_register(w, i->in[6 + n]);
    for (int n = 0; n < 2; n++) B[n] = machine_register(w, i->in[4 + n]);
    EACH_LANE
    {
        int group = l / 4, pair = l % 4 * 2;
        for (int e = 0; e < 2; e++) {
            for (int n = 0; n < 4; n++)
                a[group + n % 2 * 8][pair + e + n / 2 * 8] =
                    from_bf16((uint16_t)(A[n][l] >> 16 * e));
            for (int n = 0; n < 2; n++)
                b[pair + e + n * 8][group] = from_bf16((uint16_t)(B[n][l] >> 16 * e));
        }
    }
    for (int r = 0; r < 16; r++) {
        for (int c = 0; c < 8; c++) {
            int l = r % 8 * 4 + c / 2;
            d[r][c] = C[r / 8 * 2 + c % 2][l];
        }
        for (int k = 0; k < 16; k++)
            for (int c = 0; c < 8; c++) d[r][c] += a[r][k] * b[k][c];
    }
    for (int n = 0; n < 4; n++) {
        float *to = machine_register(w, i->out[n]);
        EACH_LANE to[l] = d[l / 4 + n / 2 * 8][l % 4 * 2 + n % 2];
    }
}
