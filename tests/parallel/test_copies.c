// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"
#include "test.h"

#include "parallel/copies.h"

static enum status sums(const struct comm *group, void *context)
{
    struct model_shape s = rig_shape(), here;
    struct layout whole, l;
    struct pieces p;
    struct queue *on;
    struct arena run = {0};
    (void)context;
    s.V = 40;
    here = model_shape_cut(&s, group->size);
    layout_init(&whole, &s, 1), layout_init(&l, &here, 1);
    pieces_init_cut(&p, &l, 0, 1, &whole, group->rank, group->size);
    TRY(cpu_queue_open(&on, 1, 1 << 16));
    struct copies c = {group, 0, &whole, &p, &ops_cpu_reference, on, 0, NULL, NULL};
    copies_take(&c, &run);
    size_t bytes = run.used;
    TRY(arena_init(&run, bytes, NULL));
    copies_take(&c, &run);
    RANK_CHECK(c.count == (2 * (size_t)s.L + 1) * (size_t)s.D);
    float *gradients = heap(p.elements * sizeof *gradients);
    for (size_t i = 0; i < p.elements; i++) gradients[i] = (float)(group->rank + 1);
    TRY(copies_sum(&c, gradients));
    float all = (float)(group->size * (group->size + 1)) / 2;
    for (size_t i = 0; i < p.count; i++) {
        bool is_norm = params[whole.tensors[p.all[i].tensor].id].is_norm;
        for (size_t n = 0; n < p.all[i].count; n++)
            RANK_CHECK(gradients[p.all[i].at + n] == (is_norm ? all : (float)(group->rank + 1)));
    }
    double squares;
    TRY(copies_squares(&c, gradients, &squares));
    double want = group->rank ? (double)c.count * (double)(all * all) : 0;
    RANK_CHECK(fabs(squares - want) <= 1e-9 * want);
    free(gradients);
    arena_release(&run);
    cpu_queue_close(on);
    pieces_release(&p), layout_release(&l), layout_release(&whole);
    return STATUS_OK;
}

TEST(what_ranks_hold_copies_of_is_summed_and_counted_once)
{
    CHECK_STATUS(OK, ranks_run(2, sums, NULL));
    CHECK_STATUS(OK, ranks_run(4, sums, NULL)); /* the rig has two heads of keys */
}
