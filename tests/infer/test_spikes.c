// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "infer/spikes.h"

static struct spikes measure(const char *path, uint64_t most)
{
    const struct source_config source = {.path = path, .column = "spike_counts"};
    struct corpus d = {.sources = &source, .num_sources = 1, .vocab_size = 256, .max_ids = most};
    struct spikes s;
    CHECK_STATUS(OK, spikes_homogeneous(&d, &s));
    return s;
}

/* Counts 1 2 3 and 4 5 255, of which the last looks like a separator. */
TEST(spikes_homogeneous_uses_each_neurons_mean_rate_in_its_session)
{
    const char path[] = "tests/oracle/data/parquet/documents.parquet";
    const double first[] = {1, 2, 3}, second[] = {4, 5};
    double want = 0;
    for (int i = 0; i < 3; i++) want += 2 - first[i] * log(2) + lgamma(first[i] + 1);
    for (int i = 0; i < 2; i++) want += 4.5 - second[i] * log(4.5) + lgamma(second[i] + 1);
    struct spikes s = measure(path, 9);
    CHECK(s.counts == 5 && s.spikes == 15);
    CHECK_NEAR(s.loss_sum, want, 1e-12);
    /* The first bin and the next separator, still with the rates of the whole session. */
    s = measure(path, 4);
    want = 2 - log(2) + 4.5 - 4 * log(4.5) + lgamma(5);
    CHECK(s.counts == 2 && s.spikes == 5);
    CHECK_NEAR(s.loss_sum, want, 1e-12);
}

/* The reference was computed with NumPy and math.lgamma. */
TEST(spikes_homogeneous_matches_numpy)
{
    struct spikes s = measure("tests/data/spikes/rodent/test-00000-of-00001.parquet", 0);
    CHECK(s.counts == 1020 && s.spikes == 1040);
    CHECK_NEAR(s.loss_sum, 1663.1264446142638, 1e-9);
}
