// SPDX-License-Identifier: Apache-2.0
#include "data/source_stats.h"

#include "data/rig.h"

struct counted {
    struct source_config config;
    struct source source;
    struct tokenizer *tokenizer;
    struct source_stats stats;
};

static void count(struct counted *c, const char *path, struct source_stats inputs)
{
    *c = (struct counted){.config = {.path = path, .column = "text", .weight = 1}, .stats = inputs};
    CHECK_STATUS(OK, tokenizer_open(&c->tokenizer, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, source_open(&c->source, &c->config));
    c->stats.scan.source = &c->source, c->stats.scan.tokenizer = c->tokenizer;
    CHECK_STATUS(OK, source_stats_run(&c->stats));
}

static void counted_release(struct counted *c)
{
    source_stats_release(&c->stats);
    source_close(&c->source);
    tokenizer_close(c->tokenizer);
}

static const char lines[] = "{\"text\": \"abc\"}\n"
                            "{\"text\": \"\"}\n"
                            "{\"text\": \"a <|mask|>\"}\n"
                            "\n"
                            "{\"other\": 1}\n"
                            "{\"text\": \"abc\"}\n"
                            "{\"text\": \"<|mask| >\"}\n"
                            "{\"text\": \"\\u0061bc\"}\n"
                            "{\"text\": \"\"}\n";

TEST(stats_count_documents_tokens_lengths_duplicates_special_tokens_and_bad_records)
{
    const char *folder = test_folder();
    struct text packed = {0};
    rig_gzip(&packed, lines, sizeof lines - 1);
    const char *paths[] = {rig_text(folder, "a.jsonl", lines),
                           rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len)};
    const uint64_t places[] = {29, 3};
    for (int k = 0; k < 2; k++)
        for (int threads = 1; threads < 4; threads += 2)
            for (int frame = 0; frame < 2; frame++) {
                struct counted c;
                count(&c, paths[k],
                      (struct source_stats){
                          .scan = {.threads = threads, .bos = frame, .eos = frame}});
                const struct source_stats *s = &c.stats;
                CHECK(s->documents == 7 && s->text_bytes == 28 && !s->is_estimated);
                CHECK(s->tokens == 28 + (frame ? 10 : 0)); /* none around empty texts */
                CHECK(s->longest == (frame ? 12 : 10));
                CHECK(s->lengths[0] == 2 && s->lengths[frame ? 3 : 2] == 3 && s->lengths[4] == 2);
                CHECK(s->duplicates == 2);
                CHECK(s->num_special == 1 && s->num_places == 1 && s->places[0].id == 258);
                CHECK(s->places[0].at == places[k] && s->places[0].file == 0);
                CHECK(s->scan.bad.num_read == 8 && s->scan.bad.num_bad == 1);
                CHECK(s->scan.bad.count == 1 && !s->scan.damage.len);
                counted_release(&c);
            }
    text_release(&packed);
}

TEST(stats_keep_the_first_special_places_in_the_order_of_the_source)
{
    struct text text = {0};
    for (int i = 0; i < 400; i++)
        text_addf(&text, "{\"text\": \"%d %s\"}\n", i, i % 7 == 5 ? "<|mask|>" : "none");
    const char *path = rig_text(test_folder(), "a.jsonl", text.data);
    for (int threads = 1; threads < 6; threads++) {
        struct counted c;
        count(&c, path, (struct source_stats){.scan = {.threads = threads}});
        CHECK(c.stats.num_special == 57 && c.stats.num_places == SOURCE_STATS_PLACES);
        for (int i = 0; i < SOURCE_STATS_PLACES; i++)
            CHECK(atoi(text.data + c.stats.places[i].at + 10) == 5 + 7 * i);
        counted_release(&c);
    }
    text_release(&text);
}

