// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "formats/parquet_column.h"

#include "oracle/entry_digest.h"

/* Compares the files of a folder with its `digests` by pyarrow (tests/oracle/parquet.py): for every
 * column the number of entries, and the checksum of their levels and values. */
static const char *folder(void)
{
    const char *other = getenv("LLAMERO_PARQUET_FOLDER");
    return other ? other : "tests/oracle/data/parquet";
}

static enum status digest(struct parquet_column *c, struct entry_digest *d)
{
    struct column_entry e;
    for (uint64_t row = 0; row < c->file->num_rows; row++) {
        for (bool more = true; more;) {
            TRY(parquet_column_next(c, &e));
            entry_digest_add(d, &e, c->values.bytes);
            TRY(parquet_column_has_more(c, &more));
        }
    }
    return STATUS_OK;
}

/* A line of `digests`: the columns of a file, or "refused". */
static void describe(const char *name, struct text *out, struct text *why)
{
    struct parquet p;
    text_addf(out, "%s", name);
    enum status st = parquet_open(&p, test_path(folder(), name));
    size_t leaves = st ? 0 : p.num_leaves, begin = out->len;
    for (size_t leaf = 0; leaf < leaves && !st; leaf++) {
        struct parquet_column c;
        struct entry_digest d = {0};
        parquet_column_init(&c, &p, leaf);
        st = digest(&c, &d);
        parquet_column_release(&c);
        text_addf(out, " %llu:%08x", (unsigned long long)d.entries, d.crc);
    }
    if (leaves) parquet_close(&p);
    if (!st) return;
    out->len = begin;
    text_adds(out, " refused");
    text_addf(why, "%s\n", status_message());
}

TEST(files_of_other_programs_decode_as_in_pyarrow)
{
    struct text digests = {0}, why = {0};
    int files = 0, wrong = 0;
    CHECK_STATUS(OK, file_read(test_path(folder(), "digests"), 1 << 20, &digests));
    for (char *at = digests.data, *line; (line = strsep(&at, "\n")) && *line; files++) {
        struct text got = {0};
        char name[256];
        CHECK(sscanf(line, "%255s", name) == 1);
        describe(name, &got, &why);
        if (strcmp(got.data, line) != 0) {
            print_error("expected %s\n     got %s\n", line, got.data);
            wrong++;
        }
        text_release(&got);
    }
    if (getenv("LLAMERO_PARQUET_FOLDER")) print_message("%d files; rejected:\n%s", files, why.data);
    text_release(&digests), text_release(&why);
    CHECK(files > 20 && !wrong);
}
