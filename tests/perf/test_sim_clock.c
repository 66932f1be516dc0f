// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "perf/sim_clock.h"

/* Per second: 1e12 FLOPs in bf16, 1e11 in f32, 1e9 bytes of memory, 1e8 over a node's links, 1e7
 * over a rank's share of the network. */
static struct sim_clock clock_of(double latency_s)
{
    struct hardware h = {.bf16_flops = 2e12,
                         .f32_flops = 2e11,
                         .efficiency = 0.5,
                         .memory_bandwidth = 1e9 / SIM_CLOCK_MEMORY_EFFICIENCY,
                         .node_bandwidth = 1e8 / SIM_CLOCK_LINK_EFFICIENCY,
                         .network_bandwidth = 1e7 / SIM_CLOCK_LINK_EFFICIENCY,
                         .host_bandwidth = 1e8 / SIM_CLOCK_LINK_EFFICIENCY,
                         .latency_s = latency_s};
    return (struct sim_clock){.hardware = h};
}

static const struct sim_group near4 = {GROUP_shard, 4, 4}, far4 = {GROUP_shard, 4, 1},
                              both4 = {GROUP_shard, 4, 2}, tp4 = {GROUP_tp, 4, 4};
static const struct transfer gather = {.kind = TRANSFER_all_gather},
                             other = {.kind = TRANSFER_reduce_scatter};

TEST(sim_clock_takes_the_longer_of_compute_and_memory)
{
    struct sim_clock c = clock_of(0);
    sim_clock_compute(&c, BF16, 3e12, 1e9);
    CHECK_NEAR(c.now, 3, 1e-12);
    sim_clock_compute(&c, BF16, 1e12, 2e9);
    CHECK_NEAR(c.now, 5, 1e-12);
    sim_clock_compute(&c, BF16, 0, 1e9);
    sim_clock_compute(&c, F32, 1e11, 0);
    CHECK_NEAR(c.now, 7, 1e-12);
    CHECK_NEAR(c.matmul_s, 4, 1e-12);
    CHECK_NEAR(c.memory_s, 3, 1e-12);
}

TEST(sim_clock_overlaps_transfers_with_computation)
{
    struct sim_clock c = clock_of(0);
    sim_clock_start_transfer(&c, &gather, &near4, 2e8); /* 2 s */
    sim_clock_compute(&c, BF16, 1.5e12, 0);
    sim_clock_wait_transfer(&c, &gather);
    CHECK_NEAR(c.now, 2, 1e-12);
    CHECK_NEAR(c.exposed_s[GROUP_shard], 0.5, 1e-12);
    sim_clock_start_transfer(&c, &gather, &near4, 1e8);
    sim_clock_compute(&c, BF16, 1.5e12, 0);
    sim_clock_wait_transfer(&c, &gather);
    CHECK_NEAR(c.now, 3.5, 1e-12);
    CHECK_NEAR(c.exposed_s[GROUP_shard], 0.5, 1e-12);
    sim_clock_wait_transfer(&c, &gather); /* already waited for */
    CHECK_NEAR(c.now, 3.5, 1e-12);
    sim_clock_release(&c);
}

TEST(sim_clock_serializes_transfers_over_the_same_links)
{
    struct sim_clock c = clock_of(0);
    sim_clock_start_transfer(&c, &gather, &near4, 1e8);
    sim_clock_start_transfer(&c, &other, &tp4, 2e8);
    sim_clock_wait_transfer(&c, &other);
    CHECK_NEAR(c.now, 3, 1e-12);
    CHECK_NEAR(c.exposed_s[GROUP_tp], 3, 1e-12);
    sim_clock_wait_transfer(&c, &gather);
    CHECK_NEAR(c.now, 3, 1e-12);
    /* The network is independent of them. */
    sim_clock_start_transfer(&c, &gather, &far4, 1e7);
    sim_clock_start_transfer(&c, &other, &tp4, 1e8);
    sim_clock_wait_transfer(&c, &gather);
    sim_clock_wait_transfer(&c, &other);
    CHECK_NEAR(c.now, 4, 1e-12);
    sim_clock_release(&c);
}

