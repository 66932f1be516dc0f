// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "model/rig.h"
#include "test.h"

#include "model/shard.h"
#include "parallel/fsdp.h"

/* Compares a sharded model with the same model unsharded, microbatch by microbatch. */
struct sharding {
    struct model_shape shape;
    bool keep, whole_gradients;
    int replicas, microbatches;
};

/* Rows of microbatch i of a rank: different ids for each. */
static void rows_of(struct rig *r, int rank, int i)
{
    for (int n = 0; n < r->b.B * r->b.T; n++) {
        uint64_t stream = (uint64_t)(100 + rank * 10 + i);
        r->ids[n] = (int32_t)rng_below((uint64_t)r->m.shape.V, 1, RNG_TEST, stream, (uint64_t)n);
    }
}

/* Accumulates the gradients of all ranks' microbatches on one model, and records their losses. */
static void accumulate_all(struct rig *r, int size, int microbatches, double *losses)
{
    memset(r->gradients, 0, r->m.layout.elements * sizeof(float));
    for (int rank = 0; rank < size; rank++)
        for (int i = 0; i < microbatches; i++) {
            rows_of(r, rank, i);
            rig_run(r, single_stage_train);
            losses[rank * microbatches + i] = 0;
            for (int n = 0; n < r->b.B * r->b.T; n++)
                losses[rank * microbatches + i] += (double)r->loss[n];
        }
}

static enum status compare(const struct fsdp *f, const struct shard *mine, const struct rig *whole)
{
    const struct layout *l = f->layout, *theirs = &whole->m.layout;
    const float *gradients = f->gradients;
    for (size_t i = 0; i < mine->count; i++) {
        const struct shard_run *p = &mine->runs[i];
        const float *want = whole->gradients + theirs->tensors[p->tensor].offset + p->first;
        RANK_CHECK(l->tensors[p->tensor].elements == theirs->tensors[p->tensor].elements);
        for (size_t n = 0; n < p->count; n++)
            RANK_CHECK(fabsf(gradients[p->at + n] - want[n]) <= 2e-6f + 1e-5f * fabsf(want[n]));
    }
    return STATUS_OK;
}

static enum status train_sharded(const struct comm *world, void *context)
{
    const struct sharding *s = context;
    struct rig r, whole;
    struct comm shard, replicate;
    struct arena run = {0};
    double losses[64];
    TRY(comm_split(world, world->rank / (world->size / s->replicas), world->rank, &shard));
    TRY(comm_split(world, world->rank % shard.size, world->rank, &replicate));
    rig_open(&r, &s->shape, F32, 2, 9);
    rig_open(&whole, &s->shape, F32, 2, 9);
    r.queue->num_threads = whole.queue->num_threads = 1; /* a rank is a thread here */
    accumulate_all(&whole, world->size, s->microbatches, losses);

    struct layout layout;
    struct shard mine;
    layout_init(&layout, &s->shape, shard.size);
    shard_init(&mine, &layout, shard.rank, shard.size);
    float *weights = heap(mine.elements * sizeof *weights);
    float *gradients = heap(mine.elements * sizeof *gradients);
    memset(weights, 0, mine.elements * sizeof *weights);
    for (size_t i = 0; i < mine.count; i++) {
        const struct shard_run *p = &mine.runs[i];
        const float *from = whole.weights + whole.m.layout.tensors[p->tensor].offset + p->first;
        memcpy(weights + p->at, from, p->count * sizeof *from);
    }
    struct fsdp f = {.layout = &layout,
                     .shard = &shard,
                     .replicate = &replicate,
                     .ops = r.m.ops,
                     .queue = r.queue,
                     .tied = s->shape.tied,
                     .keep = s->keep,
                     .whole_gradients = s->whole_gradients};
    fsdp_alloc(&f, &run);
    size_t bytes = run.used;
    fsdp_release(&f);
    TRY(arena_init(&run, bytes, NULL));
    if (bytes) memset(run.base, 0xFF, bytes);
    fsdp_alloc(&f, &run);
    f.weights = weights, f.gradients = gradients;

