// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "infer/baselines.h"

static struct baselines some(void)
{
    return (struct baselines){.n = 3,
                              .has_spikes = true,
                              .spikes = {.loss_sum = 100, .counts = 40, .spikes = 50},
                              .ngram = {.loss_sum = 90, .tokens = 45},
                              .tokens_counted = 7};
}

static struct json *write_and_parse(const struct baselines *b, const struct evaluation *v)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    struct json *json;
    json_begin_object(&w, NULL, JSON_INLINE);
    baselines_write_json(b, v, &w);
    json_end_object(&w);
    CHECK_STATUS(OK, json_parse(t.data, t.len, "baselines", &json));
    text_release(&t);
    return json;
}

TEST(bits_per_spike_is_the_gain_over_constant_rates)
{
    struct baselines b = some();
    const struct evaluation v = {.loss_sum = 70, .mark_loss_sum = 5, .marks = 5, .tokens = 45};
    struct json *json = write_and_parse(&b, &v);
    CHECK_NEAR(json_number(json_get(json, "bits_per_spike")), (100 - 65) / log(2) / 50, 1e-12);
    CHECK_NEAR(json_number(json_get(json, "count_loss")), 65.0 / 40, 1e-12);
    CHECK_NEAR(json_number(json_get(json, "homogeneous_loss")), 2.5, 1e-12);
    CHECK(json_number(json_get(json, "counts")) == 40);
    CHECK(json_number(json_get(json_get(json, "ngram"), "loss")) == 2);
    CHECK(json_number(json_get(json_get(json, "ngram"), "counted_in")) == 7);
    json_free(json);
}

TEST(sessions_without_a_spike_have_no_bits_per_spike)
{
    struct baselines b = some();
    const struct evaluation v = {.loss_sum = 70, .tokens = 45};
    b.spikes = (struct spikes){0};
    b.n = 0;
    struct json *json = write_and_parse(&b, &v);
    CHECK(json_is_null(json_get(json, "bits_per_spike")));
    CHECK(json_is_null(json_get(json, "count_loss")) && !json_get(json, "ngram"));
    json_free(json);
}

TEST(text_has_no_baseline_by_default)
{
    struct baselines b = {0};
    const struct evaluation v = {.loss_sum = 70, .tokens = 45};
    struct json *json = write_and_parse(&b, &v);
    CHECK(json_count(json) == 0);
    json_free(json);
}

TEST(ngrams_are_counted_in_training_data_by_default)
{
    const struct source_config source = {
        .path = "tests/data/spikes/rodent/test-00000-of-00001.parquet", .column = "spike_counts"};
    struct source_config trained = {.path = "tests/data/spikes/rodent/train-00000-of-00001.parquet",
                                    .column = "spike_counts"};
    struct config config = {.data = {.sources = &trained, .num_sources = 1}};
    struct baselines b = {.source = &source,
                          .config = &config,
                          .vocab_size = 256,
                          .n = 2,
                          .ngram_data = "",
                          .ngram_column = "spike_counts"};
    CHECK_STATUS(OK, baselines_find_spikes(&b));
    CHECK(b.has_spikes);
    CHECK_STATUS(OK, baselines_measure(&b, 1200));
    CHECK(b.tokens_counted == 4800 && b.ngram.tokens == 1197 && b.spikes.spikes == 1040);
    double loss = b.ngram.loss_sum;
    b.tokens_counted = 0, b.ngram = (struct ngram_score){0}, b.ngram_data = source.path;
    b.ngram_tokens = 1000;
    CHECK_STATUS(OK, baselines_measure(&b, 1200));
    CHECK(b.tokens_counted == 1000 && b.ngram.tokens == 1197 && loss != b.ngram.loss_sum);
    b.n = 64, b.ngram = (struct ngram_score){0};
    CHECK_STATUS(DATA, baselines_measure(&b, 21));
    CHECK_MESSAGE("every document is shorter than the n-gram, 64 tokens");
}
