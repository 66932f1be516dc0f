// SPDX-License-Identifier: Apache-2.0
#include "data/source_estimate.h"

#include "base/rng.h"
#include "data/rig.h"
#include "data/source_stats.h"

#include <math.h>

struct estimated {
    double documents, tokens; /* estimated */
    double all_documents, all_tokens;
};

/* Estimates from at most `max_bytes` and counts the whole source. */
static struct estimated estimate(const char *path, uint64_t max_bytes)
{
    struct source_config config = {.path = path, .column = "text", .weight = 1};
    struct source source;
    struct source_estimate e = {.max_bytes = max_bytes};
    struct source_tokens t = {.bos = true, .eos = true};
    struct tokenizer *tokenizer;
    CHECK_STATUS(OK, tokenizer_open(&tokenizer, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, source_open(&source, &config));
    t.tokenizer = tokenizer;
    CHECK_STATUS(OK, source_estimate_run(&e, &source, &t));
    struct source_stats all = {
        .scan = {.source = &source, .tokenizer = tokenizer, .bos = true, .eos = true}};
    CHECK_STATUS(OK, source_stats_run(&all));
    struct estimated r = {e.documents, e.documents * e.tokens_per_document,
                          (double)all.scan.bad.num_read, (double)all.tokens};
    source_stats_release(&all);
    source_close(&source);
    tokenizer_close(tokenizer);
    return r;
}

static void check_close(const char *path, uint64_t max_bytes)
{
    struct estimated r = estimate(path, max_bytes);
    print_message("  %-40s documents %8.0f of %8.0f (%+.1f %%), tokens %9.0f of %9.0f (%+.1f %%)\n",
                  strrchr(path, '/') ? strrchr(path, '/') : path, r.documents, r.all_documents,
                  100 * (r.documents / r.all_documents - 1), r.tokens, r.all_tokens,
                  100 * (r.tokens / r.all_tokens - 1));
    CHECK(r.all_documents > 20);
    CHECK(fabs(r.documents / r.all_documents - 1) < 0.1);
    CHECK(fabs(r.tokens / r.all_tokens - 1) < 0.1);
}

/* Appends a text of 1 to `longest` words; the longer, the rarer. */
static void add_words(struct text *out, uint64_t document, uint64_t longest)
{
    uint64_t n = 1 + rng_below(longest, 1, RNG_TEST, document, 0);
    n = 1 + rng_below(n, 1, RNG_TEST, document, 1);
    for (uint64_t i = 0; i < n; i++)
        text_addf(out, "%s%llu", i ? " " : "",
                  (unsigned long long)rng_below(1000, 1, RNG_TEST, document, 2 + i));
}

static void add_lines(struct text *out, uint64_t documents, uint64_t longest)
{
    for (uint64_t d = 0; d < documents; d++) {
        text_adds(out, "{\"text\": \"");
        add_words(out, d, longest);
        text_adds(out, "\"}\n");
        if (d % 5 == 0) text_adds(out, "\n");
    }
}

/* Sources of several times what is read of them. */
TEST(estimates_from_a_sample_are_within_ten_percent_of_the_counts)
{
    const char *folder = test_folder();
    struct text lines = {0}, words = {0}, packed = {0};
    static int lengths[20000];
    add_lines(&lines, 20000, 200);
    check_close(rig_text(folder, "a.jsonl", lines.data), 0);
    check_close(test_path(folder, "a.jsonl"), 100000);
    rig_gzip(&packed, lines.data, lines.len);
    check_close(rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len), 0);
    text_clear(&packed);
    rig_zstd(&packed, lines.data, lines.len / 2);
    rig_zstd(&packed, lines.data + lines.len / 2, lines.len - lines.len / 2);
    check_close(rig_bytes(folder, "a.txt.zst", packed.data, packed.len), 0);
    for (uint64_t d = 0; d < 20000; d++) add_words(&words, d, 200), text_adds(&words, "\n");
    check_close(rig_text(folder, "a.txt", words.data), 0);
    for (size_t d = 0; d < 20000; d++) lengths[d] = (int)rng_below(400, 1, RNG_TEST, d, 0);
    rig_tokens(folder, "tokens", lengths, 20000, 0);
    check_close(test_path(folder, "tokens"), 0);
    check_close(rig_array(folder, "rows.npy", 50000, 7), 0);
    check_close(rig_array(folder, "flat.npy", 0, 3000000), 0);
    check_close("tests/oracle/data/parquet/pyarrow-*-v?.parquet", 4096);
    text_release(&lines), text_release(&words), text_release(&packed);
}

