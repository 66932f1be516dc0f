// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/parquet_column.h"

static const char folder[] = "tests/oracle/data/parquet";

/* Appends one row as text: levels, and the value or a dash. */
static enum status add_row(struct parquet_column *c, struct text *out)
{
    struct column_entry e;
    for (bool more = true; more;) {
        TRY(parquet_column_next(c, &e));
        text_addf(out, "%d %d ", e.rep, e.def);
        if (!e.has_value)
            text_adds(out, "-");
        else if (c->values.bytes)
            text_add(out, e.bytes.data, e.bytes.len);
        else
            text_addf(out, "%lld", (long long)e.number);
        text_adds(out, "\n");
        TRY(parquet_column_has_more(c, &more));
    }
    return STATUS_OK;
}

/* Seeking back and forth must yield the same rows as reading sequentially. */
static void check_seeks(const struct parquet *p, size_t leaf)
{
    struct parquet_column straight, c;
    struct text want = {0}, got = {0};
    parquet_column_init(&straight, p, leaf), parquet_column_init(&c, p, leaf);
    for (uint64_t row = 0; row < p->num_rows && row < 40; row++) {
        uint64_t far = row * 7 % p->num_rows;
        text_clear(&want), text_clear(&got);
        CHECK_STATUS(OK, add_row(&straight, &want));
        CHECK_STATUS(OK, parquet_column_seek(&c, far));
        CHECK_STATUS(OK, add_row(&c, &got));
        text_clear(&got);
        CHECK_STATUS(OK, parquet_column_seek(&c, row));
        CHECK_STATUS(OK, add_row(&c, &got));
        CHECK(want.len == got.len && !memcmp(want.data, got.data, got.len));
    }
    CHECK(parquet_column_bytes(&c) > 0);
    text_release(&want), text_release(&got);
    parquet_column_release(&straight), parquet_column_release(&c);
}

TEST(seeking_to_any_row_matches_a_sequential_read)
{
    struct file_list l = {0};
    int files = 0;
    CHECK_STATUS(OK, file_glob(&l, "tests/oracle/data/parquet/*-*-*.parquet"));
    for (size_t i = 0; i < l.count; i++) {
        struct parquet p;
        if (strstr(l.paths[i], "checksum")) continue;
        CHECK_STATUS(OK, parquet_open(&p, l.paths[i]));
        for (size_t leaf = 0; leaf < p.num_leaves; leaf++) check_seeks(&p, leaf);
        parquet_close(&p);
        files++;
    }
    CHECK(files > 10);
    file_list_release(&l);
}

TEST(deprecated_bit_packed_levels_decode)
{
    struct parquet p;
    struct parquet_column c;
    struct text rows = {0};
    CHECK_STATUS(OK, parquet_open(&p, "tests/formats/data/packed_levels.parquet"));
    parquet_column_init(&c, &p, 0);
    for (int row = 0; row < 4; row++) CHECK_STATUS(OK, add_row(&c, &rows));
    CHECK(!strcmp(rows.data, "0 3 1\n1 2 -\n0 0 -\n0 1 -\n0 3 2\n1 3 3\n1 3 4\n"));
    parquet_column_release(&c);
    parquet_close(&p);
    text_release(&rows);
}

TEST(a_row_group_that_begins_inside_a_row_is_rejected)
{
    static const char levels[] = "\x46\xE1\xFC"; /* repetition 0 1 0 0 0 1 1, then definition */
    const char *path = test_path(test_folder(), "inside.parquet");
    struct text bytes = {0}, rows = {0};
    struct parquet p;
    struct parquet_column c;
    CHECK_STATUS(OK, file_read("tests/formats/data/packed_levels.parquet", 1 << 20, &bytes));
    char *at = memmem(bytes.data, bytes.len, levels, sizeof levels - 1);
    CHECK(at);
    *at = (char)0xC6;
    CHECK_STATUS(OK, file_write(path, bytes.data, bytes.len));
    CHECK_STATUS(OK, parquet_open(&p, path));
    for (int seeks = 0; seeks < 2; seeks++) {
        parquet_column_init(&c, &p, 0);
        CHECK_STATUS(DATA, seeks ? parquet_column_seek(&c, 0) : add_row(&c, &rows));
        CHECK_MESSAGE("row group 0 begins with repetition level 1: expected 0");
        parquet_column_release(&c);
    }
    parquet_close(&p);
    text_release(&bytes), text_release(&rows);
}

/* Splits a column into ranges of `about` bytes and reads each with a reader of its own: together
 * they must yield all rows.  Returns the number of ranges. */
static int check_ranges(const struct parquet *p, size_t leaf, uint64_t about)
{
    struct parquet_column ahead, straight;
    struct text want = {0}, got = {0};
    int ranges = 0;
    parquet_column_init(&ahead, p, leaf), parquet_column_init(&straight, p, leaf);
    for (uint64_t begin = 0, end; begin < p->num_rows; begin = end, ranges++) {
        uint64_t bytes = about;
        struct parquet_column c;
        parquet_column_init(&c, p, leaf);
        end = parquet_column_range_end(&ahead, begin, &bytes);
        CHECK(end > begin && end <= p->num_rows);
        CHECK_STATUS(OK, parquet_column_seek(&c, begin));
        for (uint64_t row = begin; row < end; row++) {
            CHECK_STATUS(OK, add_row(&straight, &want));
            CHECK_STATUS(OK, add_row(&c, &got));
        }
        parquet_column_release(&c);
    }
    CHECK(want.len == got.len && !memcmp(want.data, got.data, got.len));
    text_release(&want), text_release(&got);
    parquet_column_release(&straight), parquet_column_release(&ahead);
    return ranges;
}

