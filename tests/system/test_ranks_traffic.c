/* test_ranks_traffic.c -- compares the bytes that a rank receives in a step with formulas, and with
 * what `plan` counts in a simulation of one rank. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "train/training.h"

#include "system/layouts.h"
#include "system/runs.h"

enum { SETTINGS = 40, L = 3, D = 16, T = 16, ROWS = 8, P = 8 };

struct layout_of_ranks {
    const char *name;
    int ranks;
    const char *settings[6];
    enum group group;
    /* Elements of 4 bytes, of that kind over that group; none: compared with plan only. */
    struct formula {
        enum transfer_kind kind;
        size_t (*elements)(const struct training *t);
    } formulas[3];
};

/* --- formulas --- */

static size_t size_of_group(const struct training *t, enum group g)
{
    return (size_t)t->machine.groups.of[g].size;
}
static size_t of_all(const struct training *t) { return t->trainer.model.layout.elements; }
static size_t of_block(const struct training *t)
{
    return t->trainer.model.layout.units[1].elements;
}
static size_t microbatches_of(const struct training *t)
{
    return ROWS / size_of_group(t, GROUP_data);
}
static size_t from_others(const struct training *t, size_t elements)
{
    size_t n = size_of_group(t, GROUP_shard);
    return elements / n * (n - 1);
}

/* Gathered for forward and again for backward, except: backward finds the last two blocks still
 * gathered, and the next microbatch the first two; the embedding is needed in forward only. */
static size_t gathered_twice(const struct training *t)
{
    size_t m = microbatches_of(t), ends = of_all(t) - L * of_block(t);
    return from_others(t, m * ends + (L + L - 2 + (m - 1) * 2 * (L - 2)) * of_block(t));
}
static size_t gathered_once(const struct training *t) { return from_others(t, of_all(t)); }
static size_t reduced_each_time(const struct training *t)
{
    return from_others(t, microbatches_of(t) * of_all(t));
}
/* An all-reduce: a rank receives and sums its 1/n, and then receives the other sums. */
static size_t replicas_summed(const struct training *t)
{
    size_t n = size_of_group(t, GROUP_replicate);
    return 2 * (of_all(t) / n) * (n - 1);
}

/* An all-gather and a reduce-scatter of [T, D] around each half of a block, forward and backward;
 * and for the embedding and the head together. */
static size_t crossed(const struct training *t, size_t times)
{
    size_t n = size_of_group(t, GROUP_tp);
    return microbatches_of(t) * times * (size_t)(T * D) / n * (n - 1);
}
static size_t crossed_by_sums(const struct training *t) { return crossed(t, 4 * L + 2); }
/* Also four numbers for each token, from every shard of the vocabulary. */
static size_t crossed_by_gathers(const struct training *t)
{
    return crossed(t, 4 * L + 2) + microbatches_of(t) * T * 4 * (size_of_group(t, GROUP_tp) - 1);
}
static size_t norms_summed(const struct training *t)
{
    size_t n = size_of_group(t, GROUP_tp);
    return 2 * ((2 * L + 1) * D / n) * (n - 1);
}

/* Keys and values go round the ring forward; they and their gradients backward. */
static size_t ring_received(const struct training *t)
{
    size_t n = size_of_group(t, GROUP_cp);
    return microbatches_of(t) * L * (n - 1) * (2 + 4) * (T / n) * P;
}
/* A residual stream [T, D] from each neighboring stage. */
static size_t stage_received(const struct training *t)
{
    const struct comm *pp = &t->machine.groups.of[GROUP_pp];
    size_t neighbors = pp->rank > 0 && pp->rank < pp->size - 1 ? 2 : 1;
    return microbatches_of(t) * neighbors * T * D;
}

/* Multiplications of an iteration on a matrix. */
static size_t muon_cost(const struct tensor_slot *s)
{
    size_t m = (size_t)(s->rows < s->columns ? s->rows : s->columns);
    return m * (2 * s->elements + m * m);
}

/* How many matrices cost more than tensor i, or as much and come before it. */
static size_t muon_position(const struct training *t, int i)
{
    const struct layout *l = &t->trainer.whole;
    size_t cost = muon_cost(&l->tensors[i]), before = 0;
    for (int k = 0; k < l->num_tensors; k++) {
        if (!optim_is_muon(&t->config.optimizer, l->tensors[k].id)) continue;
        size_t other = muon_cost(&l->tensors[k]);
        before += other > cost || (other == cost && k < i);
    }
    return before;
}

