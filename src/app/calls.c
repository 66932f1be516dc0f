// SPDX-License-Identifier: Apache-2.0
#include "app/calls.h"

#include "app/machine.h"

#include "comms/self/self.h"
#include "parallel/plan.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

/* A queue behind which nothing is computed, and a table of operations that write down their calls.
 */
struct recorder {
    struct queue base; /* first: the operations get a struct queue * */
    struct call_list *list;
};

static void add(struct call_list *l, const struct op_call *c)
{
    struct text sizes = {0};
    size_t i = 0;
    op_sizes(c, &sizes);
    while (i < l->count &&
           (l->calls[i].call.op != c->op || strcmp(l->calls[i].sizes, sizes.data) != 0))
        i++;
    if (i == l->count) {
        l->calls = heap_grow(l->calls, l->count + 1, sizeof *l->calls);
        l->calls[l->count++] = (struct call){*c, heap_string(sizes.data, sizes.len), 0};
    }
    l->order = heap_grow(l->order, l->length + 1, sizeof *l->order);
    l->order[l->length++] = i;
    text_release(&sizes);
}

#define OP(name, what_type, io_type)                                                               \
    static enum status record_##name(const struct what_type *what, const struct io_type *io,       \
                                     struct queue *on)                                             \
    {                                                                                              \
        (void)io;                                                                                  \
        add(((struct recorder *)on)->list,                                                         \
            &(struct op_call){.op = OP_##name, .what.name = *what});                               \
        return STATUS_OK;                                                                          \
    }
#include "ops/ops.def"
#undef OP

static const struct ops recording = {
    .backend = "recording",
#define OP(name, what, io) .name = record_##name,
#include "ops/ops.def"
#undef OP
};

/* From one micro-batch, an update, and the casts that a run begins with, to a whole step. */
static void make_step(struct call_list *l, int num_micro)
{
    size_t micro = 0, end = l->length;
    while (l->calls[l->order[micro]].call.op != OP_sum_squares) micro++;
    while (l->calls[l->order[end - 1]].call.op == OP_cast) end--;
    size_t length = micro * (size_t)num_micro + end - micro;
    size_t *order = heap_grow(NULL, length, sizeof *order);
    for (size_t i = 0; i < length; i++)
        order[i] = l->order[i < micro * (size_t)num_micro ? i % micro
                                                          : i - micro * (size_t)(num_micro - 1)];
    free(l->order);
    l->order = order, l->length = length;
    for (size_t i = 0; i < length; i++) l->calls[order[i]].per_step++;
}

enum status calls_of_step(struct call_list *l, const struct config *c,
                          const struct model_shape *shape)
{
    struct recorder recorder = {.base = {.num_threads = 1}, .list = l};
    struct machine machine = {.ops = &recording, .on = &recorder.base};
    TRY(machine_alone(&machine));
    struct memory_plan plan;
    *l = (struct call_list){0};
    BUG_IF(c->validation.enable);
    enum status st = trainer_plan(c, shape, &machine, &plan);
    arena_release(&recorder.base.scratch);
    groups_close(&machine.groups);
    if (st) {
        calls_release(l);
        return st;
    }
    make_step(l, trainer_rows(c, &machine.mesh) / (int)c->training.local_batch_size);
    return STATUS_OK;
}

void calls_release(struct call_list *l)
{
    for (size_t i = 0; i < l->count; i++) free(l->calls[i].sizes);
    free(l->calls);
    free(l->order);
    *l = (struct call_list){0};
}
