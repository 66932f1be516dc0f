// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"
#include "test.h"

#include "parallel/fsdp.h"

/* A model that ranks share out against the same model whole, micro-batch by micro-batch. */
struct sharing {
    struct model_shape shape;
    bool keep, whole_gradients;
    int replicas, micro_batches;
};

/* Rows of micro-batch i of a rank: other ids for each. */
static void rows_of(struct rig *r, int rank, int i)
{
    for (int n = 0; n < r->b.B * r->b.T; n++) {
        uint64_t stream = (uint64_t)(100 + rank * 10 + i);
        r->ids[n] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, stream, (uint64_t)n);
    }
}

/* What all ranks' micro-batches add up to, on one model; their losses in `losses`. */
static void add_up(struct rig *r, int size, int micro_batches, double *losses)
{
    memset(r->gradients, 0, r->m.layout.elements * sizeof(float));
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < micro_batches; i++) {
            rows_of(r, rank, i);
            rig_run(r, model_train);
            losses[rank * micro_batches + i] = 0;
            for (int n = 0; n < r->b.B * r->b.T; n++)
                losses[rank * micro_batches + i] += (double)r->loss[n];
        }
}

static enum status compare(const struct fsdp *f, const struct pieces *mine, const struct rig *whole)
{
    const struct layout *l = f->layout, *theirs = &whole->m.layout;
    for (size_t i = 0; i < mine->count; i++) {
        const struct piece *p = &mine->all[i];
        const float *want = whole->gradients + theirs->tensors[p->tensor].offset + p->first;
        RANK_CHECK(l->tensors[p->tensor].elements == theirs->tensors[p->tensor].elements);
        for (size_t n = 0; n < p->count; n++)
            RANK_CHECK(fabsf(f->gradients[p->at + n] - want[n]) <= 2e-6f + 1e-5f * fabsf(want[n]));
    }
    return STATUS_OK;
}

static enum status share_out(const struct comm *world, void *context)
{
    const struct sharing *s = context;
    struct rig r, whole;
    struct comm shard, replicate;
    struct arena run = {0};
    double losses[64];
    TRY(comm_split(world, world->rank / (world->size / s->replicas), world->rank, &shard));
    TRY(comm_split(world, world->rank % shard.size, world->rank, &replicate));
    rig_open(&r, &s->shape, F32, 2, 9);
    rig_open(&whole, &s->shape, F32, 2, 9);
    r.on->num_threads = whole.on->num_threads = 1; /* a rank is a thread here */
    add_up(&whole, world->size, s->micro_batches, losses);

    struct layout layout;
    struct pieces mine;
    layout_init(&layout, &s->shape, shard.size);
    pieces_init(&mine, &layout, shard.rank, shard.size);
    float *weights = heap(mine.elements * sizeof *weights);
    float *gradients = heap(mine.elements * sizeof *gradients);
    memset(weights, 0, mine.elements * sizeof *weights);
    for (size_t i = 0; i < mine.count; i++) {
        const struct piece *p = &mine.all[i];
        const float *from = whole.weights + whole.m.layout.tensors[p->tensor].offset + p->first;
        memcpy(weights + p->at, from, p->count * sizeof *from);
    }
    struct fsdp f = {.layout = &layout,
                     .shard = &shard,
                     .replicate = &replicate,
                     .ops = r.m.ops,
                     .on = r.on,
                     .tied = s->shape.tied,
                     .keep = s->keep,
                     .whole_gradients = s->whole_gradients};
    fsdp_take(&f, &run);
    size_t bytes = run.used;
    fsdp_release(&f);
    TRY(arena_init(&run, bytes, NULL));
    if (bytes) memset(run.base, 0xFF, bytes);
    fsdp_take(&f, &run);
    f.weights = weights, f.gradients = gradients;

