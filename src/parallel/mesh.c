// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh.h"

#include "base/text.h"
#include "parallel/suggest.h"

#include <string.h>

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

const char *mesh_axis_key(enum axis a)
{
    static const char *const keys[] = {
#define X(name, key) key,
        AXIS_LIST(X)
#undef X
    };
    return keys[a];
}

static bool is_layout_of(const int64_t degrees[AXIS_COUNT], int64_t size)
{
    int64_t all = product(degrees);
    return all && all <= size && (degrees[AXIS_dp_shard] < 0 ? size % all == 0 : all == size);
}

/* Degrees of which one axis is varied. */
struct varied_degrees {
    int64_t degrees[AXIS_COUNT];
    enum axis axis;
    int64_t size;
};

static bool fits(int64_t degree, const void *context)
{
    struct varied_degrees v = *(const struct varied_degrees *)context;
    v.degrees[v.axis] = degree;
    return is_layout_of(v.degrees, v.size);
}

/* The numbers of ranks next to `size` that these degrees allow, and how to start them. */
static void add_rank_counts(struct text *out, const int64_t degrees[AXIS_COUNT], int64_t all,
                            int64_t size)
{
    bool open = degrees[AXIS_dp_shard] < 0;
    int64_t below = open ? size / all * all : 0, above = open ? below + all : all;
    if (above > 1 << 24) return;
    if (below)
        text_addf(out, "; start %lld or %lld ranks (--ranks or mpirun -n)", (long long)below,
                  (long long)above);
    else
        text_addf(out, "; start %lld ranks (--ranks or mpirun -n)", (long long)above);
}

/* The first degree that alone can be changed so that the layout has `size` ranks. */
static void add_degrees(struct text *out, const int64_t degrees[AXIS_COUNT], int size)
{
    static const enum axis order[] = {AXIS_dp_shard, AXIS_tp, AXIS_cp, AXIS_pp, AXIS_dp_replicate};
    struct varied_degrees v = {.size = size};
    memcpy(v.degrees, degrees, sizeof v.degrees);
    if (degrees[AXIS_dp_shard] > 0) {
        v.axis = AXIS_dp_shard;
        if (fits(-1, &v)) {
            text_adds(out, ", or set data_parallel_shard_degree = -1 for all remaining ranks");
            return;
        }
    }
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        v.axis = order[i];
        if (degrees[v.axis] <= 1) continue;
        struct suggestion s = suggest_values(degrees[v.axis], 1, size, fits, &v);
        if (!s.values[0]) continue;
        text_addf(out, ", or set %s = %s", mesh_axis_key(v.axis), s.values);
        return;
    }
}

static enum status fail_product(const int64_t degrees[AXIS_COUNT], int64_t all, int size)
{
    bool open = degrees[AXIS_dp_shard] < 0;
    struct text what = {0};
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (degrees[a] > 1)
            text_addf(&what, "%s%s %lld", what.len ? " x " : "", mesh_axis_key(a),
                      (long long)degrees[a]);
    if (!what.len) text_adds(&what, "all degrees 1");
    if (!all)
        text_adds(&what, ": the product of the degrees is more than 2^63");
    else
        text_addf(&what, ": the number of ranks must be %s%lld", open ? "a multiple of " : "",
                  (long long)all);
    text_addf(&what, ", got %d", size);
    if (all) add_rank_counts(&what, degrees, all, size);
    add_degrees(&what, degrees, size);
    enum status st = FAILURE(CONFIG, "parallelism: %s", what.data);
    text_release(&what);
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
    if (!is_layout_of(degrees, size)) return fail_product(degrees, all, size);
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
    int begin = mesh_rank(m, m->at) / node_ranks * node_ranks, on_node = 0;
    int ranks = mesh_group_size(m, GROUP_world) - begin;
    struct mesh other = *m;
    for (int i = 0; i < node_ranks && i < ranks; i++) {
        mesh_set_rank(&other, begin + i);
        on_node += mesh_group_color(&other, g) == mesh_group_color(m, g);
    }
    return on_node;
}