    struct layout rig_layout = r.m.layout;
    size_t step_bytes = rig_size(&r, single_stage_train);
    r.m.layout = layout, r.m.units = &f.units, r.m.weights = NULL, r.m.gradients = NULL;
    TRY(arena_init(&r.step, step_bytes, NULL));
    for (int step = 0; step < 2;
         step++) { /* the second starts from the state that the first left */
        /* Stale gradients must be overwritten. */
        memset(gradients, 0xFF, mine.elements * sizeof *gradients);
        fsdp_begin_step(&f);
        for (int i = 0; i < s->microbatches; i++) {
            double loss = 0;
            rows_of(&r, world->rank, i);
            r.b.last = i == s->microbatches - 1;
            TRY(single_stage_evaluate(&r.m, &r.b,
                                      &r.step)); /* forward alone must not disturb gradients */
            TRY(single_stage_train(&r.m, &r.b, &r.step));
            for (int n = 0; n < r.b.B * r.b.T; n++) loss += (double)r.loss[n];
            RANK_CHECK(loss == losses[world->rank * s->microbatches + i]);
        }
        TRY(fsdp_finish_gradients(&f));
        TRY(compare(&f, &mine, &whole));
        fsdp_invalidate_weights(&f);
    }
    r.m.layout = rig_layout, r.m.units = NULL;
    fsdp_release(&f);
    arena_release(&run);
    shard_release(&mine), layout_release(&layout);
    free(weights), free(gradients);
    rig_close(&r), rig_close(&whole);
    comm_release(&shard), comm_release(&replicate);
    return STATUS_OK;
}

static void check_ranks(int size, struct sharding s)
{
    CHECK_STATUS(OK, ranks_run(size, train_sharded, &s));
}

TEST(sharded_model_matches_the_unsharded_one)
{
    for (int size = 1; size <= 5; size++)
        for (int mode = 0; mode < 3; mode++)
            check_ranks(size, (struct sharding){rig_shape(), mode > 0, mode > 1, 1, 1});
}

TEST(sharded_gradients_accumulate_over_microbatches)
{
    for (int mode = 0; mode < 3; mode++)
        check_ranks(3, (struct sharding){rig_shape(), mode > 0, mode > 1, 1, 3});
}

TEST(hybrid_sharding_sums_gradients_over_replicas)
{
    for (int mode = 0; mode < 3; mode++) {
        check_ranks(4, (struct sharding){rig_shape(), mode > 0, mode > 1, 2, 2});
        check_ranks(2, (struct sharding){rig_shape(), mode > 0, mode > 1, 2, 2});
    }
}

TEST(tied_and_single_block_models_can_be_sharded)
{
    struct model_shape tied = rig_shape(), shallow = rig_shape();
    tied.tied = true, shallow.L = 1;
    for (int mode = 0; mode < 3; mode++) {
        check_ranks(3, (struct sharding){tied, mode > 0, mode > 1, 1, 2});
        check_ranks(3, (struct sharding){shallow, mode > 0, mode > 1, 1, 2});
    }
}

/* A rank of N allocates slots for gathered units besides its N-th of weights and gradients. */
TEST(rank_holds_its_shard_and_slots_for_gathered_units)
{
    struct model_shape s = rig_shape();
    struct layout l;
    layout_init(&l, &s, 4);
    struct comm four = {.size = 4}, one = *comm_self();
    struct fsdp f = {.layout = &l, .shard = &four, .replicate = &one};
    struct arena run = {0};
    CHECK(fsdp_shard_elements(&f) == l.elements / 4);
    fsdp_alloc(&f, &run);
    size_t block = l.units[1].elements, ends = l.units[0].elements;
    if (l.units[l.num_units - 1].elements > ends) ends = l.units[l.num_units - 1].elements;
    size_t widest = block > ends ? block : ends;
    CHECK(run.used == (2 * block + ends) * (4 + 4) + 2 * widest * 4);
    fsdp_release(&f);
    run.used = 0;
    f.forward_only = true;
    fsdp_alloc(&f, &run);
    CHECK(run.used == (2 * block + ends) * 4);
    fsdp_release(&f);
    layout_release(&l);
}
