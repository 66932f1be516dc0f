// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

const char *axis_name(enum axis a)
{
    static const char *const names[] = {
#define X(name, key) #name,
        AXIS_LIST(X)
#undef X
    };
    return names[a];
}

enum status mesh_resolve(struct mesh *m, const struct parallelism_config *c, int rank, int size)
{
    const int64_t degrees[] = {
        [AXIS_pp] = c->pipeline_parallel_degree,
        [AXIS_dp_replicate] = c->data_parallel_replicate_degree,
        [AXIS_dp_shard] = c->data_parallel_shard_degree,
        [AXIS_cp] = c->context_parallel_degree,
        [AXIS_tp] = c->tensor_parallel_degree,
    };
    int64_t others = 1, shard = degrees[AXIS_dp_shard];
    if (shard == 0) FAIL(CONFIG, "parallelism.data_parallel_shard_degree = 0: -1 or at least 1");
    bool fit = true;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (a != AXIS_dp_shard) fit = fit && !__builtin_mul_overflow(others, degrees[a], &others);
    if (shard < 0) shard = fit ? size / others : 0;
    if (!fit || shard < 1 || shard > size || others * shard != size)
        FAIL(CONFIG,
             "parallelism: data_parallel_replicate_degree %lld x data_parallel_shard_degree %lld x "
             "tensor_parallel_degree %lld x pipeline_parallel_degree %lld x "
             "context_parallel_degree %lld do not make %d rank%s",
             (long long)degrees[AXIS_dp_replicate], (long long)degrees[AXIS_dp_shard],
             (long long)degrees[AXIS_tp], (long long)degrees[AXIS_pp], (long long)degrees[AXIS_cp],
             size, size == 1 ? "" : "s");
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        m->degree[a] = (int)(a == AXIS_dp_shard ? shard : degrees[a]);
    mesh_place(m, rank);
    return STATUS_OK;
}

struct mesh mesh_alone(void)
{
    struct mesh m = {0};
    for (enum axis a = 0; a < AXIS_COUNT; a++) m.degree[a] = 1;
    return m;
}

int mesh_rank(const struct mesh *m, const int at[AXIS_COUNT])
{
    int rank = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++) rank = rank * m->degree[a] + at[a];
    return rank;
}

void mesh_place(struct mesh *m, int rank)
{
    for (int a = AXIS_COUNT; a-- > 0;) {
        m->at[a] = rank % m->degree[a];
        rank /= m->degree[a];
    }
}

static const struct {
    const char *name;
    unsigned axes;
} rows[] = {
#define X(name, axes, text) {#name, axes},
    GROUP_LIST(X)
#undef X
};

const char *group_name(enum group g) { return rows[g].name; }

/* One number for each place on the axes that `axes` names. */
static int place_on(const struct mesh *m, unsigned axes)
{
    int place = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (axes & 1u << a) place = place * m->degree[a] + m->at[a];
    return place;
}

int mesh_group_size(const struct mesh *m, enum group g)
{
    int size = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (rows[g].axes & 1u << a) size *= m->degree[a];
    return size;
}

int mesh_group_rank(const struct mesh *m, enum group g) { return place_on(m, rows[g].axes); }

int mesh_group_near(const struct mesh *m, enum group g, int node_ranks)
{
    int begin = mesh_rank(m, m->at) / node_ranks * node_ranks, near = 0;
    int ranks = mesh_group_size(m, GROUP_world) - begin;
    struct mesh other = *m;
    for (int i = 0; i < node_ranks && i < ranks; i++) {
        mesh_place(&other, begin + i);
        near += place_on(&other, ~rows[g].axes) == place_on(m, ~rows[g].axes);
    }
    return near;
}

enum status groups_open(struct groups *g, const struct mesh *m, const struct comm *world)
{
    enum status st = STATUS_OK;
    *g = (struct groups){0};
    for (enum group i = 0; i < GROUP_COUNT; i++)
        TRY_OUT(
            comm_split(world, place_on(m, ~rows[i].axes), place_on(m, rows[i].axes), &g->of[i]));
    return STATUS_OK;
out:
    groups_close(g);
    return st;
}

enum status groups_carry(struct groups *g,
                         enum status (*wrap)(struct comm *c, const char *name, void *context),
                         void *context)
{
    static const enum group of_tensors[] = {GROUP_pp, GROUP_replicate, GROUP_shard, GROUP_cp,
                                            GROUP_tp};
    for (size_t i = 0; i < sizeof of_tensors / sizeof *of_tensors; i++) {
        struct comm *c = &g->of[of_tensors[i]];
        if (c->size > 1) TRY(wrap(c, group_name(of_tensors[i]), context));
    }
    return STATUS_OK;
}

void groups_close(struct groups *g)
{
    for (enum group i = 0; i < GROUP_COUNT; i++) comm_release(&g->of[i]);
}

void groups_plan(struct groups *g, const struct mesh *m)
{
    for (enum group i = 0; i < GROUP_COUNT; i++)
        g->of[i] = (struct comm){
            .rank = mesh_group_rank(m, i), .size = mesh_group_size(m, i), .counts = &g->planned[i]};
}