TEST(ranges_end_at_pages_or_fractions_of_row_groups_and_cover_all_rows)
{
    struct parquet p;
    size_t leaf;
    static const char *const files[] = {"pyarrow-snappy-v1.parquet", "pyarrow-none-v2.parquet"};
    static const char *const columns[] = {"text", "files[].text"};
    for (int i = 0; i < 4; i++) {
        const char *path = test_path(folder, files[i / 2]);
        CHECK_STATUS(OK, parquet_open(&p, path));
        CHECK_STATUS(OK, parquet_find(&p, columns[i % 2], &leaf));
        int groups = (int)p.num_groups, pages = check_ranges(&p, leaf, 1);
        int few = check_ranges(&p, leaf, 300), one = check_ranges(&p, leaf, 1 << 20);
        if (groups < 2 || pages <= groups || few > pages || one != groups)
            fail_msg("%s, %s: %d groups; %d, %d, %d ranges", path, columns[i % 2], groups, pages,
                     few, one);
        parquet_close(&p);
    }
}

/* Reads all rows of all columns. */
static enum status read_all(const char *path)
{
    struct parquet p;
    struct text rows = {0};
    TRY(parquet_open(&p, path));
    enum status st = STATUS_OK;
    for (size_t leaf = 0; leaf < p.num_leaves && !st; leaf++) {
        struct parquet_column c;
        parquet_column_init(&c, &p, leaf);
        for (uint64_t row = 0; row < p.num_rows && !st; row++) st = add_row(&c, &rows);
        parquet_column_release(&c);
    }
    text_release(&rows);
    parquet_close(&p);
    return st;
}

static enum status read_changed(struct text *bytes, size_t at, int by)
{
    const char *path = test_path(test_folder(), "changed.parquet");
    bytes->data[at] = (char)(bytes->data[at] ^ by);
    CHECK_STATUS(OK, file_write(path, bytes->data, bytes->len));
    bytes->data[at] = (char)(bytes->data[at] ^ by);
    return read_all(path);
}

TEST(a_page_with_a_wrong_checksum_is_rejected)
{
    struct text t = {0};
    text_addf(&t, "%s/rle-dict-uncompressed-corrupt-checksum.parquet", folder);
    CHECK_STATUS(DATA, read_all(t.data));
    CHECK_MESSAGE("checksum");
    text_release(&t);
}

/* In a file with checksums, every changed byte of a page must be detected. */
TEST(page_checksums_detect_any_changed_byte)
{
    struct text bytes = {0};
    char path[100];
    int seen = 0, tried = 0;
    snprintf(path, sizeof path, "%s/plain-dict-uncompressed-checksum.parquet", folder);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    CHECK_STATUS(OK, read_all(path));
    for (size_t at = 4; at < 90; at++, tried++) seen += read_changed(&bytes, at, 0x11) != 0;
    if (seen < tried - 12) fail_msg("%d of %d", seen, tried); /* page headers have no checksum */
    text_release(&bytes);
}

/* In a file without checksums, a changed byte must yield rows or an error. */
TEST(corrupt_parquet_pages_never_crash_the_reader)
{
    static const char *const names[] = {"datapage_v2.snappy", "nested_lists.snappy", "null_list"};
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        struct text bytes = {0};
        char path[100];
        int rejected = 0;
        snprintf(path, sizeof path, "%s/%s.parquet", folder, names[n]);
        CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
        CHECK_STATUS(OK, read_all(path));
        for (size_t at = 0; at < bytes.len; at += 3)
            rejected += read_changed(&bytes, at, 1 << (at % 8)) != 0;
        CHECK(rejected > 20);
        text_release(&bytes);
    }
}

/* The row counts of the footer and of the pages must agree. */
TEST(a_footer_whose_row_count_differs_from_its_pages_is_rejected)
{
    struct parquet p;
    struct parquet_column c;
    struct text out = {0};
    char path[100];
    snprintf(path, sizeof path, "%s/documents.parquet", folder);
    for (uint64_t rows = 2; rows <= 4; rows++)
        for (size_t leaf = 0; leaf < 4; leaf++) {
            enum status st = STATUS_OK;
            CHECK_STATUS(OK, parquet_open(&p, path));
            p.groups[0].num_rows = rows; /* 3 */
            parquet_column_init(&c, &p, leaf);
            for (uint64_t row = 0; row < rows && !st; row++) st = add_row(&c, &out);
            CHECK(st == (rows == 3 ? STATUS_OK : STATUS_DATA));
            if (st) CHECK_MESSAGE(rows < 3 ? "more rows" : "fewer rows");
            parquet_column_release(&c);
            parquet_close(&p);
        }
    text_release(&out);
}
