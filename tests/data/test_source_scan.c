// SPDX-License-Identifier: Apache-2.0
#include "data/source_scan.h"

#include "base/file.h"
#include "data/rig.h"
#include "formats/megatron_sum.h"

#include <unistd.h>

static void scan(const char *path, const char *column, int vocab_size, int threads,
                 struct text *found)
{
    struct tokenizer *t;
    struct source_config c = {.path = path, .column = column, .weight = 1};
    struct source source;
    CHECK_STATUS(OK, tokenizer_open(&t, "bytes", &(struct tokenizer_config){0}));
    CHECK_STATUS(OK, source_open(&source, &c));
    struct source_scan s = {
        .source = &source, .tokenizer = t, .vocab_size = vocab_size, .threads = threads};
    CHECK_STATUS(OK, source_scan_run(&s));
    text_clear(found);
    text_addf(found, "%llu %llu %zu %s\n", (unsigned long long)s.bad.num_read,
              (unsigned long long)s.bad.num_bad, s.num_sums, s.damage.len ? s.damage.data : "");
    for (size_t i = 0; i < s.bad.count; i++)
        text_addf(found, "%s %llu: %s\n", s.bad.list[i].unit, (unsigned long long)s.bad.list[i].at,
                  s.bad.list[i].reason);
    source_scan_release(&s);
    source_close(&source);
    tokenizer_close(t);
}

TEST(a_scan_finds_all_bad_records_in_order_with_any_number_of_threads)
{
    const char *folder = test_folder();
    struct text lines = {0}, packed = {0}, one = {0}, five = {0};
    for (int i = 0; i < 3000; i++)
        text_adds(&lines, i % 1000 == 7 ? "{\"text\": 1}\n" : "{\"text\": \"good\"}\n");
    rig_gzip(&packed, lines.data, lines.len);
    const char *paths[] = {rig_text(folder, "a.jsonl", lines.data),
                           rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len)};
    for (int i = 0; i < 2; i++) {
        scan(paths[i], "text", 0, 1, &one);
        scan(paths[i], "text", 0, 5, &five);
        CHECK(!strcmp(one.data, five.data));
        CHECK(!strncmp(one.data, "3000 3 0 \n", 10));
    }
    CHECK(strstr(one.data, "line 8: the value of \"text\" is not a string\nline 1008: "));
    text_release(&lines), text_release(&packed), text_release(&one), text_release(&five);
}

TEST(a_scan_reports_damaged_files_and_continues_with_the_others)
{
    const char *folder = test_folder();
    struct text packed = {0}, found = {0};
    for (int i = 0; i < 2; i++) {
        text_clear(&packed);
        rig_gzip(&packed, "{\"text\": \"a\"}\n{\"text\": 2}\n", 26);
        rig_bytes(folder, i ? "b.jsonl.gz" : "a.jsonl.gz", packed.data, packed.len - (i ? 0 : 9));
    }
    scan(test_path(folder, "*.jsonl.gz"), "text", 0, 2, &found);
    CHECK(strstr(found.data, "a.jsonl.gz: the file is truncated"));
    CHECK(strstr(found.data, "line 2: the value of \"text\" is not a string"));
    scan("tests/oracle/data/parquet/documents.parquet", "spike_counts", 256, 2, &found);
    CHECK(strstr(found.data, "row 4: its lists differ in length"));
    text_release(&packed), text_release(&found);
}

static void truncate_later(void *context, const struct source_scan *s)
{
    const char *const *path = context;
    if (s->bad.num_read > 900 && s->bad.num_read < 1200) CHECK(!truncate(*path, 0));
}

/* The fourth of eight parts ends with the first file. */
TEST(a_scan_finds_a_file_that_was_truncated_before_its_last_documents_were_read)
{
    enum { DOCUMENTS = 1200 };
    const char *folder = test_folder(), *first = test_path(folder, "a.bin");
    struct source_config c = {.path = test_path(folder, "*.idx"), .column = "", .weight = 1};
    struct source source;
    int lengths[DOCUMENTS];
    for (int i = 0; i < DOCUMENTS; i++) lengths[i] = 8;
    rig_tokens(folder, "a", lengths, DOCUMENTS, 0);
    rig_tokens(folder, "b", lengths, DOCUMENTS, 0);
    CHECK_STATUS(OK, source_open(&source, &c));
    struct source_scan s = {.source = &source,
                            .vocab_size = 1 << 20,
                            .threads = 1,
                            .progress = truncate_later,
                            .context = &first};
    CHECK_STATUS(OK, source_scan_run(&s));
    CHECK(s.damage.len && strstr(s.damage.data, "a.bin: the file was truncated from "));
    source_scan_release(&s);
    source_close(&source);
}

TEST(a_scan_compares_token_files_with_their_checksums)
{
    const char *folder = test_folder();
    struct megatron_sum sums[2] = {{0}};
    struct text bytes[2] = {{0}}, found = {0};
    rig_tokens(folder, "t", (const int[]){3, 0, 5}, 3, 1);
    const char *names[] = {test_path(folder, "t.bin"), test_path(folder, "t.idx")};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, file_read(names[i], 1 << 20, &bytes[i]));
        megatron_sum_add(&sums[i], bytes[i].data, bytes[i].len);
    }
    CHECK_STATUS(OK, megatron_sum_write(test_path(folder, "t"), &sums[0], &sums[1]));
    scan(test_path(folder, "t"), "", 9, 1, &found);
    CHECK(!strcmp(found.data, "2 0 1 \n"));
    bytes[0].data[0] ^= 2; /* still a token ID */
    CHECK_STATUS(OK, file_write(names[0], bytes[0].data, bytes[0].len));
    scan(test_path(folder, "t"), "", 9, 1, &found);
    CHECK(!strncmp(found.data, "2 0 1 ", 6) &&
          strstr(found.data, "t.bin: checksum mismatch in bytes 0 to 32"));
    scan(test_path(folder, "t"), "", 8, 1, &found);
    CHECK(strstr(found.data, "document 2: ") && strstr(found.data, "has token ID 8"));
    for (int i = 0; i < 2; i++) megatron_sum_release(&sums[i]), text_release(&bytes[i]);
    text_release(&found);
}
