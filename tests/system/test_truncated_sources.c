/* test_truncated_sources.c -- files that are truncated while a loader reads them: the rows before
 * are delivered as they would have been, and then a failure names the file. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "data/rig.h"

#include <unistd.h>

enum { T = 16, BEFORE = 3, MAX_ROWS = 8000, IDS = 20000 };

/* A kind of source, and the file of it that is truncated. */
struct truncated_kind {
    const char *path, *file;
    enum data_order order;
};

/* text_lines and tokens need several pages, so that truncation raises SIGBUS in some of them. */
static void write_files(const char *folder)
{
    static const char *const copied[][2] = {
        {"tests/oracle/data/parquet/pyarrow-split-v2.parquet", "rows.parquet"},
        {"tests/oracle/data/arrow/file.arrow", "rows.arrow"}};
    struct text lines = {0}, packed = {0};
    int lengths[200];
    while (lines.len < 40000) rig_lines(&lines, "doc", 60);
    rig_text(folder, "a.jsonl", lines.data), rig_text(folder, "a.txt", lines.data);
    rig_gzip(&packed, lines.data, lines.len);
    rig_bytes(folder, "a.jsonl.gz", packed.data, packed.len);
    text_clear(&packed);
    rig_zstd(&packed, lines.data, lines.len);
    rig_bytes(folder, "a.jsonl.zst", packed.data, packed.len);
    for (int d = 0; d < 200; d++) lengths[d] = 1 + d % 90;
    rig_tokens(folder, "tokens", lengths, 200, 1);
    rig_array(folder, "rows.npy", 200, 40);
    for (size_t i = 0; i < 2; i++) {
        text_clear(&lines);
        CHECK_STATUS(OK, file_read(copied[i][0], 1 << 20, &lines));
        rig_bytes(folder, copied[i][1], lines.data, lines.len);
    }
    text_release(&lines), text_release(&packed);
}

static void rig_of(struct rig *r, const char *path, enum data_order order, int prefetch)
{
    rig_init(r, "bytes", T);
    r->data.streams = 2;
    r->options.vocab_size = IDS;
    r->options.run_rows = MAX_ROWS;
    r->data.order = order;
    r->options.prefetch_rows = prefetch;
    rig_add(r, path, 1);
}

/* Truncates to `share` of the size, or by three bytes if it is 1; returns the new size. */
static uint64_t truncate_to(const char *path, double share)
{
    uint64_t size;
    CHECK_STATUS(OK, file_size(path, &size));
    uint64_t left = share < 1 ? (uint64_t)(share * (double)size) : size - 3;
    CHECK(!truncate(path, (off_t)left));
    return left;
}

static void check_truncated(const struct truncated_kind *k, double share, int prefetch)
{
    const char *folder = test_folder(), *file = test_path(folder, k->file);
    struct rig r;
    int32_t room[4][T];
    struct batch b = {.B = 1,
                      .T = T,
                      .ids_BT = room[0],
                      .labels_BT = room[1],
                      .start_BT = room[2],
                      .end_BT = room[3]};
    write_files(folder);
    rig_of(&r, test_path(folder, k->path), k->order, prefetch);
    struct rows want = rows_of(&r, 1, MAX_ROWS);
    struct loader *l = rig_open(&r);
    enum status st = STATUS_OK;
    int rows;
    for (int g = 0; !st; g++) {
        if (g == BEFORE) truncate_to(file, share);
        if (g == MAX_ROWS) fail_msg("%s truncated to %g: no failure", k->file, share);
        st = loader_next(l, &b, &rows);
        if (st) break;
        size_t at = (size_t)g * T;
        if (memcmp(b.ids_BT, want.ids + at, T * sizeof *b.ids_BT) ||
            memcmp(b.labels_BT, want.labels + at, T * sizeof *b.labels_BT))
            fail_msg("%s truncated to %g: row %d differs", k->file, share, g);
    }
    CHECK(st == STATUS_DATA);
    CHECK_MESSAGE(file);
    CHECK_MESSAGE("truncated");
    CHECK(loader_next(l, &b, &rows) == STATUS_DATA); /* and again */
    loader_close(l);
    rows_release(&want);
    rig_release(&r);
}

static void check_order(const char *path, const char *file, enum data_order order)
{
    static const double shares[] = {0, 0.4, 0.99, 1};
    const struct truncated_kind k = {path, file, order};
    for (int prefetch = 0; prefetch < 9; prefetch += 8)
        for (size_t i = 0; i < 4; i++) check_truncated(&k, shares[i], prefetch);
}

static void check_kind(const char *path, const char *file)
{
    check_order(path, file, ORDER_streams);
}

TEST(a_truncated_txt_file_is_named) { check_kind("a.txt", "a.txt"); }
TEST(a_truncated_jsonl_file_is_named) { check_kind("a.jsonl", "a.jsonl"); }
TEST(a_truncated_gzip_file_is_named) { check_kind("a.jsonl.gz", "a.jsonl.gz"); }
TEST(a_truncated_zstd_file_is_named) { check_kind("a.jsonl.zst", "a.jsonl.zst"); }
TEST(a_truncated_bin_file_is_named) { check_kind("tokens", "tokens.bin"); }
TEST(a_truncated_idx_file_is_named) { check_kind("tokens", "tokens.idx"); }
TEST(a_truncated_bin_file_is_named_in_megatrons_order)
{
    check_order("tokens", "tokens.bin", ORDER_megatron);
}
TEST(a_truncated_idx_file_is_named_in_megatrons_order)
{
    check_order("tokens", "tokens.idx", ORDER_megatron);
}
TEST(a_truncated_npy_file_is_named) { check_kind("rows.npy", "rows.npy"); }
TEST(a_truncated_parquet_file_is_named) { check_kind("rows.parquet", "rows.parquet"); }
TEST(a_truncated_arrow_file_is_named) { check_kind("rows.arrow", "rows.arrow"); }
