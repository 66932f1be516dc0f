// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "parallel/comm_trace.h"

static enum status gather(const struct comm *c)
{
    float x[4] = {0};
    struct transfer t = {TRANSFER_all_gather, F32, 2, .x = x};
    return comm_run(c, &t);
}

/* A 2 x 2 mesh: transfers of its groups before, during and after tracing, and of a group of one. */
static enum status trace_some(const struct comm *world, void *context)
{
    const struct parallelism_config p = {.data_parallel_replicate_degree = 1,
                                         .data_parallel_shard_degree = 2,
                                         .tensor_parallel_degree = 2,
                                         .pipeline_parallel_degree = 1,
                                         .context_parallel_degree = 1};
    struct mesh mesh;
    struct groups groups;
    struct trace trace = {0};
    struct comm_trace traced;
    (void)context;
    TRY(mesh_resolve(&mesh, &p, world->rank, world->size));
    TRY(groups_open(&groups, &mesh, world));
    TRY(gather(&groups.of[GROUP_shard]));
    double begin = clock_monotonic_s();
    comm_trace_begin(&traced, &groups, &trace);
    TRY(gather(&groups.of[GROUP_shard]));
    TRY(gather(&groups.of[GROUP_tp]));
    float alone = 1;
    struct transfer t = {TRANSFER_all_gather, F32, 1, .x = &alone};
    TRY(comm_run(&groups.of[GROUP_pp], &t));
    comm_trace_end(&traced);
    TRY(gather(&groups.of[GROUP_shard]));
    RANK_CHECK(trace.count == 2);
    RANK_CHECK(!strcmp(trace.spans[0].track, "transfers: shard"));
    RANK_CHECK(!strcmp(trace.spans[1].track, "transfers: tp"));
    for (size_t i = 0; i < trace.count; i++) {
        RANK_CHECK(!strcmp(trace.spans[i].name, "all_gather"));
        RANK_CHECK(trace.spans[i].begin_s >= begin);
        RANK_CHECK(trace.spans[i].end_s >= trace.spans[i].begin_s);
    }
    trace_release(&trace);
    groups_close(&groups);
    return STATUS_OK;
}

TEST(comm_trace_records_transfers_as_spans) { CHECK_STATUS(OK, ranks_run(4, trace_some, NULL)); }
