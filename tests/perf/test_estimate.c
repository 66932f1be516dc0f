// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "perf/estimate.h"

enum { PP = 4, MICROS = 8 };

static double replay(enum schedule_kind kind, int pp, int chunks, int micros, double p2p)
{
    struct schedule s = {kind, pp, chunks, micros};
    double forward[PP], backward[PP];
    CHECK_STATUS(OK, schedule_check(&s));
    for (int r = 0; r < pp; r++) forward[r] = 1.0 / chunks, backward[r] = 2.0 / chunks;
    return estimate_pipeline(&s, forward, backward, p2p);
}

TEST(estimate_of_equal_stages_has_the_published_bubble)
{
    for (int pp = 1; pp <= PP; pp++)
        for (int micros = pp; micros <= 40; micros += 3) {
            double work = 3.0 * micros, ahead = (pp - 1) * 3.0;
            CHECK_NEAR(replay(SCHEDULE_1F1B, pp, 1, micros, 0), work + ahead, 1e-12);
            CHECK_NEAR(replay(SCHEDULE_GPipe, pp, 1, micros, 0), work + ahead, 1e-12);
        }
    /* Interleaving divides the bubble by the number of chunks. */
    for (int chunks = 2; chunks <= 4; chunks++)
        CHECK_NEAR(replay(SCHEDULE_Interleaved1F1B, PP, chunks, 16, 0), 3.0 * 16 + 9.0 / chunks,
                   1e-12);
}

TEST(estimate_does_not_replay_the_steady_state)
{
    CHECK_NEAR(replay(SCHEDULE_1F1B, PP, 1, 100000, 0), 3.0 * 100000 + 9, 1e-12);
}

TEST(estimate_of_a_long_pipeline_assumes_no_stalls)
{
    enum { LONG = 1024 };
    struct schedule s = {SCHEDULE_1F1B, LONG, 1, 1 << 16};
    double *forward = heap(2 * LONG * sizeof *forward), *backward = forward + LONG;
    for (int r = 0; r < LONG; r++) forward[r] = 1, backward[r] = 2;
    CHECK_NEAR(estimate_pipeline(&s, forward, backward, 0.5),
               3.0 * (s.num_microbatches + LONG - 1) + (LONG - 1) * 2 * 0.5, 1e-12);
    free(forward);
}

TEST(estimate_waits_for_the_slowest_stage)
{
    struct schedule s = {SCHEDULE_1F1B, PP, 1, MICROS};
    double forward[] = {1, 1, 2, 1}, backward[] = {2, 2, 4, 2};
    /* The slow stage starts after two others, waits a second for the first gradient, and two others
     * end after it. */
    CHECK_NEAR(estimate_pipeline(&s, forward, backward, 0), 2 + 1 + 6 * MICROS + 4, 1e-12);
}

TEST(estimate_counts_messages_in_both_directions)
{
    struct schedule s = {SCHEDULE_1F1B, PP, 1, 1};
    double forward[] = {1, 1, 1, 1}, backward[] = {2, 2, 2, 2};
    CHECK_NEAR(estimate_pipeline(&s, forward, backward, 0.5), 12 + 6 * 0.5, 1e-12);
}

static const struct hardware machine = {.bf16_flops = 1e12,
                                        .f32_flops = 1e12,
                                        .efficiency = 1,
                                        .memory_bandwidth = 1e9 / SIM_CLOCK_MEMORY_EFFICIENCY,
                                        .node_bandwidth = 1e8 / SIM_CLOCK_LINK_EFFICIENCY,
                                        .network_bandwidth = 1e7 / SIM_CLOCK_LINK_EFFICIENCY,
                                        .host_bandwidth = 1e8 / SIM_CLOCK_LINK_EFFICIENCY};

/* Seconds of each kind in a step. */
struct step {
    double matmul, memory, links, network, p2p;
    int pp, microbatches;
    double host;
};

