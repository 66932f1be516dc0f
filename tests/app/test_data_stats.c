// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "data/rig.h"

static const char *write_source(void)
{
    return rig_text(test_folder(), "a.jsonl",
                    "{\"text\": \"abc\"}\n{\"text\": \"abc\"}\n{\"text\": 1}\n"
                    "{\"text\": \"<|mask|> abcdefghi\"}\n");
}

TEST(data_stats_prints_a_histogram_duplicates_special_tokens_and_bad_records)
{
    struct text out = {0};
    const char *path = write_source();
    CHECK(LLAMERO(&out, NULL, "data", "stats", path, "data.tokenizer=bytes") == 0);
    CHECK(strstr(out.data, "a.jsonl: 3 documents, 30 tokens, the longest has 20; 24 bytes of text, "
                           "0.800 per token\n"));
    CHECK(strstr(out.data, "                 4 to 7          2  66.7 %  "
                           "########################################\n"
                           "                8 to 15          0   0.0 %  \n"
                           "               16 to 31          1  33.3 %  ####################\n"));
    CHECK(strstr(out.data, "  duplicates: 1 (33.33 %)\n"
                           "  documents that contain a special token: 1\n"));
    CHECK(strstr(out.data, "a.jsonl, offset 44: <|mask|>\n  bad records: 1 of 4\n"));
    CHECK(strstr(out.data, "a.jsonl, offset 32: the value of \"text\" is not a string\n"));
    text_release(&out);
}

TEST(data_stats_of_several_files_as_json_and_svg)
{
    struct text out = {0}, svg = {0};
    struct json *j;
    double value;
    const char *folder = test_folder(), *path = write_source();
    const char *picture = test_path(folder, "lengths.svg"), *ids = test_path(folder, "t");
    rig_tokens(folder, "t", (int[]){3, 2}, 2, 7);
    CHECK(LLAMERO(&out, NULL, "data", "stats", path, ids, "--json", "--svg", picture,
                  "data.tokenizer=bytes") == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "stats", &j));
    const struct json *first = json_first(json_get(j, "sources")), *second = json_next(first);
    value = json_number(json_get(first, "tokens"));
    CHECK(value == 30 && json_number(json_get(first, "bytes_per_token")) == 0.8);
    CHECK(json_is_null(json_get(second, "bytes_per_token")));
    CHECK(json_number(json_get(second, "documents")) == 2 && !json_next(second));
    CHECK(json_number(json_get(json_first(json_get(second, "lengths")), "to")) == 3);
    json_free(j);
    CHECK_STATUS(OK, file_read(picture, 1 << 20, &svg));
    CHECK(!strncmp(svg.data, "<svg ", 5) && strstr(svg.data, "% of documents"));
    text_release(&out), text_release(&svg);
}

TEST(data_stats_of_a_configuration_reads_its_sources_and_samples)
{
    struct text out = {0};
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    runs_write_corpus(test_path(folder, "corpus.jsonl"), 100000);
    runs_write_config(config, test_path(folder, "corpus.jsonl"));
    CHECK(LLAMERO(&out, NULL, "data", "stats", config) == 0);
    CHECK(strstr(out.data, "duplicates: 0") && !strstr(out.data, "a sample"));
    CHECK(LLAMERO(&out, NULL, "data", "stats", config, "--sample", "60") == 0);
    CHECK(strstr(out.data, "corpus.jsonl (a sample of about 60 bytes): 64 documents"));
    text_release(&out);
}

TEST(data_stats_fails_without_a_tokenizer_and_after_damage_prints_the_rest)
{
    struct text out = {0}, err = {0}, packed = {0};
    const char *folder = test_folder(), *path = write_source();
    CHECK(LLAMERO(NULL, &err, "data", "stats", path) == 78);
    CHECK(strstr(err.data, "data.tokenizer is required"));
    text_clear(&err);
    rig_gzip(&packed, "{\"text\": \"abc\"}\n", 16);
    const char *damaged = rig_bytes(folder, "b.jsonl.gz", packed.data, packed.len - 4);
    CHECK(LLAMERO(&out, &err, "data", "stats", damaged, path, "data.tokenizer=bytes") == 65);
    CHECK(strstr(err.data, "b.jsonl.gz: the file is truncated"));
    CHECK(strstr(out.data, "a.jsonl: 3 documents"));
    text_release(&out), text_release(&err), text_release(&packed);
}
