// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"
#include "test.h"

#include "parallel/replicas.h"

static enum status reduce_norms(const struct comm *group, void *context)
{
    struct model_shape s = rig_shape(), slice;
    struct layout whole, l;
    struct shard p;
    struct queue *queue;
    struct arena run = {0};
    (void)context;
    s.V = 40;
    slice = model_shape_slice(&s, group->rank, group->size);
    layout_init(&whole, &s, 1), layout_init(&l, &slice, 1);
    shard_init_sliced(&p, &l, &whole, (struct shard_position){0, 1, group->rank, group->size});
    TRY(cpu_queue_open(&queue, 1, 1 << 16));
    struct replicas c = {group, 0, &whole, &p, &ops_cpu_reference, queue, 0, NULL, NULL};
    replicas_alloc(&c, &run);
    size_t bytes = run.used;
    TRY(arena_init(&run, bytes, NULL));
    replicas_alloc(&c, &run);
    RANK_CHECK(c.count == (2 * (size_t)s.L + 1) * (size_t)s.D);
    float *gradients = heap(p.elements * sizeof *gradients);
    for (size_t i = 0; i < p.elements; i++) gradients[i] = (float)(group->rank + 1);
    TRY(replicas_all_reduce(&c, gradients, F32));
    float all = (float)(group->size * (group->size + 1)) / 2;
    for (size_t i = 0; i < p.count; i++) {
        bool is_norm = param_is_vector(whole.tensors[p.runs[i].tensor].id);
        for (size_t n = 0; n < p.runs[i].count; n++)
            RANK_CHECK(gradients[p.runs[i].at + n] == (is_norm ? all : (float)(group->rank + 1)));
    }
    double squares;
    TRY(replicas_duplicate_squares(&c, gradients, F32, &squares));
    double want = group->rank ? (double)c.count * (double)(all * all) : 0;
    RANK_CHECK(fabs(squares - want) <= 1e-9 * want);
    free(gradients);
    arena_release(&run);
    cpu_queue_close(queue);
    shard_release(&p), layout_release(&l), layout_release(&whole);
    return STATUS_OK;
}

TEST(replicated_parameters_are_all_reduced_and_counted_once)
{
    CHECK_STATUS(OK, ranks_run(2, reduce_norms, NULL));
    CHECK_STATUS(
        OK, ranks_run(4, reduce_norms, NULL)); /* more ranks than the rig has key/value heads */
}
