/* test_nccl.c -- a run over comm/nccl, with a stub of NCCL that moves data as late as it may
 * (comm/nccl/stub.h), has the bits of a run on the host, since the stub sums in the order of
 * comm.h.  That it ends shows that nothing deadlocks. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/cpu.h"
#include "comm/nccl/nccl.h"
#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "parallel/groups.h"
#include "parallel/pipeline.h"
#include "parallel/replicas.h"
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"

#define SHORT    "training.steps=3", "data.prefetch=0", "validation.steps=1"
#define FLOAT8   "model.converters=[\"float8\"]", "model.ffn_hidden=32"
#define SCHEDULE "parallelism.pipeline_parallel_schedule="

TEST(a_run_over_nccl_has_the_bits_of_a_run_on_the_host)
{
    static const struct {
        int ranks, messages; /* at least: that many were not staged through the host */
        const char *settings[10];
    } runs[] = {
        {2, 0, {SHORT, SHARD(2), HALF}},
        {4, 0, {SHORT, COPIES(2), TP(2)}},
        {4, 0, {SHORT, SHARD(2), TP(2), HALF, FLOAT8}},
        {3, 500, {SHORT, CP(3), "training.seq_len=24"}},
        {4, 500, {SHORT, PP(2), CP(2)}},
        {3, 100, {SHORT, PP(3), SCHEDULE "GPipe"}},
        {2, 100, {SHORT, PP(2), SCHEDULE "Interleaved1F1B", "model.n_layers=4"}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        const char *host = test_folder(), *device = test_folder();
        device_run_train(ON_HOST, runs[i].ranks, runs[i].settings, corpus, host);
        int messages = stub_counts().messages;
        device_run_train(OVER_NCCL, runs[i].ranks, runs[i].settings, corpus, device);
        CHECK(stub_counts().messages - messages >= runs[i].messages);
        device_run_check_same(test_path(host, "checkpoint/step-3"),
                              test_path(device, "checkpoint/step-3"));
        CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
    }
}

/* Two ranks, each with four streams: for messages sent and received in each direction.  Eight
 * stages of a rank with streams of their own would share hardware queues. */
TEST(stages_of_a_rank_share_streams)
{
    const char *settings[] = {SHORT,
                              PP(2),
                              SCHEDULE "Interleaved1F1B",
                              "model.n_layers=16",
                              "parallelism.pipeline_parallel_layers_per_stage=1",
                              NULL};
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    int opened = stub_counts().opened;
    device_run_train(OVER_NCCL, 2, settings, corpus, test_folder());
    CHECK(stub_counts().opened - opened == 2 * 4);
}

struct layout_streams {
    int degree[AXIS_COUNT];
    bool tied;
    int kv_heads, chunks;
    int groups, peers; /* of the rank that has most: with a stream of their own, and without */
};

static enum status check_most_streams(const struct comm *world, const struct nccl *nccl,
                                      const struct layout_streams *l, int each)
{
    int64_t most = nccl_num_streams(nccl, each);
    TRY(comm_all_reduce_int64(world, REDUCE_MAX, &most, 1));
    RANK_CHECK(most == 4 + (1 + each) * l->groups + each * l->peers);
    return STATUS_OK;
}

/* Opens what a run does. */
static enum status count_in_groups(const struct layout_streams *l, const struct groups *g,
                                   struct nccl *nccl)
{
    const struct comm *pp = &g->of[GROUP_pp], *world = &g->of[GROUP_world];
    struct model_shape shape = {.G = l->kv_heads, .tied = l->tied};
    struct pipeline p = {.group = pp, .schedule = {SCHEDULE_1F1B, pp->size, l->chunks, 8}};
    struct comm kv_head_peers, embedding_peers;
    TRY(replicas_split_groups(&g->of[GROUP_tp], pp, &shape, &kv_head_peers, &embedding_peers));
    TRY(pipeline_declare_p2p(&p));
    int64_t streams = nccl_num_streams(nccl, nccl_library_streams);
    TRY(comm_all_reduce_int64(world, REDUCE_SUM, &streams, 1));
    TRY(check_most_streams(world, nccl, l, NCCL_STREAMS));
    TRY(check_most_streams(world, nccl, l, RCCL_STREAMS));
    struct stub_counts now = stub_counts();
    TRY(comm_all_reduce_int64(world, REDUCE_SUM, (int64_t[]){0}, 1)); /* nobody closes before */
    RANK_CHECK(streams == 4 * world->size + now.streams + NCCL_STREAMS * now.comms);
    comm_release(&embedding_peers), comm_release(&kv_head_peers);
    return STATUS_OK;
}

static enum status count_on_rank(const struct comm *world, void *layout)
{
    const struct layout_streams *l = layout;
    struct queue *queue;
    struct nccl *nccl;
    struct groups groups;
    struct mesh mesh;
    memcpy(mesh.degree, l->degree, sizeof mesh.degree);
    mesh_set_rank(&mesh, world->rank);
    TRY(cpu_queue_open(&queue, 1, 0));
    TRY(groups_open(&groups, &mesh, world));
    TRY(nccl_open(&nccl, queue, 1000));
    TRY(groups_wrap_device(&groups, device_run_over_nccl, nccl));
    TRY(count_in_groups(l, &groups, nccl));
    groups_close(&groups);
    nccl_close(nccl);
    cpu_queue_close(queue);
    return STATUS_OK;
}

/* Four of the queue, and those of NCCL or RCCL for each communicator.  A group that makes
 * collectives or shifts, and each channel, has one of its own, too; those split from another have
 * not. */
TEST(a_rank_has_at_most_32_streams_with_rccl_42_whatever_the_layout)
{
    struct layout_streams layouts[] = {
        {{2, 1, 1, 1, 2}, true, 8, 2, 1 + 4, 1},  /* pp 2, tp 2, tied */
        {{1, 1, 1, 1, 4}, false, 2, 1, 1, 1},     /* ranks share key/value heads */
        {{1, 1, 2, 2, 1}, false, 8, 1, 2, 0},     /* shard and cp */
        {{3, 1, 1, 2, 1}, false, 8, 1, 2 + 4, 0}, /* the middle stage of pp, shard, cp */
        {{2, 2, 2, 2, 2}, true, 1, 2, 4 + 4, 2},
    };
    CHECK(4 + 8 * (1 + NCCL_STREAMS) + 2 * NCCL_STREAMS <= NCCL_HARDWARE_QUEUES);
    CHECK(4 + 8 * (1 + RCCL_STREAMS) + 2 * RCCL_STREAMS <= RCCL_HARDWARE_QUEUES);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        int ranks = 1;
        for (enum axis a = 0; a < AXIS_COUNT; a++) ranks *= layouts[i].degree[a];
        CHECK_STATUS(OK, ranks_run(ranks, count_on_rank, &layouts[i]));
    }
}

/* NCCL takes sums in an order of its own; staged transfers do not. */
TEST(elastic_sums_are_refused_over_nccl)
{
    const char *settings[] = {SHORT, SHARD(2), "training.determinism=elastic", NULL};
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    CHECK_STATUS(CONFIG, device_run_try(OVER_NCCL, 2, settings, corpus, test_folder()));
    CHECK_MESSAGE("set device.comm = \"staged\"");
    const char *host = test_folder(), *staged = test_folder();
    device_run_train(ON_HOST, 2, settings, corpus, host);
    device_run_train(OVER_STAGED, 2, settings, corpus, staged);
    device_run_check_same(test_path(host, "checkpoint/step-3"),
                          test_path(staged, "checkpoint/step-3"));
}
