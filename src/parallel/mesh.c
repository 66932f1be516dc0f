// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include "base/text.h"

const char *mesh_axis_name(enum axis a)
{
    static const char *const names[] = {
#define X(name, key) #name,
        AXIS_LIST(X)
#undef X
    };
    return names[a];
}

static void read_degrees(const struct parallelism_config *c, int64_t degrees[AXIS_COUNT])
{
    degrees[AXIS_pp] = c->pipeline_parallel_degree;
    degrees[AXIS_dp_replicate] = c->data_parallel_replicate_degree;
    degrees[AXIS_dp_shard] = c->data_parallel_shard_degree;
    degrees[AXIS_cp] = c->context_parallel_degree;
    degrees[AXIS_tp] = c->tensor_parallel_degree;
}

/* The product of the degrees, with an open one (-1) as 1; 0: it overflows. */
static int64_t product(const int64_t degrees[AXIS_COUNT])
{
    int64_t all = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (degrees[a] > 0 && __builtin_mul_overflow(all, degrees[a], &all)) return 0;
    return all;
}

int64_t mesh_min_ranks(const struct parallelism_config *c)
{
    int64_t degrees[AXIS_COUNT];
    read_degrees(c, degrees);
    return product(degrees);
}

static enum status fail_product(const int64_t degrees[AXIS_COUNT], int64_t all, int size)
{
    bool open = degrees[AXIS_dp_shard] < 0;
    struct text made = {0};
    if (all && open)
        text_addf(&made, "a multiple of %lld", (long long)all);
    else if (all)
        text_addf(&made, "%lld", (long long)all);
    else
        text_adds(&made, "more than 2^63");
    enum status st = status_fail(
        STATUS_CONFIG, __FILE__, __LINE__,
        "parallelism: data_parallel_replicate_degree %lld x data_parallel_shard_degree %lld x "
        "tensor_parallel_degree %lld x pipeline_parallel_degree %lld x context_parallel_degree "
        "%lld: the product of the degrees is %s; it must be the number of ranks, %d",
        (long long)degrees[AXIS_dp_replicate], (long long)degrees[AXIS_dp_shard],
        (long long)degrees[AXIS_tp], (long long)degrees[AXIS_pp], (long long)degrees[AXIS_cp],
        made.data, size);
    text_release(&made);
    return st;
}

enum status mesh_resolve(struct mesh *m, const struct parallelism_config *c, int rank, int size)
{
    int64_t degrees[AXIS_COUNT];
    read_degrees(c, degrees);
    if (degrees[AXIS_dp_shard] == 0)
        FAIL(CONFIG, "parallelism.data_parallel_shard_degree = 0: must be -1 or at least 1");
    int64_t all = product(degrees);
    bool open = degrees[AXIS_dp_shard] < 0;
    if (!all || all > size || (open ? size % all != 0 : all != size))
        return fail_product(degrees, all, size);
    if (open) degrees[AXIS_dp_shard] = size / all;
    for (enum axis a = 0; a < AXIS_COUNT; a++) m->degree[a] = (int)degrees[a];
    mesh_set_rank(m, rank);
    return STATUS_OK;
}

struct mesh mesh_single_rank(void)
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

void mesh_set_rank(struct mesh *m, int rank)
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

const char *mesh_group_name(enum group g) { return rows[g].name; }

/* The rank's coordinates on the axes of the bit mask `axes`, as one number. */
static int index_on(const struct mesh *m, unsigned axes)
{
    int index = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (axes & 1u << a) index = index * m->degree[a] + m->at[a];
    return index;
}

int mesh_group_size(const struct mesh *m, enum group g)
{
    int size = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (rows[g].axes & 1u << a) size *= m->degree[a];
    return size;
}

int mesh_group_rank(const struct mesh *m, enum group g) { return index_on(m, rows[g].axes); }
int mesh_group_color(const struct mesh *m, enum group g) { return index_on(m, ~rows[g].axes); }

int mesh_group_on_node(const struct mesh *m, enum group g, int node_ranks)
{
    int begin = mesh_rank(m, m->at) / node_ranks * node_ranks, near = 0;
    int ranks = mesh_group_size(m, GROUP_world) - begin;
    struct mesh other = *m;
    for (int i = 0; i < node_ranks && i < ranks; i++) {
        mesh_set_rank(&other, begin + i);
        near += mesh_group_color(&other, g) == mesh_group_color(m, g);
    }
    return near;
}
