/* machine.h -- instructions, and the warps that execute them.
 *
 * A register holds the values of all lanes, one after the other; a predicate is a word with a bit
 * for each lane.  Constants are registers, too, so that an operand is an offset. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ptx/ptx.h"

#include <setjmp.h>
#include <stdlib.h>

enum { LANES = 32, MAX_OPERANDS = 16, MAX_RESULTS = 4 };

struct warp;
struct instruction;
/* For the lanes of `mask`. */
typedef void execute(struct warp *w, const struct instruction *i, uint32_t mask);

/* CONVERGED: all lanes of the warp must have come; CONVERGED_MEMBERS: those of the last operand. */
enum control { PLAIN, BRANCH, RETURN, BARRIER, CONVERGED, CONVERGED_MEMBERS };

struct operand {
    int slot;      /* offset in a warp's registers */
    uint8_t bytes; /* of a lane's value; 0: a predicate */
};

struct instruction {
    execute *execute;
    enum control control;
    int guard; /* slot of a predicate, or -1 */
    bool is_guard_negated;
    uint8_t num_out, num_in;
    uint8_t bytes; /* of an element of a vector or of a memory access */
    bool is_signed;
    struct operand out[MAX_RESULTS], in[MAX_OPERANDS];
    int64_t offset; /* of an address */
    int target;     /* of a branch */
    const char *text;
    bool was_executed;
};

struct constant {
    int slot;
    uint8_t bytes;
    bool is_dynamic; /* the address of dynamic shared memory */
    uint64_t value;
};

/* tid, ntid, ctaid, nctaid, each of x, y, z: the first registers of a warp, of 4 bytes. */
enum { NUM_SPECIAL = 12 };

struct block {
    const struct ptx_kernel *kernel;
    struct ptx_dim grid, size, index;
    char *shared, *parameters;
    size_t shared_bytes;
    jmp_buf failure;
};

struct copy { /* of cp.async: of 16 bytes, those behind the first `bytes` become 0 */
    int lane;
    int64_t group;
    uint32_t to, bytes;
    uint64_t from;
};

struct group { /* of lanes that diverged from those that run */
    int pc;
    uint32_t mask;
    bool waits; /* for other lanes of the warp */
};

struct warp {
    struct block *block;
    int index;
    char *registers, *local;
    uint32_t alive;
    int pc;        /* of the lanes that run */
    uint32_t mask; /* these */
    struct group apart[LANES];
    int num_apart, nearest; /* the lowest pc of groups that do not wait */
    bool is_at_barrier;
    struct copy *copies;
    int num_copies, room_copies;
    int64_t groups[LANES]; /* of cp.async, committed */
};

/* Ends the kernel with a message. */
_Noreturn void machine_fail(const struct warp *w, const struct instruction *i, int lane,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));

/* `name` is the mnemonic with _ for each dot.  `sizes` has a character for each input: its bytes, p
 * for predicates, a for addresses. */
struct operation {
    const char *name;
    execute *execute;
    enum control control;
    const char *sizes;
    int result; /* its bytes; 0: a predicate, -1: any */
};
/* NULL: not implemented. */
const struct operation *operation_find(const char *mnemonic, size_t length);

/* Those of lanes.c: name, control, sizes. */
#define LANE_OPERATIONS(F)                                                                         \
    F(mov_vector, PLAIN, "")                                                                       \
    F(ld_global, PLAIN, "a")                                                                       \
    F(ld_shared, PLAIN, "a")                                                                       \
    F(ld_local, PLAIN, "a")                                                                        \
    F(ld_param, PLAIN, "a")                                                                        \
    F(st_global, PLAIN, "a")                                                                       \
    F(st_shared, PLAIN, "a")                                                                       \
    F(st_local, PLAIN, "a")                                                                        \
    F(atom_global_max_u32, PLAIN, "a4")                                                            \
    F(atom_shared_add_u32, PLAIN, "a4")                                                            \
    F(cp_async_cg_shared_global, PLAIN, "aa44")                                                    \
    F(cp_async_commit_group, PLAIN, "")                                                            \
    F(cp_async_wait_group, PLAIN, "4")                                                             \
    F(shfl_sync_bfly_b32, CONVERGED_MEMBERS, "4444")                                               \
    F(shfl_sync_idx_b32, CONVERGED_MEMBERS, "4444")                                                \
    F(bar_warp_sync, CONVERGED_MEMBERS, "4")                                                       \
    F(ldmatrix_sync_aligned_m8n8_x4_shared_b16, CONVERGED, "a")                                    \
    F(ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, CONVERGED, "a")                              \
    F(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, CONVERGED, "4444444444")
#define DECLARE(id, control, sizes) execute id;
LANE_OPERATIONS(DECLARE)
#undef DECLARE

/* Room for one more element; the new ones are not initialized. */
#define GROW(array, count, room)                                                                   \
    do {                                                                                           \
        if ((count) == (room)) {                                                                   \
            (room) = (room) ? 2 * (room) : 64;                                                     \
            (array) = realloc(array, (size_t)(room) * sizeof *(array));                            \
            if (!(array)) abort();                                                                 \
        }                                                                                          \
    } while (0)

static inline void *machine_register(struct warp *w, struct operand o)
{
    return w->registers + o.slot;
}

/* r, an array of the lanes' values, to register o, for the lanes of `mask`. */
#define MACHINE_STORE(T, o, r)                                                                     \
    do {                                                                                           \
        T *to_ = machine_register(w, o);                                                           \
        if (mask == UINT32_MAX)                                                                    \
            memcpy(to_, r, sizeof(r));                                                             \
        else                                                                                       \
            EACH_LANE if (mask >> l & 1) to_[l] = (r)[l];                                          \
    } while (0)
#define EACH_LANE for (int l = 0; l < LANES; l++)

static inline void machine_set_predicate(struct warp *w, struct operand o, uint32_t value,
                                         uint32_t mask)
{
    uint32_t *p = machine_register(w, o);
    *p = (*p & ~mask) | (value & mask);
}
