// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/clock.h"

/* A second: 1e12 FLOPs, 1e9 bytes of memory, 1e8 within a node, 1e7 from each rank's share of the
 * network; nothing takes long to begin. */
static struct clock clock_of(double latency_s)
{
    struct hardware h = {.bf16_flops = 2e12,
                         .f32_flops = 2e11,
                         .efficiency = 0.5,
                         .memory_rate = 1e9 / CLOCK_MEMORY_SHARE,
                         .node_rate = 1e8 / CLOCK_LINK_SHARE,
                         .network_rate = 1e7 / CLOCK_LINK_SHARE,
                         .latency_s = latency_s};
    return (struct clock){.hardware = h};
}

static const struct way near4 = {GROUP_shard, 4, 4}, far4 = {GROUP_shard, 4, 1},
                        both4 = {GROUP_shard, 4, 2}, tp4 = {GROUP_tp, 4, 4};
static const struct transfer gather = {.kind = TRANSFER_all_gather},
                             other = {.kind = TRANSFER_reduce_scatter};

TEST(clock_takes_the_longer_of_products_and_memory)
{
    struct clock c = clock_of(0);
    clock_compute(&c, BF16, 3e12, 1e9);
    CHECK_NEAR(c.now, 3, 1e-12);
    clock_compute(&c, BF16, 1e12, 2e9);
    CHECK_NEAR(c.now, 5, 1e-12);
    clock_compute(&c, BF16, 0, 1e9);
    clock_compute(&c, F32, 1e11, 0);
    CHECK_NEAR(c.now, 7, 1e-12);
    CHECK_NEAR(c.products, 4, 1e-12);
    CHECK_NEAR(c.memory, 3, 1e-12);
}

TEST(clock_hides_what_moves_while_it_computes)
{
    struct clock c = clock_of(0);
    clock_start(&c, &gather, &near4, 2e8); /* 2 s */
    clock_compute(&c, BF16, 1.5e12, 0);
    clock_wait(&c, &gather);
    CHECK_NEAR(c.now, 2, 1e-12);
    CHECK_NEAR(c.exposed[GROUP_shard], 0.5, 1e-12);
    clock_start(&c, &gather, &near4, 1e8);
    clock_compute(&c, BF16, 1.5e12, 0);
    clock_wait(&c, &gather);
    CHECK_NEAR(c.now, 3.5, 1e-12);
    CHECK_NEAR(c.exposed[GROUP_shard], 0.5, 1e-12);
    clock_wait(&c, &gather); /* is over */
    CHECK_NEAR(c.now, 3.5, 1e-12);
    clock_release(&c);
}

TEST(clock_lets_transfers_over_the_same_links_take_turns)
{
    struct clock c = clock_of(0);
    clock_start(&c, &gather, &near4, 1e8);
    clock_start(&c, &other, &tp4, 2e8);
    clock_wait(&c, &other);
    CHECK_NEAR(c.now, 3, 1e-12);
    CHECK_NEAR(c.exposed[GROUP_tp], 3, 1e-12);
    clock_wait(&c, &gather);
    CHECK_NEAR(c.now, 3, 1e-12);
    /* The network is another matter. */
    clock_start(&c, &gather, &far4, 1e7);
    clock_start(&c, &other, &tp4, 1e8);
    clock_wait(&c, &gather);
    clock_wait(&c, &other);
    CHECK_NEAR(c.now, 4, 1e-12);
    clock_release(&c);
}

TEST(clock_takes_what_leaves_the_node_over_the_network_of_every_rank_there)
{
    const struct {
        const struct way *way;
        enum transfer_kind kind;
        double seconds;
    } cases[] = {
        {&near4, TRANSFER_all_gather, 1},     /* 1e8 of 1e8 */
        {&far4, TRANSFER_all_gather, 10},     /* 1e8 of 1e7 */
        {&both4, TRANSFER_reduce_scatter, 5}, /* two ranks carry them */
        {&far4, TRANSFER_receive, 10},        {&near4, TRANSFER_receive, 1},
        {&near4, TRANSFER_send, 0}, /* the receiver counts it */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct clock c = clock_of(0);
        struct transfer t = {.kind = cases[i].kind};
        clock_start(&c, &t, cases[i].way, 1e8);
        clock_wait(&c, &t);
        CHECK_NEAR(c.now, cases[i].seconds, 1e-12);
        clock_release(&c);
    }
}

TEST(clock_counts_the_steps_a_collective_needs)
{
    struct clock c = clock_of(0.25);
    struct transfer sum = {.kind = TRANSFER_all_reduce};
    clock_start(&c, &gather, &near4, 0); /* 2 steps */
    clock_wait(&c, &gather);
    CHECK_NEAR(c.now, 0.5, 1e-12);
    clock_start(&c, &sum, &(struct way){GROUP_replicate, 5, 5}, 0); /* 3 there, 3 back */
    clock_wait(&c, &sum);
    CHECK_NEAR(c.now, 2, 1e-12);
    clock_start(&c, &gather, &(struct way){GROUP_shard, 1, 1}, 0); /* nobody to wait for */
    clock_wait(&c, &gather);
    CHECK_NEAR(c.now, 2, 1e-12);
    clock_release(&c);
}

TEST(clock_keeps_a_pipelines_messages_apart)
{
    struct clock c = clock_of(0);
    struct transfer t = {.kind = TRANSFER_receive};
    clock_start(&c, &t, &(struct way){GROUP_pp, 4, 1}, 1e7);
    clock_wait(&c, &t);
    CHECK_NEAR(c.now, 0, 1e-12);
    CHECK_NEAR(c.message, 1, 1e-12);
    clock_release(&c);
}

TEST(clock_tells_what_is_once_a_step_from_the_micro_batches)
{
    struct clock c = clock_of(0);
    clock_compute(&c, BF16, 1e12, 0);
    clock_update(&c);
    clock_compute(&c, BF16, 0, 2e9);
    clock_update(&c);
    CHECK_NEAR(c.micros, 1, 1e-12);
    CHECK_NEAR(c.now, 3, 1e-12);
    CHECK(c.memory == 0);
}
