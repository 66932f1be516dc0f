// SPDX-License-Identifier: Apache-2.0
#include "data/source_rig.h"

#include <unistd.h>

TEST(source_reads_matching_files_in_name_order)
{
    const char *folder = test_folder();
    rig_text(folder, "b.jsonl", "{\"text\": \"2\"}");
    rig_text(folder, "c.jsonl", "");
    rig_text(folder, "a.jsonl", "{\"text\": \"0\"}\n{\"text\": \"1\"}\n");
    rig_text(folder, "d.jsonl", "{\"text\": \"3\"}\n");
    source_rig_check(test_path(folder, "*.jsonl"), "<0>|<1>|<2>|<3>|");
    source_rig_compressed(folder, "2.jsonl.gz", "{\"text\": \"b\"}");
    source_rig_compressed(folder, "1.jsonl.gz", "{\"text\": \"a\"}");
    source_rig_compressed(folder, "3.jsonl.gz", "\n");
    source_rig_check(test_path(folder, "*.jsonl.gz"), "<a>|<b>|");
}

TEST(source_prefers_an_exact_file_name_to_a_prefix)
{
    const char *folder = test_folder();
    const char *path = rig_text(folder, "a.jsonl", "{\"text\": \"line\"}");
    rig_text(folder, "a.jsonl.idx", "somebody's index of the lines");
    source_rig_check(path, "<line>|");
}

