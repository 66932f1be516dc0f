/* test_spike_session.c -- trains a model of spike counts briefly, evaluates it, and generates bins.
 */
// SPDX-License-Identifier: Apache-2.0
#include "infer/spike_run.h"

#include "formats/zip.h"

TEST(a_spike_model_beats_constant_rates_and_ngrams_on_held_out_sessions)
{
    char *run = spike_run("");
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "eval", run, spike_test, "--column", "spike_counts", "--ngram", "2",
                  "--json") == 0);
    struct json *v = spike_answer(&out);
    const struct json *ngram = json_get(v, "ngram");
    double loss = spike_number(v, "loss"), spikes = spike_number(v, "spikes");
    CHECK(spike_number(v, "tokens") == 1199 && spikes == 1040 && spike_number(v, "counts") == 1020);
    CHECK_NEAR(spike_number(v, "homogeneous_loss"), 1663.1264446142638 / 1020, 1e-9);
    CHECK_NEAR(loss, runs_metric(run, "validation_loss"), 1e-5);
    double gain = spike_number(v, "homogeneous_loss") - spike_number(v, "count_loss");
    CHECK_NEAR(spike_number(v, "bits_per_spike"), gain * 1020 / spikes / log(2), 1e-9);
    CHECK(gain > 0.05);
    /* separators are easy to predict, and are not counts */
    CHECK(spike_number(v, "count_loss") * 1020 < loss * 1199);
    CHECK(spike_number(v, "count_loss") * 1020 > 0.9 * loss * 1199);
    CHECK(spike_number(ngram, "n") == 2 && spike_number(ngram, "counted_in") == 4800);
    CHECK(spike_number(ngram, "tokens") == 1197); /* all except the first of each of 3 sessions */
    CHECK(loss < spike_number(ngram, "loss") - 0.05);
    json_free(v);
    text_release(&out);
    free(run);
}

TEST(eval_of_some_batches_compares_the_same_counts)
{
    char *run = spike_run("training.steps=2 validation.enable=false");
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, NULL, "eval", run, spike_test, "--column", "spike_counts", "--batches", "1",
                  "--batch-size", "2", "--ngram", "1", "--ngram-data", spike_test, "--ngram-tokens",
                  "100", "--json") == 0);
    struct json *v = spike_answer(&out);
    CHECK(spike_number(v, "tokens") == 128); /* IDs 1..128: bins of 7, and 3 IDs of the 19th */
    CHECK(spike_number(v, "counts") == 128 - 18);
    CHECK(spike_number(json_get(v, "ngram"), "counted_in") == 100);
    CHECK(spike_number(json_get(v, "ngram"), "tokens") == 129);
    json_free(v);
    CHECK(LLAMERO(NULL, &err, "eval", run, spike_test, "--column", "subject_id") == 78);
    CHECK(strstr(err.data, "is text"));
    text_release(&out), text_release(&err);
    free(run);
}

static int64_t number_at(const unsigned char *at)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) v |= (uint64_t)at[i] << (8 * i);
    return (int64_t)v;
}

/* The data of an array with `count` elements. */
static const unsigned char *array(const struct zip *z, const char *name, size_t count)
{
    const struct zip_entry *e = zip_find(z, name, strlen(name));
    CHECK(e && zip_entry_crc_ok(e) && e->size > 8 * count);
    return e->data + e->size - 8 * count;
}