/* Each rank makes every n-th matrix whole, and receives its part of the others' updates. */
static size_t muon_received(const struct training *t, enum group group)
{
    const struct trainer *x = &t->trainer;
    const struct comm *ranks = &t->machine.groups.of[group];
    size_t all = 0, n = (size_t)ranks->size;
    for (int i = 0; i < x->whole.num_tensors; i++) {
        const struct tensor_slot *matrix = &x->whole.tensors[i];
        size_t held = 0;
        if (!optim_is_muon(&t->config.optimizer, matrix->id)) continue;
        for (size_t k = 0; k < x->shard.count; k++)
            if (x->shard.runs[k].tensor == i) held += x->shard.runs[k].count;
        bool is_mine = muon_position(t, i) % n == (size_t)ranks->rank;
        all += is_mine ? matrix->elements - held : held;
    }
    return all;
}
static size_t muon_received_of_shards(const struct training *t)
{
    return muon_received(t, GROUP_shard);
}
static size_t muon_received_of_slices(const struct training *t)
{
    return muon_received(t, GROUP_tp);
}

#define MUON       "optimizer.name=Muon"
#define NO_REDO    "activation_checkpoint.mode=none"
#define NEVER      "parallelism.fsdp_reshard_after_forward=never"
#define CHUNKS     "parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define GATHER     TRANSFER_all_gather
#define REDUCE     TRANSFER_reduce_scatter
#define SUM        TRANSFER_all_reduce
#define SHIFT      TRANSFER_shift
#define RECEIVE    TRANSFER_receive
#define ALL_TO_ALL TRANSFER_all_to_all

static const struct layout_of_ranks layouts[] = {
    {"FSDP 2", 2, {SHARD(2)}, GROUP_shard, {{GATHER, gathered_twice}, {REDUCE, reduced_each_time}}},
    {"FSDP 4", 4, {SHARD(4)}, GROUP_shard, {{GATHER, gathered_twice}, {REDUCE, reduced_each_time}}},
    {"ZeRO-2 2",
     2,
     {SHARD(2), NEVER},
     GROUP_shard,
     {{GATHER, gathered_once}, {REDUCE, reduced_each_time}}},
    {"ZeRO-1 2",
     2,
     {SHARD(2), ZERO1},
     GROUP_shard,
     {{GATHER, gathered_once}, {REDUCE, gathered_once}}},
    {"DDP 2", 2, {COPIES(2), SHARD(1)}, GROUP_replicate, {{SUM, replicas_summed}}},
    {"DDP 4", 4, {COPIES(4), SHARD(1)}, GROUP_replicate, {{SUM, replicas_summed}}},
    {"TP 2",
     2,
     {TP(2), NO_REDO},
     GROUP_tp,
     {{GATHER, crossed_by_gathers}, {REDUCE, crossed_by_sums}, {SUM, norms_summed}}},
    {"CP 2", 2, {CP(2), NO_REDO}, GROUP_cp, {{SHIFT, ring_received}}},
    {"CP 4", 4, {CP(4), NO_REDO}, GROUP_cp, {{SHIFT, ring_received}}},
    {"PP 2", 2, {PP(2)}, GROUP_pp, {{RECEIVE, stage_received}}},
    {"PP 4", 4, {PP(4)}, GROUP_pp, {{RECEIVE, stage_received}}},
    {"Muon, FSDP 2", 2, {SHARD(2), MUON}, GROUP_shard, {{ALL_TO_ALL, muon_received_of_shards}}},
    {"Muon, FSDP 4", 4, {SHARD(4), MUON}, GROUP_shard, {{ALL_TO_ALL, muon_received_of_shards}}},
    {"Muon, TP 2", 2, {TP(2), MUON}, GROUP_tp, {{ALL_TO_ALL, muon_received_of_slices}}},
    {.name = "Muon, FSDP 2 x TP 2", .ranks = 4, .settings = {SHARD(2), TP(2), MUON}},
    {.name = "HSDP 2 x 2 x TP 2", .ranks = 8, .settings = {COPIES(2), SHARD(2), TP(2)}},
    {.name = "TP 4, heads of keys twice", .ranks = 4, .settings = {TP(4)}},
    {.name = "CP 2 x TP 2 x FSDP 2", .ranks = 8, .settings = {CP(2), TP(2), SHARD(2)}},
    {.name = "PP 2, chunks, x FSDP 2", .ranks = 4, .settings = {PP(2), SHARD(2), CHUNKS}},
    {.name = "PP 2 x CP 2 x TP 2", .ranks = 8, .settings = {PP(2), CP(2), TP(2)}},
    {.name = "PP 2 x DDP 2, tied",
     .ranks = 4,
     .settings = {PP(2), COPIES(2), SHARD(1), "model.tie_embeddings=true"}},
};

static const enum group counted[] = {GROUP_shard, GROUP_replicate, GROUP_tp, GROUP_cp, GROUP_pp};
enum { COUNTED = sizeof counted / sizeof *counted };

