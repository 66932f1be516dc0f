// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "data/line_reader.h"

typedef void pack(struct text *out, const void *bytes, size_t len);
static const struct {
    const char *name;
    pack *pack;
} kinds[] = {{"a.gz", rig_gzip}, {"a.zst", rig_zstd}};
enum { NUM_KINDS = 2 };

/* All lines, each in brackets. */
static enum status read_all(const char *path, struct text *out)
{
    struct line_reader *l = NULL;
    enum status st = STATUS_OK;
    bool end = false;
    text_clear(out);
    text_adds(out, "");
    TRY(line_reader_open(&l, path));
    for (;;) {
        const char *line;
        size_t len;
        TRY_OUT(line_reader_next(l, &line, &len, &end));
        if (end) break;
        text_adds(out, "[");
        text_add(out, line, len);
        text_adds(out, "]");
    }
out:
    line_reader_close(l);
    return st;
}

static void check_lines(int kind, const struct text *packed, const char *want)
{
    struct text got = {0};
    const char *path = rig_bytes(test_folder(), kinds[kind].name, packed->data, packed->len);
    CHECK_STATUS(OK, read_all(path, &got));
    CHECK(!strcmp(got.data, want));
    text_release(&got);
}

TEST(line_reader_strips_line_breaks)
{
    static const struct {
        const char *text, *want;
    } cases[] = {{"one\ntwo\n", "[one][two]"},
                 {"one\ntwo", "[one][two]"},
                 {"\n\none\r\n\n", "[][][one\r][]"},
                 {"", ""}};
    for (int k = 0; k < NUM_KINDS; k++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct text packed = {0};
            kinds[k].pack(&packed, cases[i].text, strlen(cases[i].text));
            check_lines(k, &packed, cases[i].want);
            text_release(&packed);
        }
    }
}

TEST(line_reader_reads_concatenated_members_as_one_text)
{
    for (int k = 0; k < NUM_KINDS; k++) {
        struct text packed = {0};
        kinds[k].pack(&packed, "one\ntw", 6);
        kinds[k].pack(&packed, "", 0);
        kinds[k].pack(&packed, "o\nthree", 7);
        check_lines(k, &packed, "[one][two][three]");
        text_release(&packed);
    }
}

TEST(line_reader_reads_lines_longer_than_its_buffer)
{
    static const size_t lens[] = {65535, 65536, 65537, 100000, 131072, 3000000};
    for (int k = 0; k < NUM_KINDS; k++) {
        for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
            struct text packed = {0}, plain = {0}, got = {0};
            text_reserve(&plain, lens[i] + 4);
            memset(plain.data, 'x', lens[i]);
            memcpy(plain.data + lens[i], "\nab", 4);
            kinds[k].pack(&packed, plain.data, lens[i] + 3);
            const char *path = rig_bytes(test_folder(), kinds[k].name, packed.data, packed.len);
            CHECK_STATUS(OK, read_all(path, &got));
            CHECK(got.len == lens[i] + 6 && !strcmp(got.data + lens[i] + 1, "][ab]"));
            text_release(&packed), text_release(&plain), text_release(&got);
        }
    }
}

TEST(line_reader_rejects_a_file_truncated_anywhere)
{
    for (int k = 0; k < NUM_KINDS; k++) {
        struct text packed = {0}, got = {0};
        const char *folder = test_folder(), *text = "one\ntwo and more\n";
        kinds[k].pack(&packed, text, strlen(text));
        for (size_t len = 0; len < packed.len; len++) {
            const char *path = rig_bytes(folder, kinds[k].name, packed.data, len);
            CHECK_STATUS(DATA, read_all(path, &got));
            CHECK_MESSAGE(path);
            CHECK_MESSAGE("the file is truncated");
        }
        text_release(&packed), text_release(&got);
    }
}