    struct layout of_rig = r.m.layout;
    size_t step_bytes = rig_measure(&r, model_train);
    r.m.layout = layout, r.m.units = &f.units, r.m.weights = NULL, r.m.gradients = NULL;
    TRY(arena_init(&r.step, step_bytes, NULL));
    for (int step = 0; step < 2; step++) { /* the second begins with what the first left */
        /* Whatever is there before, it is no gradient. */
        memset(gradients, 0xFF, mine.elements * sizeof *gradients);
        fsdp_begin(&f);
        for (int i = 0; i < s->micro_batches; i++) {
            double loss = 0;
            rows_of(&r, world->rank, i);
            r.b.last = i == s->micro_batches - 1;
            TRY(model_evaluate(&r.m, &r.b, &r.step)); /* forward alone disturbs nothing */
            TRY(model_train(&r.m, &r.b, &r.step));
            for (int n = 0; n < r.b.B * r.b.T; n++) loss += (double)r.loss[n];
            RANK_CHECK(loss == losses[world->rank * s->micro_batches + i]);
        }
        TRY(fsdp_finish(&f));
        TRY(compare(&f, &mine, &whole));
        fsdp_changed(&f);
    }
    r.m.layout = of_rig, r.m.units = NULL;
    fsdp_release(&f);
    arena_release(&run);
    pieces_release(&mine), layout_release(&layout);
    free(weights), free(gradients);
    rig_close(&r), rig_close(&whole);
    comm_release(&shard), comm_release(&replicate);
    return STATUS_OK;
}

static void on(int size, struct sharing s) { CHECK_STATUS(OK, ranks_run(size, share_out, &s)); }

TEST(ranks_that_share_out_a_model_compute_what_the_whole_model_does)
{
    for (int size = 1; size <= 5; size++)
        for (int mode = 0; mode < 3; mode++)
            on(size, (struct sharing){rig_shape(), mode > 0, mode > 1, 1, 1});
}

TEST(micro_batches_of_ranks_that_share_out_a_model_add_up)
{
    for (int mode = 0; mode < 3; mode++)
        on(3, (struct sharing){rig_shape(), mode > 0, mode > 1, 1, 3});
}

TEST(replicas_of_a_shared_out_model_add_up)
{
    for (int mode = 0; mode < 3; mode++) {
        on(4, (struct sharing){rig_shape(), mode > 0, mode > 1, 2, 2});
        on(2, (struct sharing){rig_shape(), mode > 0, mode > 1, 2, 2});
    }
}

TEST(a_tied_model_and_one_of_a_single_block_can_be_shared_out)
{
    struct model_shape tied = rig_shape(), shallow = rig_shape();
    tied.tied = true, shallow.L = 1;
    for (int mode = 0; mode < 3; mode++) {
        on(3, (struct sharing){tied, mode > 0, mode > 1, 1, 2});
        on(3, (struct sharing){shallow, mode > 0, mode > 1, 1, 2});
    }
}

/* In a rank of N, a N-th of weights and gradients; units in their slots beside it. */
TEST(a_rank_holds_its_part_of_the_units_and_slots_for_whole_ones)
{
    struct model_shape s = rig_shape();
    struct layout l;
    layout_init(&l, &s, 4);
    struct comm four = {.size = 4}, one = *comm_self();
    struct fsdp f = {.layout = &l, .shard = &four, .replicate = &one};
    struct arena run = {0};
    CHECK(fsdp_elements(&f) == l.elements / 4);
    fsdp_take(&f, &run);
    size_t block = l.units[1].elements, ends = l.units[0].elements;
    if (l.units[l.num_units - 1].elements > ends) ends = l.units[l.num_units - 1].elements;
    size_t most = block > ends ? block : ends;
    CHECK(run.used == (2 * block + ends) * (4 + 4) + 2 * most * 4);
    fsdp_release(&f);
    run.used = 0;
    f.forward_only = true;
    fsdp_take(&f, &run);
    CHECK(run.used == (2 * block + ends) * 4);
    fsdp_release(&f);
    layout_release(&l);
}
