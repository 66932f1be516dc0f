// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

/* Text of `lines` lines, of which line `bad` (from 1) is not UTF-8. */
static void write_text(const char *path, int lines, int bad)
{
    struct text t = {0};
    for (int i = 1; i <= lines; i++)
        text_addf(&t, "line %d of a text that is read in chunks%s\n", i, i == bad ? " \xE9" : "");
    CHECK_STATUS(OK, file_write(path, t.data, t.len));
    text_release(&t);
}

TEST(check_deep_finds_the_line_that_training_stops_at)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *corpus = test_path(folder, "a.txt");
    struct text out = {0}, err = {0};
    struct json *v;
    write_text(corpus, 2000, 1234);
    runs_write_config(config, corpus);
    CHECK(LLAMERO(&out, &err, "check", config) == 0);
    CHECK(LLAMERO(&out, &err, "check", config, "--deep") == 65);
    CHECK(strstr(err.data, "a.txt, line 1234: the text is not UTF-8: its byte "));
    CHECK(strstr(err.data, "records are bad, and training stops at the first"));
    CHECK(LLAMERO(&out, &err, "check", config, "--deep", "data.on_bad_record=skip", "--json") == 0);
    CHECK(strstr(err.data, "a.txt, line 1234: "));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(json_number(json_get(v, "bad_records")) == 1);
    CHECK(json_number(json_get(v, "records")) > 10);
    CHECK(json_number(json_get(v, "checksums")) == 0);
    json_free(v);
    /* the configuration is wrong, so no data was read */
    CHECK(LLAMERO(&out, &err, "check", config, "--deep", "--json", "training.steps=-5") == 78);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "check", &v));
    CHECK(!json_get(v, "records") && !json_get(v, "bad_records") && !json_get(v, "checksums"));
    json_free(v);
    write_text(corpus, 2000, 0);
    CHECK(LLAMERO(&out, &err, "check", config, "--deep") == 0);
    CHECK(strstr(out.data, "records in 1 source, 0 bad; 0 with checksums"));
    text_release(&out), text_release(&err);
}

TEST(check_deep_numbers_the_lines_of_json_and_reads_validation_data)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *corpus = test_path(folder, "a.jsonl"), *held = test_path(folder, "v.jsonl");
    struct text t = {0}, out = {0}, err = {0}, setting = {0};
    for (int i = 1; i <= 400; i++)
        text_adds(&t, i == 201 || i == 399 ? "\n{\"text\": 1}\n" : "{\"text\": \"good\"}\n");
    CHECK_STATUS(OK, file_write(corpus, t.data, t.len));
    CHECK_STATUS(OK, file_write(held, "{\"text\": \"a\"}\n{}\n", 17));
    runs_write_config(config, corpus);
    text_addf(&setting, "validation.dataset_path=%s", held);
    CHECK(LLAMERO(&out, &err, "check", config, "--deep", "validation.enable=true", setting.data) ==
          65);
    CHECK(strstr(err.data, "a.jsonl, line 202: the value of \"text\" is not a string"));
    CHECK(strstr(err.data, "a.jsonl, line 401: "));
    CHECK(strstr(err.data, "v.jsonl, line 2: the line has no key \"text\""));
    CHECK(strstr(err.data, "3 of 402 records are bad"));
    text_release(&t), text_release(&out), text_release(&err), text_release(&setting);
}

TEST(check_deep_compares_token_files_with_their_checksums)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *corpus = test_path(folder, "a.jsonl"), *prefix = test_path(folder, "p");
    struct text out = {0}, err = {0}, bin = {0};
    runs_write_corpus(corpus, 20000);
    CHECK(LLAMERO(&out, &err, "prepare", "--tokenizer", "bytes", "--output", prefix, corpus) == 0);
    runs_write_config(config, prefix);
    CHECK(LLAMERO(&out, &err, "check", config, "--deep") == 0);
    CHECK(strstr(out.data, "1 with checksums"));
    CHECK_STATUS(OK, file_read(test_path(folder, "p.bin"), 1 << 20, &bin));
    bin.data[1000] ^= 1;
    CHECK_STATUS(OK, file_write(test_path(folder, "p.bin"), bin.data, bin.len));
    CHECK(LLAMERO(&out, &err, "check", config) == 0);
    CHECK(LLAMERO(&out, &err, "check", config, "--deep") == 65);
    CHECK(strstr(err.data, "p.bin: checksum mismatch in bytes 0 to "));
    text_release(&out), text_release(&err), text_release(&bin);
}
