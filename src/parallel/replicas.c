// SPDX-License-Identifier: Apache-2.0
#include "parallel/replicas.h"

#include "ops/update.h"
#include "tensor/element.h"

bool replicas_include(const struct replicas *r, const struct shard_run *run)
{
    enum param_id id = r->layout->tensors[run->tensor].id;
    switch (r->kind) {
    case REPLICATED_UNSLICED: return !params[id].tp;
    case REPLICATED_KV_HEADS: return params[id].tp == 'P';
    case REPLICATED_TIED_EMBEDDING: return id == PARAM_embed;
    case REPLICATED_COUNT: break;
    }
    BUG("unknown kind of replicated parameters");
}

static bool has_tied_copy(const struct model_shape *shape, int stage, int num_stages)
{
    return shape->tied && num_stages > 1 && (stage == 0 || stage == num_stages - 1);
}

int replicas_count_groups(const struct model_shape *shape, const struct mesh *mesh)
{
    return (mesh->degree[AXIS_tp] > shape->G) +
           has_tied_copy(shape, mesh->at[AXIS_pp], mesh->degree[AXIS_pp]);
}

/* Splits off this rank's part of a group: its ranks with the same color. */
static enum status split_group(const struct comm *group, int color, int size, int rank,
                               struct comm *part)
{
    *part = (struct comm){.rank = rank, .size = size, .counts = group->counts};
    if (group->transport) TRY(comm_split(group, color, group->rank, part));
    return STATUS_OK;
}

enum status replicas_split_groups(const struct comm *tp, const struct comm *pp,
                                  const struct model_shape *shape, struct comm *kv_head_peers,
                                  struct comm *embedding_peers)
{
    int sharing = tp->size > shape->G ? tp->size / shape->G : 1;
    bool is_end = has_tied_copy(shape, pp->rank, pp->size);
    TRY(split_group(tp, tp->rank / sharing, sharing, tp->rank % sharing, kv_head_peers));
    TRY(split_group(pp, is_end ? 0 : 1 + pp->rank, is_end ? 2 : 1, is_end && pp->rank,
                    embedding_peers));
    return STATUS_OK;
}

void replicas_alloc(struct replicas *r, struct arena *run)
{
    r->count = 0;
    if (r->group->size == 1) return;
    for (size_t i = 0; i < r->shard->count; i++)
        if (replicas_include(r, &r->shard->runs[i])) r->count += r->shard->runs[i].count;
    size_t work = transfer_work_bytes(TRANSFER_all_reduce, F32, r->count, r->group->size);
    r->sums = arena_alloc(run, r->count, sizeof *r->sums);
    r->work = arena_alloc(run, work, 1);
}

/* Copies the replicated elements of a flat buffer to r->sums, or back. */
static enum status copy_sums(const struct replicas *r, const void *flat, enum dtype dtype,
                             bool back)
{
    size_t done = 0;
    for (size_t i = 0; i < r->shard->count; i++) {
        const struct shard_run *run = &r->shard->runs[i];
        if (!replicas_include(r, run)) continue;
        struct cast op = {.n = run->count, .from = back ? F32 : dtype, .to = back ? dtype : F32};
        void *from = element(flat, run->at, dtype), *to = element(r->sums, done, F32);
        struct cast_io io = {back ? to : from, back ? from : to};
        TRY(cast(r->ops, &op, &io, r->queue));
        done += run->count;
    }
    return STATUS_OK;
}

enum status replicas_all_reduce(struct replicas *r, void *gradients, enum dtype dtype)
{
    struct transfer t = {TRANSFER_all_reduce, F32, r->count, .x = r->sums, .work = r->work};
    if (r->group->size == 1) return STATUS_OK;
    TRY(copy_sums(r, gradients, dtype, false));
    if (comm_transfers(r->group, r->queue->sizing)) TRY(comm_run(r->group, &t));
    TRY(copy_sums(r, gradients, dtype, true));
    return STATUS_OK;
}

bool replicas_is_duplicate(const struct replicas *r, const struct shard_run *run)
{
    return r->group->rank > 0 && replicas_include(r, run);
}

enum status replicas_duplicate_squares(const struct replicas *r, const void *flat, enum dtype dtype,
                                       double *squares)
{
    double sum = 0;
    *squares = 0;
    if (r->group->rank == 0) return STATUS_OK;
    TRY(copy_sums(r, flat, dtype, false));
    TRY(sum_squares(r->ops, &(struct sum_squares){.n = r->count},
                    &(struct sum_squares_io){r->sums, &sum}, r->queue));
    *squares = sum;
    return STATUS_OK;
}
