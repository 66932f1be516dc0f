/* gpu_budget.h (tests) -- counts what the operations of one training step submit to an emulated
 * GPU, with warps of 32, and what they read and write.
 *
 * Units    Bytes.  `model` is that of perf/op.h: inputs read once, outputs written once.  `read`
 *          and `written` are counted at the accesses of the kernels: every 32-byte sector once per
 *          launch, so they assume a cache that holds all of a launch's data; `requested` is what
 *          the threads request, as if there were no cache.  Caches are not modeled. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "perf/op.h"
#include "train/trainer.h"

enum { BUDGET_KERNELS = 12, BUDGET_SETTINGS = 24 };

/* A kernel, or a copy or memset, of one row. */
struct budget_kernel {
    char name[48];
    uint64_t launches;
};
/* An operation, or (row OP_COUNT) what is submitted outside of operations. */
struct budget_row {
    uint64_t calls, waits; /* waits: of the host for the device */
    struct budget_kernel kernels[BUDGET_KERNELS];
    int num_kernels;
    double model;
    uint64_t read, written, requested;
};
struct budget {
    struct budget_row rows[OP_COUNT + 1];
};

/* A model whose step is counted. */
struct budget_case {
    const char *name, *description;
    bool executes; /* otherwise the work is counted, but not executed: large models */
    const char *settings[BUDGET_SETTINGS];
    int warmup;    /* steps before the one that is counted */
    int num_ranks; /* 0: one; the others do what this one does, and no tensor moves */
};
enum { BUDGET_CASES = 6 };
extern const struct budget_case budget_cases[BUDGET_CASES];

/* Calls begin before the first launch of the step, when the trainer's memory is allocated; NULL: no
 * call.  begin and end let a program count accesses: it adds to budget_current. */
struct budget_hooks {
    void (*begin)(const struct trainer *t);
    void (*launch)(void); /* a kernel starts */
    void (*end)(void);
};
extern struct budget_row *budget_current;

enum status budget_count(const struct budget_case *c, const struct budget_hooks *hooks,
                         struct budget *out);

uint64_t budget_launches(const struct budget_row *row);
/* Appends the case's table; `before` is the text that budget_record appended for an older tree. */
void budget_print(const struct budget_case *c, const struct budget *b, const char *before,
                  struct text *out);
void budget_record(const struct budget_case *c, const struct budget *b, struct text *out);
