// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/arrow_schema.h"

/* What rows hold is in tests/data/test_table.c; files are of tests/oracle/parquet.py. */
static const char *file(const char *name) { return test_path("tests/oracle/data/arrow", name); }

TEST(what_is_not_there_is_said_with_what_is)
{
    struct arrow a;
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "words"));
    CHECK_MESSAGE("there are number, text, files[].text, input_ids[], spike_counts[][], not_utf8");
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "files"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "files[].size"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "text.more"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), ""));
}

TEST(columns_have_the_levels_of_their_lists_and_structs)
{
    struct arrow a;
    CHECK_STATUS(OK, arrow_open(&a, file("views.arrow"), "files[].text"));
    CHECK(a.num_levels == 3 && a.num_lists == 1 && a.is_text && !a.is_coded);
    CHECK(a.levels[0].type == ARROW_LIST && a.levels[1].type == ARROW_STRUCT);
    CHECK(a.levels[2].type == ARROW_UTF8_VIEW && a.levels[2].views == 2);
    CHECK(arrow_schema_buffers(ARROW_LIST) == 2 && arrow_schema_buffers(ARROW_NULL) == 0);
    arrow_close(&a);
    CHECK_STATUS(OK, arrow_open(&a, file("views.arrow"), "input_ids"));
    CHECK(a.levels[0].list_size == 3 && a.is_integer && !a.is_u8);
    arrow_close(&a);
    CHECK_STATUS(OK, arrow_open(&a, file("coded.arrow"), "text"));
    CHECK(a.is_coded && a.is_text && a.num_levels == 1 && a.levels[0].type == ARROW_INT);
    CHECK(a.values.type == ARROW_UTF8);
    arrow_close(&a);
}

TEST(fields_of_a_flatbuffer_beyond_its_end_are_0_and_told)
{
    const unsigned char bytes[] = {8, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0};
    struct flat f = {bytes, sizeof bytes, false}; /* its vtable is at 0, the table at 8 */
    uint64_t first;
    CHECK(flat_scalar(&f, 8, 0, 4) == 7 && flat_scalar(&f, 8, 1, 4) == 0 && !f.bad);
    CHECK(flat_scalar(&f, 8, 9, 4) == 0 && !f.bad);
    CHECK(flat_items(&f, 8, 0, 1, &first) == 0 && f.bad);
    f.bad = false;
    CHECK(flat_number(&f, 13, 4) == 0 && f.bad);
}