TEST(estimates_of_few_long_documents_and_of_many_files_read_little)
{
    const char *folder = test_folder();
    struct text lines = {0}, packed = {0}, name = {0};
    for (uint64_t d = 0; d < 200; d++) {
        text_adds(&lines, "{\"text\": \"");
        for (uint64_t i = rng_below(20000, 1, RNG_TEST, d, 0) + 10000; i; i--)
            text_adds(&lines, "long");
        text_adds(&lines, "\"}\n");
    }
    check_close(rig_text(folder, "long.jsonl", lines.data), 0);
    for (int i = 0; i < 100; i++) {
        text_clear(&lines), text_clear(&packed), text_clear(&name);
        add_lines(&lines, (uint64_t)(100 + i), 50);
        rig_gzip(&packed, lines.data, lines.len);
        text_addf(&name, "part-%02d.jsonl.gz", i);
        rig_bytes(folder, name.data, packed.data, packed.len);
    }
    check_close(test_path(folder, "part-*.jsonl.gz"), 100000);
    text_release(&lines), text_release(&packed), text_release(&name);
}

TEST(estimates_of_small_sources_are_counts)
{
    for (int kind = 0; kind + 1 < RIG_KINDS; kind++) {
        struct rig r;
        rig_init(&r, "bytes", 8);
        rig_add_kind(&r, test_folder(), kind);
        struct estimated e = estimate(r.sources[0].path, 0);
        CHECK_NEAR(e.documents, e.all_documents, 1e-9);
        CHECK_NEAR(e.tokens, e.all_tokens, 1e-6);
        rig_release(&r);
    }
}

TEST(estimates_of_a_source_without_readable_documents_are_unknown)
{
    struct source_config config = {.path = rig_text(test_folder(), "a.jsonl", "\n\n \n"),
                                   .column = "text"};
    struct source source;
    struct source_estimate e = {0};
    struct source_tokens t = {0};
    struct tokenizer *tokenizer;
    CHECK_STATUS(OK, source_open(&source, &config));
    CHECK_STATUS(CONFIG, source_estimate_run(&e, &source, &t));
    CHECK_STATUS(OK, tokenizer_open(&tokenizer, "bytes", &(struct tokenizer_config){0}));
    t.tokenizer = tokenizer;
    CHECK_STATUS(OK, source_estimate_run(&e, &source, &t));
    CHECK(isnan(e.documents) && isnan(e.tokens_per_document));
    source_close(&source);
    tokenizer_close(tokenizer);
}

TEST(estimates_for_megatron_are_of_the_training_split)
{
    const char *folder = test_folder();
    struct source_config config = {.path = test_path(folder, "t"), .column = "text"};
    struct source source;
    struct source_estimate e;
    rig_tokens(folder, "t", (int[]){3, 5, 10, 100}, 4, 0);
    CHECK_STATUS(OK, source_open(&source, &config));
    CHECK_STATUS(OK, source_estimate_megatron(&e, &source, "3,1,0"));
    CHECK_NEAR(e.documents, 3, 0);
    CHECK_NEAR(e.tokens_per_document, 6, 1e-12);
    CHECK_STATUS(CONFIG, source_estimate_megatron(&e, &source, "0,1,0"));
    source_close(&source);
}
