// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/rng.h"
#include "comm/comm.h"
#include "parallel/elastic.h"

enum { MAX_MICROBATCHES = 256 };

static double gradient(int number) { return rng_uniform(5, RNG_TEST, 0, (uint64_t)number) - 0.5; }

/* The sum of a step, as one element of the ranks' gradients: reductions in the order of comm.h, and
 * this rank's stack. */
static double step_sum(const struct elastic *e, bool direct)
{
    double stack[16] = {0}, parts[MAX_MICROBATCHES], sum;
    int buffers = elastic_num_buffers(e, direct), top = 0;
    for (int i = 0; i < (int)e->microbatches / e->readers; i++) {
        int buffer = elastic_buffer(e, i), merges = elastic_merges(e, i);
        for (int r = 0; r < e->readers; r++) parts[r] = gradient(i * e->readers + r);
        comm_sum_doubles(parts, e->readers, 1, &sum);
        if (direct && merges) {
            stack[--buffer] += sum;
            merges--;
        } else {
            stack[buffer] = sum;
        }
        if (buffer > top) top = buffer;
        for (; merges; merges--, buffer--) stack[buffer - 1] += stack[buffer];
    }
    CHECK(top == buffers - 1);
    return stack[0];
}

/* The balanced tree over microbatches [first, first + count). */
static double tree_sum(int first, int count)
{
    if (count == 1) return gradient(first);
    return tree_sum(first, count / 2) + tree_sum(first + count / 2, count / 2);
}

TEST(elastic_sums_have_the_same_bits_for_all_numbers_of_readers)
{
    bool matters = false;
    for (int canonical = 1; canonical <= 64; canonical *= 2)
        for (int trees = 1; trees <= 4; trees++) {
            double want = 0, running = 0;
            for (int i = 0; i < trees; i++) {
                double tree = tree_sum(i * canonical, canonical);
                want = i ? want + tree : tree;
            }
            for (int i = 0; i < trees * canonical; i++) running += gradient(i);
            matters |= running != want;
            for (int readers = 1; readers <= canonical; readers *= 2) {
                struct elastic e = {canonical, trees * canonical, readers, 1};
                CHECK_STATUS(OK, elastic_check(&e));
                CHECK(step_sum(&e, false) == want && step_sum(&e, true) == want);
            }
        }
    CHECK(matters);
}

TEST(elastic_sums_need_a_buffer_for_each_level_above_the_collectives)
{
    CHECK(elastic_num_buffers(&(struct elastic){8, 8, 8, 1}, false) == 1);
    CHECK(elastic_num_buffers(&(struct elastic){8, 8, 4, 1}, false) == 2);
    CHECK(elastic_num_buffers(&(struct elastic){8, 8, 1, 1}, false) == 4);
    CHECK(elastic_num_buffers(&(struct elastic){8, 32, 1, 1}, false) == 5);
    CHECK(elastic_num_buffers(&(struct elastic){8, 32, 8, 1}, true) == 1);
    CHECK(elastic_num_buffers(&(struct elastic){1024, 1024, 2, 1}, true) == 9);
}

TEST(elastic_chooses_the_largest_power_of_two_that_divides_the_microbatches)
{
    CHECK(elastic_choose(1) == 1 && elastic_choose(7) == 1);
    CHECK(elastic_choose(96) == 32 && elastic_choose(64) == 64);
    CHECK(elastic_choose(1 << 20) == 1024);
}

TEST(elastic_check_names_the_closest_numbers)
{
    CHECK_STATUS(CONFIG, elastic_check(&(struct elastic){12, 24, 1, 1}));
    CHECK_MESSAGE("canonical_microbatches = 12");
    CHECK_MESSAGE("; try 8");
    CHECK_STATUS(CONFIG, elastic_check(&(struct elastic){16, 24, 1, 1}));
    CHECK_MESSAGE("24 microbatches");
    CHECK_STATUS(CONFIG, elastic_check(&(struct elastic){8, 24, 3, 1}));
    CHECK_MESSAGE("3 data-parallel ranks");
    CHECK_MESSAGE("; try 2 or 4");
    CHECK_STATUS(CONFIG, elastic_check(&(struct elastic){8, 16, 16, 1}));
    CHECK_MESSAGE("; try 8");
    CHECK_STATUS(CONFIG, elastic_check(&(struct elastic){8, 8, 2, 3}));
    CHECK_MESSAGE("context_parallel_degree = 3");
    CHECK_STATUS(OK, elastic_check(&(struct elastic){0, 0, 3, 3}));
}
