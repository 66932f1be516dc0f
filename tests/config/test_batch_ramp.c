// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "config/batch_ramp.h"

/* Expected values: tests/oracle/batch_ramp.py. */
static const struct known_ramp {
    int64_t start, increment, samples, global, total; /* total: samples of the run */
    int64_t steps, rows, smaller;
    uint64_t hash;
} known[] = {
    {16, 8, 300000, 1024, 2000000, 2979, 1999936, 1319, 15553176217614274192u},
    {16, 16, 5859375, 1536, 146484375, 111354, 146483296, 19802, 8129167285489399104u},
    {2, 2, 7, 8, 60, 9, 56, 3, 1764593985476u},
    {1, 3, 7, 10, 100, 13, 97, 4, 814005460667964967u},
    {8, 8, 1, 16, 64, 4, 56, 1, 254216u},
    {32, 32, 1000, 64, 500, 16, 512, 16, 11047301959788011520u},
    {3, 1, 999999, 4, 12345, 4116, 12348, 4116, 5601831379738446784u},
};

static struct batch_ramp ramp_of(const struct known_ramp *k)
{
    return (struct batch_ramp){k->global, k->start, k->increment, k->samples};
}

TEST(batch_ramp_equals_megatrons_step_by_step)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct known_ramp *k = &known[i];
        const struct batch_ramp r = ramp_of(k);
        int64_t done = 0, smaller = 0;
        uint64_t hash = 0;
        CHECK(batch_ramp_steps_of_samples(&r, k->total) == k->steps);
        for (int64_t step = 0; step < k->steps; step++) {
            int64_t rows = batch_ramp_rows(&r, done);
            done += rows, smaller += rows < k->global;
            hash = hash * 31 + (uint64_t)rows;
        }
        CHECK(done == k->rows && smaller == k->smaller && hash == k->hash);
    }
}

TEST(batch_ramp_advances_by_sizes_as_by_single_steps)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct batch_ramp r = ramp_of(&known[i]);
        int64_t done = 0;
        for (int64_t step = 0; step < 4000; step++) {
            if (step < 50 || step % 97 == 0) {
                CHECK(batch_ramp_advance(&r, 0, step) == done);
                CHECK(batch_ramp_steps_to(&r, 0, done) == step);
                CHECK(batch_ramp_steps_to(&r, 0, done + 1) == step + 1);
            }
            done += batch_ramp_rows(&r, done);
        }
        CHECK(batch_ramp_advance(&r, known[i].rows, 3) ==
              known[i].rows + 3 * batch_ramp_rows(&r, known[i].rows));
        int64_t full = batch_ramp_full(&r);
        CHECK(batch_ramp_rows(&r, full) == r.global && batch_ramp_rows(&r, full - 1) < r.global);
    }
}

TEST(batch_ramp_without_a_ramp_is_constant)
{
    const struct training_config c = {.global_batch_size = 6};
    const struct batch_ramp r = batch_ramp_of(&c, 6);
    CHECK_STATUS(OK, batch_ramp_check(&c));
    CHECK(batch_ramp_rows(&r, 0) == 6 && batch_ramp_rows(&r, 1 << 20) == 6);
    CHECK(batch_ramp_full(&r) == 0 && batch_ramp_steps_to(&r, 0, 13) == 3);
    CHECK(batch_ramp_advance(&r, 12, 3) == 30 && batch_ramp_advance(&r, 12, 0) == 12);
    CHECK(batch_ramp_steps_of_samples(&r, 13) == 2);
    CHECK(batch_ramp_advance(&r, 0, 1LL << 62) == INT64_MAX);
}

TEST(batch_ramp_rejects_sizes_that_do_not_reach_the_global_batch)
{
    static const struct {
        int64_t global, ramp[3];
        size_t count;
        const char *message;
    } cases[] = {
        {16, {8, 8}, 2, "expected 3 numbers [start, increment, samples], got 2"},
        {-1, {8, 8, 100}, 3, "requires training.global_batch_size"},
        {8, {8, 8, 100}, 3, "start = 8: must be less than training.global_batch_size = 8"},
        {20, {8, 8, 100}, 3, "increment = 8: must divide the 12 rows from start = 8"},
        {1 << 20, {1, 1, 100}, 3, "increment = 1 makes 1048576 sizes of a step"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t ramp[3] = {cases[i].ramp[0], cases[i].ramp[1], cases[i].ramp[2]};
        const struct training_config c = {.global_batch_size = cases[i].global,
                                          .batch_ramp = {ramp, cases[i].count}};
        CHECK_STATUS(CONFIG, batch_ramp_check(&c));
        CHECK_MESSAGE(cases[i].message);
    }
}

TEST(batch_ramp_describes_itself)
{
    struct text t = {0};
    const struct batch_ramp r = ramp_of(&known[0]);
    batch_ramp_describe(&r, &t);
    CHECK(!strcmp(t.data, "16 to 1024 rows per step in 126 increments over 300000 rows"));
    text_release(&t);
}