TEST(line_reader_rejects_a_damaged_file)
{
    for (int k = 0; k < NUM_KINDS; k++) {
        struct text packed = {0}, got = {0};
        const char *folder = test_folder();
        kinds[k].pack(&packed, "one\ntwo\n", 8);
        size_t whole = packed.len;
        text_adds(&packed, "garbage");
        const char *path = rig_bytes(folder, kinds[k].name, packed.data, packed.len);
        CHECK_STATUS(DATA, read_all(path, &got));
        CHECK_MESSAGE(path);
        rig_bytes(folder, kinds[k].name, "{\"text\": \"not packed\"}\n", 23);
        CHECK_STATUS(DATA, read_all(path, &got));
        CHECK_MESSAGE(path);
        packed.data[1] ^= 1;
        rig_bytes(folder, kinds[k].name, packed.data, whole);
        CHECK_STATUS(DATA, read_all(path, &got));
        text_release(&packed), text_release(&got);
    }
}

TEST(line_reader_recognizes_compressed_files_by_name)
{
    CHECK(line_reader_handles("a.jsonl.gz") && line_reader_handles("a.txt.zst"));
    CHECK(!line_reader_handles("a.jsonl") && !line_reader_handles("gz"));
    struct line_reader *l = NULL;
    CHECK_STATUS(MISSING, line_reader_open(&l, test_path(test_folder(), "none.gz")));
    CHECK(!l);
}

TEST(line_reader_reads_an_open_file)
{
    for (int k = 0; k < NUM_KINDS; k++) {
        struct text packed = {0};
        struct line_reader *l;
        const char *line;
        size_t len;
        bool end;
        kinds[k].pack(&packed, "one", 3);
        CHECK_STATUS(
            OK, line_reader_from_file(&l, fmemopen(packed.data, packed.len, "rb"), kinds[k].name));
        CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
        CHECK(!end && len == 3 && !memcmp(line, "one", 3));
        CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
        CHECK(end);
        line_reader_close(l);
        text_release(&packed);
    }
}

TEST(line_reader_reads_on_after_a_line_that_is_too_long)
{
    enum { LIMIT = 1 << 17, LONG = 1 << 20 };
    struct text lines = {0}, packed = {0};
    for (int last = 0; last < 2; last++) { /* in the middle; at the end, without a line break */
        text_clear(&lines);
        text_adds(&lines, "one\n");
        text_reserve(&lines, LONG);
        memset(lines.data + lines.len, 'a', LONG);
        lines.len += LONG;
        if (!last) text_adds(&lines, "\ntwo\n");
        for (int k = 0; k < NUM_KINDS; k++) {
            struct line_reader *l;
            const char *line;
            size_t len;
            bool end;
            text_clear(&packed);
            kinds[k].pack(&packed, lines.data, lines.len);
            const char *path = rig_bytes(test_folder(), kinds[k].name, packed.data, packed.len);
            CHECK_STATUS(OK, line_reader_open(&l, path));
            line_reader_set_limit(l, LIMIT);
            CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
            CHECK(!end && len == 3);
            CHECK_STATUS(RECORD, line_reader_next(l, &line, &len, &end));
            CHECK(!end);
            CHECK_MESSAGE("a line is longer than 131072 bytes");
            CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
            CHECK(last ? end : !end && len == 3 && !memcmp(line, "two", 3));
            CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
            CHECK(end);
            line_reader_close(l);
        }
    }
    text_release(&lines), text_release(&packed);
}

TEST(line_reader_bytes_are_in_proportion_to_lines)
{
    const char *folder = test_folder();
    struct text plain = {0}, packed[2] = {{0}, {0}};
    uint64_t state = 1;
    for (int i = 0; i < 40000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        text_addf(&plain, "%016llx line\n", (unsigned long long)state);
    }
    rig_gzip(&packed[0], plain.data, plain.len);
    rig_zstd(&packed[1], plain.data, plain.len);
    for (int k = 0; k < 2; k++) {
        const char *path =
            rig_bytes(folder, k ? "a.txt.zst" : "a.txt.gz", packed[k].data, packed[k].len);
        struct line_reader *l;
        const char *line;
        size_t len;
        bool end = false;
        CHECK_STATUS(OK, line_reader_open(&l, path));
        CHECK(line_reader_bytes(l) == 0);
        for (int i = 0; i < 20000; i++) CHECK_STATUS(OK, line_reader_next(l, &line, &len, &end));
        CHECK_NEAR((double)line_reader_bytes(l) / (double)packed[k].len, 0.5, 0.05);
        line_reader_close(l);
    }
    text_release(&plain), text_release(&packed[0]), text_release(&packed[1]);
}