struct traffic {
    struct comm_counts of[COUNTED];
};

static void read_counts(const struct groups *g, struct traffic *t)
{
    for (int i = 0; i < COUNTED; i++) t->of[i] = *g->of[counted[i]].counts;
}

static void add_counts(const struct comm *part, struct comm_counts *of)
{
    for (enum transfer_kind k = 0; k < TRANSFER_COUNT && part->counts; k++)
        of->calls[k] += part->counts->calls[k], of->bytes[k] += part->counts->bytes[k];
}

/* Groups split from a group have counts of their own; in a plan these are the group's. */
static void read_traffic(const struct training *t, struct traffic *to)
{
    read_counts(&t->machine.groups, to);
    for (int i = 0; i < COUNTED; i++) {
        if (counted[i] == GROUP_tp) add_counts(&t->trainer.kv_head_peers, &to->of[i]);
        if (counted[i] == GROUP_pp) add_counts(&t->trainer.embedding_peers, &to->of[i]);
    }
}

/* The same in a simulation. */
static enum status plan_traffic(const struct training *t, struct traffic *planned)
{
    struct machine m = {.ops = t->machine.ops, .mesh = t->machine.mesh};
    struct memory_plan memory;
    TRY(cpu_queue_open(&m.queue, 1, 0));
    groups_init_simulated(&m.groups, &m.mesh);
    TRY(trainer_plan(&t->config, &t->trainer.shape, &m, &memory));
    read_counts(&m.groups, planned);
    cpu_queue_close(m.queue);
    return STATUS_OK;
}

struct traffic_case {
    const struct layout_of_ranks *layout;
    const char *settings[SETTINGS];
    int num_settings;
    uint64_t bytes; /* of all kinds, received by the last rank */
};

static enum status compare_traffic(const struct comm *world, void *context)
{
    struct traffic_case *q = context;
    const struct layout_of_ranks *l = q->layout;
    struct training t;
    struct step_result s;
    struct traffic before, after, planned;
    TRY(training_open_rank(&t, world, q->settings, q->num_settings));
    for (int step = 0; step < 2; step++) { /* all steps have the same traffic */
        read_traffic(&t, &before);
        TRY(trainer_step(&t.trainer, t.loader, &s));
    }
    read_traffic(&t, &after);
    TRY(plan_traffic(&t, &planned));
    uint64_t all = 0;
    for (int i = 0; i < COUNTED; i++)
        for (enum transfer_kind k = 0; k < TRANSFER_COUNT; k++) {
            uint64_t bytes = after.of[i].bytes[k] - before.of[i].bytes[k];
            uint64_t calls = after.of[i].calls[k] - before.of[i].calls[k];
            if (bytes != planned.of[i].bytes[k] || (bytes && calls != planned.of[i].calls[k]))
                FAIL(DATA, "rank %d, %s over %s: %llu bytes, planned %llu", world->rank,
                     transfer_name(k), mesh_group_name(counted[i]), (unsigned long long)bytes,
                     (unsigned long long)planned.of[i].bytes[k]);
            if (counted[i] != l->group) continue;
            for (int f = 0; f < 3; f++)
                if (l->formulas[f].elements && l->formulas[f].kind == k &&
                    bytes != 4 * l->formulas[f].elements(&t))
                    FAIL(DATA, "rank %d, %s over %s: %llu bytes, formula %zu", world->rank,
                         transfer_name(k), mesh_group_name(counted[i]), (unsigned long long)bytes,
                         4 * l->formulas[f].elements(&t));
            all += bytes;
        }
    if (world->rank == world->size - 1) q->bytes = all;
    training_close(&t);
    return STATUS_OK;
}

TEST(traffic_of_a_step_matches_plan_and_formulas)
{
    static const char *const tiny[] = {TRAINING_OF_RANKS};
    char data[256];
    snprintf(data, sizeof data, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(data, '=') + 1, 60000);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct traffic_case q = {.layout = &layouts[i], .settings = {data}, .num_settings = 1};
        for (size_t k = 0; k < sizeof tiny / sizeof *tiny; k++)
            q.settings[q.num_settings++] = tiny[k];
        for (int k = 0; k < 6 && layouts[i].settings[k]; k++)
            q.settings[q.num_settings++] = layouts[i].settings[k];
        CHECK_STATUS(OK, ranks_run(layouts[i].ranks, compare_traffic, &q));
        if (layouts[i].formulas[0].elements)
            print_message("%-12s %s: %llu bytes a step\n", layouts[i].name,
                          mesh_group_name(layouts[i].group), (unsigned long long)q.bytes);
    }
}