TEST(stats_of_token_ids_ignore_only_the_bos_and_eos_around_a_document)
{
    const char *folder = test_folder();
    struct counted c;
    rig_tokens(folder, "t", (int[]){3, 2, 2, 5}, 4, 254); /* 257 is EOS, 258 the mask */
    count(&c, test_path(folder, "t"), (struct source_stats){0});
    CHECK(c.stats.documents == 4 && c.stats.tokens == 12 && c.stats.text_bytes == 0);
    CHECK(c.stats.duplicates == 0 && c.stats.scan.bad.num_bad == 0);
    /* documents 254 255 256 | 257 258 | 259 260 | 261 ... */
    CHECK(c.stats.num_special == 2 && c.stats.places[0].at == 0 && c.stats.places[1].at == 1);
    CHECK(c.stats.places[0].id == 256 && c.stats.places[1].id == 257);
    counted_release(&c);
    rig_tokens(folder, "u", (int[]){2, 3}, 2, 256); /* BOS and EOS, then the mask */
    count(&c, test_path(folder, "u"), (struct source_stats){0});
    CHECK(c.stats.num_special == 1 && c.stats.places[0].id == 258);
    counted_release(&c);
}

/* Each of 3000 documents occurs twice. */
TEST(stats_estimate_duplicates_within_bounded_memory_whatever_the_threads)
{
    struct text text = {0};
    uint64_t estimates[2];
    for (int i = 0; i < 6000; i++) text_addf(&text, "{\"text\": \"%d\"}\n", i % 3000);
    const char *path = rig_text(test_folder(), "a.jsonl", text.data);
    struct counted c;
    count(&c, path, (struct source_stats){0});
    CHECK(c.stats.duplicates == 3000 && !c.stats.is_estimated);
    counted_release(&c);
    for (int k = 0; k < 2; k++) {
        count(&c, path, (struct source_stats){.scan = {.threads = 1 + 3 * k}, .max_hashes = 1000});
        estimates[k] = c.stats.duplicates;
        CHECK(c.stats.is_estimated && c.stats.duplicates % 8 == 0);
        counted_release(&c);
    }
    CHECK(estimates[0] == estimates[1] && estimates[0] > 2500 && estimates[0] < 3500);
    text_release(&text);
}

TEST(stats_of_a_sample_read_places_all_over_the_source_whatever_the_threads)
{
    struct text text = {0};
    uint64_t documents[2];
    for (int i = 0; i < 20000; i++)
        text_addf(&text, "{\"text\": \"%d%s\"}\n", i, i > 15000 ? " <|mask|>" : "");
    const char *path = rig_text(test_folder(), "a.jsonl", text.data);
    for (int k = 0; k < 2; k++) {
        struct counted c;
        count(&c, path, (struct source_stats){.scan = {.threads = 1 + k, .max_bytes = 20000}});
        documents[k] = c.stats.documents;
        CHECK(c.stats.scan.bytes > 20000 && c.stats.scan.bytes < 20000 + 64 * 40);
        CHECK(c.stats.num_special > documents[k] / 8 && c.stats.num_special < documents[k] / 2);
        counted_release(&c);
    }
    CHECK(documents[0] == documents[1]);
    text_release(&text);
}

TEST(stats_read_every_kind_of_source)
{
    for (int kind = 0; kind + 1 < RIG_KINDS; kind++) {
        struct rig r;
        struct counted c;
        uint64_t sum = 0;
        rig_init(&r, "bytes", 8);
        rig_add_kind(&r, test_folder(), kind);
        count(&c, r.sources[0].path, (struct source_stats){0});
        for (int b = 0; b < SOURCE_STATS_BINS; b++) sum += c.stats.lengths[b];
        CHECK(c.stats.documents > 10 && sum == c.stats.documents && c.stats.tokens > sum);
        CHECK(c.stats.scan.bad.num_read == c.stats.documents && !c.stats.scan.damage.len);
        CHECK(c.source.holds_ids ? !c.stats.text_bytes : c.stats.text_bytes == c.stats.tokens);
        counted_release(&c);
        rig_release(&r);
    }
}
