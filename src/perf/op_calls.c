// SPDX-License-Identifier: Apache-2.0
#include "perf/op_calls.h"

#include "machine/machine.h"
#include "perf/op_sizes.h"
#include "perf/step_simulator.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

struct call_recorder {
    struct simulated_queue queue; /* first, so that on_call can cast */
    struct op_calls *list;
};

static void add_call(struct op_calls *l, const struct op_call *c)
{
    struct text sizes = {0};
    size_t i = 0;
    op_sizes(c, &sizes);
    while (i < l->count &&
           (l->calls[i].call.op != c->op || strcmp(l->calls[i].sizes, sizes.data) != 0))
        i++;
    if (i == l->count) {
        l->calls = heap_grow(l->calls, l->count + 1, sizeof *l->calls);
        l->calls[l->count++] = (struct step_call){*c, heap_string(sizes.data, sizes.len), 0};
    }
    l->order = heap_grow(l->order, l->length + 1, sizeof *l->order);
    l->order[l->length++] = i;
    text_release(&sizes);
}

static void record_call(struct simulated_queue *queue, const struct op_call *c)
{
    struct op_call copy = *c;
    if (c->op == OP_adamw) copy.what.adamw.parts = NULL, copy.what.adamw.num_parts = 0;
    add_call(((struct call_recorder *)queue)->list, &copy);
}

/* The first call of the last microbatch that was recorded. */
static size_t last_microbatch(const struct op_calls *l, size_t end)
{
    while (l->calls[l->order[end - 1]].call.op != OP_embedding_forward) end--;
    return end - 1;
}

/* The dry run records two microbatches (the second accumulates gradients, and finds FP8 weights
 * quantized), one update, and the casts with which a run starts.  Drops these casts, and repeats
 * the second microbatch as often as gradient accumulation does. */
static void expand_step(struct op_calls *l, int num_micro)
{
    size_t micro = 0, end = l->length;
    while (l->calls[l->order[micro]].call.op != OP_sum_squares) micro++;
    while (l->calls[l->order[end - 1]].call.op == OP_cast) end--;
    size_t each = micro - last_microbatch(l, micro);
    size_t more = num_micro > 1 ? (size_t)(num_micro - 2) * each : 0;
    size_t length = end + more;
    size_t *order = heap_grow(NULL, length, sizeof *order);
    for (size_t i = 0; i < micro; i++) order[i] = l->order[i];
    for (size_t i = 0; i < more; i++) order[micro + i] = l->order[micro - each + i % each];
    for (size_t i = micro; i < end; i++) order[i + more] = l->order[i];
    free(l->order);
    l->order = order, l->length = length;
    for (size_t i = 0; i < length; i++) l->calls[order[i]].per_step++;
}

enum status op_calls_record_step(struct op_calls *l, const struct config *c,
                                 const struct model_shape *shape, const struct ops *ops,
                                 bool native_fp8)
{
    struct ops simulated = step_simulator_ops;
    struct call_recorder recorder = {.queue = {.base = {.num_threads = 1}, .on_call = record_call},
                                     .list = l};
    /* GEMM producers then compute amax themselves, or quantize their results. */
    simulated.computes_amax = ops->computes_amax;
    simulated.is_multi_tensor = ops->is_multi_tensor;
    simulated.logit_rows = ops->logit_rows;
    recorder.queue.native_fp8 = native_fp8;
    struct machine machine = {.ops = &simulated, .queue = &recorder.queue.base};
    TRY(machine_alone(&machine));
    struct memory_plan plan;
    *l = (struct op_calls){0};
    BUG_IF(c->validation.enable);
    enum status st = trainer_plan(c, shape, &machine, &plan);
    arena_release(&recorder.queue.base.scratch);
    groups_close(&machine.groups);
    if (st) {
        op_calls_release(l);
        return st;
    }
    expand_step(l, trainer_rows(c, &machine.mesh) / (int)c->training.local_batch_size);
    return STATUS_OK;
}

void op_calls_release(struct op_calls *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->calls[i].sizes);
    free(l->calls);
    free(l->order);
    *l = (struct op_calls){0};
}