TEST(source_reads_a_dataset_saved_to_disk)
{
    source_rig_check("tests/oracle/data/arrow/saved", "<one>|<two>|<three>|<four>|<five>|");
    source_rig_check("tests/oracle/data/arrow/saved/*1-of*.arrow", "<four>|<five>|");
    const char *folder = test_folder();
    struct source_config c = source_rig_config(folder);
    struct source s;
    rig_text(folder, "dataset_dict.json", "{\"splits\": [\"train\"]}");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("is a folder of splits");
    c.path = folder = test_folder();
    rig_text(folder, "state.json", "{\"_data_files\": [{\"filename\": \"../x.arrow\"}]}");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("../x.arrow");
    rig_text(folder, "state.json", "{\"_data_files\": [{\"filename\": \"x.arrow\"}]}");
    CHECK_STATUS(MISSING, source_open(&s, &c));
    rig_text(folder, "state.json", "[1]");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("_data_files");
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Splits at the bars and sorts the documents. */
static size_t cut(struct text *t, char **documents)
{
    size_t n = 0;
    for (char *at = t->data; *at; at = strchr(at, 0) + 1) {
        *strchr(at, '|') = 0;
        documents[n++] = at;
    }
    qsort(documents, n, sizeof *documents, by_text);
    return n;
}

TEST(source_parts_contain_every_document_once)
{
    enum { MAX_DOCUMENTS = 300 };
    const char *folder = test_folder();
    struct text lines = {0};
    char what[32];
    int lengths[50];
    rig_lines(&lines, "doc", 100);
    for (int i = 0; i < 50; i++) lengths[i] = i % 3 ? 1 + i % 5 : 0;
    rig_tokens(folder, "tokens", lengths, 50, '0');
    for (int part = 0; part < 5; part++) { /* several compressed files, one without a document */
        struct text some = {0};
        char name[32];
        snprintf(name, sizeof name, "part-%d.jsonl.gz", part);
        snprintf(what, sizeof what, "part %d,", part);
        rig_lines(&some, what, part == 3 ? 0 : 13 + part);
        source_rig_compressed(folder, name, part == 3 ? "\n" : some.data);
        text_release(&some);
    }
    const char *paths[] = {rig_text(folder, "a.jsonl", lines.data),
                           source_rig_compressed(folder, "a.jsonl.gz", lines.data),
                           test_path(folder, "tokens"), rig_text(folder, "a.txt", lines.data),
                           test_path(folder, "part-*.jsonl.gz")};
    static const uint64_t part_counts[] = {2, 3, 7, 64, 200};
    for (size_t k = 0; k < 5; k++) {
        struct source_config c = source_rig_config(paths[k]);
        struct source s = source_rig_open(&c);
        struct text want = {0};
        char *wanted[MAX_DOCUMENTS], *found[MAX_DOCUMENTS];
        CHECK_STATUS(OK, source_rig_read_part(&s, 0, 1, &want));
        size_t count = cut(&want, wanted);
        for (size_t i = 0; i < sizeof part_counts / sizeof *part_counts; i++) {
            struct text got = {0};
            for (uint64_t n = 0; n < part_counts[i]; n++)
                CHECK_STATUS(OK, source_rig_read_part(&s, n, part_counts[i], &got));
            CHECK(cut(&got, found) == count);
            for (size_t d = 0; d < count; d++) CHECK(!strcmp(found[d], wanted[d]));
            text_release(&got);
        }
        text_release(&want);
        source_close(&s);
    }
    text_release(&lines);
}

TEST(source_rejects_paths_it_cannot_read)
{
    const char *folder = test_folder();
    struct source s;
    struct source_config c = source_rig_config(test_path(folder, "none*.jsonl"));
    CHECK_STATUS(MISSING, source_open(&s, &c));
    CHECK_MESSAGE("none*.jsonl");
    c.path = rig_text(folder, "a.orc", "ORC");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("a.orc: unknown file type");
    c.path = folder;
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("is a folder; name its files");
    c.path = rig_text(folder, "empty.jsonl", "");
    CHECK_STATUS(DATA, source_open(&s, &c));
    CHECK_MESSAGE("empty.jsonl: the source is empty");
    c.path = test_path(folder, "loop.jsonl");
    CHECK(symlink(c.path, c.path) == 0);
    CHECK_STATUS(IO, source_open(&s, &c));
    CHECK_MESSAGE("loop.jsonl: Too many levels of symbolic links");
    CHECK(symlink("tokens.idx", test_path(folder, "tokens.idx")) == 0);
    c.path = test_path(folder, "tokens");
    CHECK_STATUS(IO, source_open(&s, &c));
    CHECK_MESSAGE("tokens.idx: Too many levels of symbolic links");
    rig_text(folder, "x1.jsonl", "{\"text\": \"a\"}");
    rig_text(folder, "x2.txt", "a");
    c.path = test_path(folder, "x*");
    CHECK_STATUS(CONFIG, source_open(&s, &c));
    CHECK_MESSAGE("x2.txt: all files of a source must have the same type");
    CHECK(!s.files && !s.num_files);
}

TEST(source_fingerprint_changes_with_files_and_settings)
{
    const char *folder = test_folder();
    struct source_config c = source_rig_config(test_path(folder, "*.jsonl"));
    rig_text(folder, "a.jsonl", "{\"text\": \"a\"}");
    uint32_t seen[6];
    for (int i = 0; i < 6; i++) {
        if (i == 2) rig_text(folder, "a.jsonl", "{\"text\": \"ab\"}");
        if (i == 3) rig_text(folder, "b.jsonl", "{\"text\": \"a\"}");
        if (i == 4) c.column = "body";
        if (i == 5) c.weight = 2;
        struct source s = source_rig_open(&c);
        seen[i] = s.fingerprint;
        source_close(&s);
        for (int j = 0; j < i; j++) CHECK((seen[j] == seen[i]) == (i == 1));
    }
    c.path = test_path(folder, "t");
    rig_tokens(folder, "t", (int[]){2, 3}, 2, 1);
    struct source s = source_rig_open(&c);
    seen[0] = s.fingerprint;
    source_close(&s);
    rig_tokens(folder, "t", (int[]){3, 2}, 2, 1);
    s = source_rig_open(&c);
    CHECK(s.fingerprint != seen[0]);
    source_close(&s);
}