TEST(sim_clock_divides_inter_node_traffic_among_the_ranks_of_a_node)
{
    const struct {
        const struct sim_group *way;
        enum transfer_kind kind;
        double seconds;
    } cases[] = {
        {&near4, TRANSFER_all_gather, 1},     /* 1e8 of 1e8 */
        {&far4, TRANSFER_all_gather, 10},     /* 1e8 of 1e7 */
        {&both4, TRANSFER_reduce_scatter, 5}, /* two ranks share the load */
        {&near4, TRANSFER_all_to_all, 1},
        {&far4, TRANSFER_all_to_all, 10},
        {&both4, TRANSFER_all_to_all, 10 * 2 / 3.0}, /* two of three peers are on another node */
        {&far4, TRANSFER_shift, 10},
        {&far4, TRANSFER_receive, 10},
        {&near4, TRANSFER_receive, 1},
        {&near4, TRANSFER_send, 0}, /* the receiver counts it */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sim_clock c = clock_of(0);
        struct transfer t = {.kind = cases[i].kind};
        sim_clock_start_transfer(&c, &t, cases[i].way, 1e8);
        sim_clock_wait_transfer(&c, &t);
        CHECK_NEAR(c.now, cases[i].seconds, 1e-12);
        sim_clock_release(&c);
    }
}

TEST(sim_clock_counts_latency_per_step_of_a_collective)
{
    struct sim_clock c = clock_of(0.25);
    struct transfer sum = {.kind = TRANSFER_all_reduce};
    sim_clock_start_transfer(&c, &gather, &near4, 0); /* 2 steps */
    sim_clock_wait_transfer(&c, &gather);
    CHECK_NEAR(c.now, 0.5, 1e-12);
    sim_clock_start_transfer(&c, &sum, &(struct sim_group){GROUP_replicate, 5, 5},
                             0); /* 3 steps to reduce, 3 to broadcast */
    sim_clock_wait_transfer(&c, &sum);
    CHECK_NEAR(c.now, 2, 1e-12);
    sim_clock_start_transfer(&c, &gather, &(struct sim_group){GROUP_shard, 1, 1},
                             0); /* a group of one */
    sim_clock_wait_transfer(&c, &gather);
    CHECK_NEAR(c.now, 2, 1e-12);
    struct transfer exchange = {.kind = TRANSFER_all_to_all};
    sim_clock_start_transfer(&c, &exchange, &near4, 0); /* with all ranks at the same time */
    sim_clock_wait_transfer(&c, &exchange);
    CHECK_NEAR(c.now, 2.25, 1e-12);
    sim_clock_release(&c);
}

TEST(sim_clock_reports_pipeline_messages_separately)
{
    struct sim_clock c = clock_of(0);
    struct transfer t = {.kind = TRANSFER_receive};
    sim_clock_start_transfer(&c, &t, &(struct sim_group){GROUP_pp, 4, 1}, 1e7);
    sim_clock_wait_transfer(&c, &t);
    CHECK_NEAR(c.now, 0, 1e-12);
    CHECK_NEAR(c.p2p_s, 1, 1e-12);
    sim_clock_release(&c);
}

TEST(sim_clock_separates_microbatches_from_the_update)
{
    struct sim_clock c = clock_of(0);
    sim_clock_compute(&c, BF16, 1e12, 0);
    sim_clock_end_microbatches(&c);
    sim_clock_compute(&c, BF16, 0, 2e9);
    sim_clock_end_microbatches(&c);
    CHECK_NEAR(c.microbatches_s, 1, 1e-12);
    CHECK_NEAR(c.now, 3, 1e-12);
    CHECK(c.memory_s == 0);
}

TEST(sim_clock_overlaps_copies_of_both_directions_with_computation)
{
    struct sim_clock c = clock_of(0);
    struct copy_event in = {0}, out = {0}, computed = {0};
    sim_clock_wait_event(&c, STREAM_QUEUE, &in); /* not recorded yet */
    sim_clock_copy(&c, STREAM_IN, 2e8);          /* 2 s */
    sim_clock_record(&c, STREAM_IN, &in);
    sim_clock_compute(&c, BF16, 1e12, 0);
    sim_clock_record(&c, STREAM_QUEUE, &computed);
    sim_clock_wait_event(&c, STREAM_OUT, &computed);
    sim_clock_copy(&c, STREAM_OUT, 3e8); /* from 1 s to 4 s */
    sim_clock_record(&c, STREAM_OUT, &out);
    sim_clock_wait_event(&c, STREAM_QUEUE, &in);
    CHECK_NEAR(c.now, 2, 1e-12);
    CHECK_NEAR(c.host_s, 1, 1e-12);
    sim_clock_compute(&c, BF16, 1.5e12, 0);
    sim_clock_wait_event(&c, STREAM_QUEUE, &out);
    CHECK_NEAR(c.now, 4, 1e-12);
    CHECK_NEAR(c.host_s, 1.5, 1e-12);
    sim_clock_end_microbatches(&c);
    sim_clock_copy(&c, STREAM_OUT, 1e8);
    sim_clock_record(&c, STREAM_OUT, &out);
    sim_clock_wait_event(&c, STREAM_QUEUE, &out);
    CHECK_NEAR(c.now, 5, 1e-12); /* part of the update */
    CHECK_NEAR(c.host_s, 1.5, 1e-12);
    sim_clock_release(&c);
}
