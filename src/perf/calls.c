// SPDX-License-Identifier: Apache-2.0
#include "perf/calls.h"

#include "machine/machine.h"
#include "perf/rehearsal.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

struct recorder {
    struct rehearsal rehearsal; /* first: what it tells gets a struct rehearsal * */
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

static void record(struct rehearsal *r, const struct op_call *c)
{
    add(((struct recorder *)r)->list, c);
}

/* From the first two micro-batches, of which the second adds to the first's gradients, an update,
 * and the casts that a run begins with, to a whole step. */
static void make_step(struct call_list *l, int num_micro)
{
    size_t micro = 0, end = l->length;
    while (l->calls[l->order[micro]].call.op != OP_sum_squares) micro++;
    while (l->calls[l->order[end - 1]].call.op == OP_cast) end--;
    size_t each = num_micro > 1 ? micro / 2 : micro, more = (size_t)num_micro * each - micro;
    size_t length = end + more;
    size_t *order = heap_grow(NULL, length, sizeof *order);
    for (size_t i = 0; i < micro; i++) order[i] = l->order[i];
    for (size_t i = 0; i < more; i++) order[micro + i] = l->order[micro - each + i % each];
    for (size_t i = micro; i < end; i++) order[i + more] = l->order[i];
    free(l->order);
    l->order = order, l->length = length;
    for (size_t i = 0; i < length; i++) l->calls[order[i]].per_step++;
}

enum status calls_of_step(struct call_list *l, const struct config *c,
                          const struct model_shape *shape, const struct ops *ops)
{
    struct ops told = rehearsal_ops;
    told.computes_amax = ops->computes_amax; /* then others are not called for that */
    struct recorder recorder = {.rehearsal = {.base = {.num_threads = 1}, .call = record},
                                .list = l};
    struct machine machine = {.ops = &told, .queue = &recorder.rehearsal.base};
    TRY(machine_alone(&machine));
    struct memory_plan plan;
    *l = (struct call_list){0};
    BUG_IF(c->validation.enable);
    enum status st = trainer_plan(c, shape, &machine, &plan);
    arena_release(&recorder.rehearsal.base.scratch);
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