static struct estimate estimate(const struct step *step, const struct hardware *h)
{
    struct sim_clock clocks[PP * RESOURCE_COUNT] = {{.now = 0}};
    struct schedule s = {SCHEDULE_1F1B, step->pp, 1, step->microbatches};
    struct transfer t = {.kind = TRANSFER_all_gather}, hop = {.kind = TRANSFER_receive};
    struct estimate e;
    for (int i = 0; i < step->pp * RESOURCE_COUNT; i++) {
        struct sim_clock *c = &clocks[i];
        c->hardware = estimate_faster_hardware(h, (enum resource)(i % RESOURCE_COUNT));
        sim_clock_start_transfer(c, &hop, &(struct sim_group){GROUP_pp, PP, 1}, step->p2p * 1e7);
        sim_clock_compute(c, BF16, step->matmul * 1e12, 0);
        sim_clock_compute(c, BF16, 0, step->memory * 1e9);
        sim_clock_start_transfer(c, &t, &(struct sim_group){GROUP_tp, 2, 2}, step->links * 1e8);
        sim_clock_wait_transfer(c, &t);
        sim_clock_start_transfer(c, &t, &(struct sim_group){GROUP_shard, 2, 1},
                                 step->network * 1e7);
        sim_clock_wait_transfer(c, &t);
        struct copy_event copied = {0};
        sim_clock_record(c, STREAM_QUEUE, &copied);
        sim_clock_wait_event(c, STREAM_OUT, &copied);
        sim_clock_copy(c, STREAM_OUT, step->host * 1e8);
        sim_clock_record(c, STREAM_OUT, &copied);
        sim_clock_wait_event(c, STREAM_QUEUE, &copied);
        sim_clock_end_microbatches(c);
        sim_clock_compute(c, F32, 0, 0.5e9);
    }
    estimate_make(&e, clocks, &s);
    for (int i = 0; i < step->pp * RESOURCE_COUNT; i++) sim_clock_release(&clocks[i]);
    return e;
}

TEST(estimate_adds_up_and_names_the_bottleneck)
{
    const struct {
        struct step step;
        enum resource limit;
        double seconds;
    } cases[] = {
        {{4, 1, 1, 1, 0, 1, 1, 0}, RESOURCE_matmul, 7.5},
        {{1, 4, 1, 1, 0, 1, 1, 0}, RESOURCE_memory_rate, 7.5},
        {{1, 1, 4, 1, 0, 1, 1, 0}, RESOURCE_node_links, 7.5},
        {{1, 1, 1, 4, 0, 1, 1, 0}, RESOURCE_network, 7.5},
        {{1, 1, 1, 1, 0, 1, 1, 4}, RESOURCE_host_link, 8.5},
        {{1, 0, 0, 0, 0, 4, 1, 0}, RESOURCE_matmul, 4.5},
        {{0.6, 0.2, 0.1, 0.1, 0, 4, 1, 0}, RESOURCE_pipeline, 4.5},
        {{1, 0, 0, 0, 4, 4, 1, 0}, RESOURCE_network, 28.5}, /* six messages */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct estimate e = estimate(&cases[i].step, &machine);
        double sum = e.matmul_s + e.memory_s + e.host_s + e.bubble_s + e.update_s;
        for (enum group g = 0; g < GROUP_COUNT; g++) sum += e.exposed_s[g];
        CHECK_NEAR(e.step_s, cases[i].seconds, 1e-12);
        CHECK_NEAR(sum, e.step_s, 1e-12);
        CHECK(e.limit == cases[i].limit && e.saved > 0 && e.saved < 1);
        CHECK_NEAR(e.update_s, 0.5, 1e-12);
    }
}

TEST(estimate_is_never_longer_on_faster_hardware)
{
    for (int micros = 1; micros <= MICROS; micros++)
        for (int pp = 1; pp <= PP; pp++) {
            struct step step = {3, 1, 2, 1, 0.5, pp, micros, 1};
            double before = estimate(&step, &machine).step_s;
            for (enum resource r = 0; r < RESOURCE_COUNT; r++) {
                struct hardware fast = estimate_faster_hardware(&machine, r);
                CHECK(estimate(&step, &fast).step_s <= before);
            }
        }
}

TEST(estimate_has_a_name_for_every_resource)
{
    CHECK(!strcmp(estimate_resource_name(RESOURCE_network), "network"));
    CHECK(strstr(estimate_resource_advice(RESOURCE_memory_bytes), "than is available"));
}