TEST(generated_bins_start_with_the_only_separator)
{
    char *run = spike_run("training.steps=3 validation.enable=false");
    const char *path = test_path(test_folder(), "gen.npz");
    struct text out = {0}, bytes = {0};
    struct zip z;
    CHECK(LLAMERO(&out, NULL, "generate", run, "--session", spike_test, "--row", "1",
                  "--prompt-bins", "2", "--bins", "60", "--temperature", "1", "--out", path,
                  "--json") == 0);
    struct json *v = spike_answer(&out);
    CHECK(spike_number(v, "n_neurons") == 5 && spike_number(v, "prompt_tokens") == 12);
    CHECK(spike_number(v, "generated_n_tokens") == 360);
    json_free(v);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    CHECK_STATUS(OK, zip_parse(&z, (const unsigned char *)bytes.data, bytes.len, path));
    CHECK(z.count == 4 && number_at(array(&z, "n_neurons.npy", 1)) == 5);
    const unsigned char *prompt = array(&z, "prompt.npy", 12), *gen = array(&z, "gen.npy", 360);
    const unsigned char *gt = array(&z, "gt.npy", 360); /* the session has 60 bins */
    int different = 0;
    for (size_t i = 0; i < 12; i++) CHECK(number_at(prompt + 8 * i) == number_at(gt + 8 * i));
    for (size_t i = 0; i < 360; i++) {
        CHECK((number_at(gen + 8 * i) == 255) == (i % 6 == 0));
        different += i > 0 && number_at(gen + 8 * i) != number_at(gen + 8);
    }
    CHECK(different > 100); /* barely trained, so its output is nearly random */
    zip_release(&z);
    text_release(&out), text_release(&bytes);
    free(run);
}

TEST(generate_reports_invalid_sessions)
{
    char *run = spike_run("training.steps=1 validation.enable=false");
    struct text err = {0};
    CHECK(LLAMERO(NULL, &err, "generate", run, "--prompt", "a") == 78);
    CHECK(strstr(err.data, "has no tokenizer") && strstr(err.data, "--session"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--session", spike_test) == 64);
    CHECK(strstr(err.data, "--out"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--out", "a.npz") == 64);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--session", spike_test, "--out", "a",
                  "--prompt-bins", "61") == 78);
    CHECK(strstr(err.data, "the session has 60 bins"));
    CHECK(LLAMERO(NULL, &err, "generate", run, "--session", spike_test, "--out", "a", "--row",
                  "9") == 78);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--session", "/no.parquet", "--out", "a") == 66);
    text_release(&err);
    free(run);
}

TEST(random_prompt_has_a_spike_in_a_tenth_of_the_neurons)
{
    char *run = spike_run("training.steps=1 validation.enable=false");
    const char *path = test_path(test_folder(), "random.npz");
    struct text out = {0}, err = {0}, first = {0}, bytes = {0};
    struct zip z;
    CHECK(LLAMERO(&out, NULL, "generate", run, "--neurons", "20", "--bins", "2", "--out", path,
                  "--json", "--seed", "3") == 0);
    struct json *v = spike_answer(&out);
    CHECK(spike_number(v, "n_neurons") == 20 && spike_number(v, "prompt_tokens") == 21);
    CHECK(spike_number(v, "generated_n_tokens") == 42);
    json_free(v);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &first));
    CHECK_STATUS(OK, zip_parse(&z, (const unsigned char *)first.data, first.len, path));
    const unsigned char *prompt = array(&z, "prompt.npy", 21);
    int spikes = 0;
    CHECK(number_at(prompt) == 255);
    for (size_t i = 1; i < 21; i++) {
        CHECK(number_at(prompt + 8 * i) <= 1);
        spikes += number_at(prompt + 8 * i) == 1;
    }
    CHECK(spikes == 2);
    zip_release(&z);
    for (int seed = 3; seed < 5; seed++) { /* the seed determines the neurons */
        CHECK(LLAMERO(NULL, NULL, "generate", run, "--neurons", "20", "--bins", "2", "--out", path,
                      "--seed", seed == 3 ? "3" : "4") == 0);
        CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
        bool equal = bytes.len == first.len && !memcmp(bytes.data, first.data, first.len);
        CHECK(equal == (seed == 3));
    }
    CHECK(LLAMERO(NULL, &err, "generate", run, "--neurons", "20", "--session", spike_test, "--out",
                  path) == 64);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--neurons", "20", "--prompt-bins", "2", "--out",
                  path) == 64);
    CHECK(LLAMERO(NULL, &err, "generate", run, "--neurons", "-1", "--out", path) == 64);
    text_release(&out), text_release(&err), text_release(&first), text_release(&bytes);
    free(run);
}
