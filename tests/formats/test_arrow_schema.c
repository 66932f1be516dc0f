// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "formats/arrow.h"
#include "formats/arrow_schema.h"

/* tests/oracle/parquet.py wrote the files; tests/data/test_table.c checks their contents. */
static const char *file(const char *name) { return test_path("tests/oracle/data/arrow", name); }

TEST(an_unknown_arrow_column_is_an_error_that_lists_the_columns)
{
    struct arrow a;
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "words"));
    CHECK_MESSAGE(
        "the columns are: number, text, files[].text, input_ids[], spike_counts[][], not_utf8");
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "files"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "files[].size"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), "text.more"));
    CHECK_STATUS(CONFIG, arrow_open(&a, file("stream.arrow"), ""));
}

TEST(arrow_columns_have_a_level_per_list_and_struct)
{
    struct arrow a;
    CHECK_STATUS(OK, arrow_open(&a, file("views.arrow"), "files[].text"));
    CHECK(a.num_levels == 3 && a.num_lists == 1 && a.is_text && !a.is_dictionary_encoded);
    CHECK(a.levels[0].type == ARROW_LIST && a.levels[1].type == ARROW_STRUCT);
    CHECK(a.levels[2].type == ARROW_UTF8_VIEW && a.levels[2].variadic == 2);
    CHECK(a.levels[0].num_buffers == 2 && a.levels[1].num_buffers == 1);
    arrow_close(&a);
    CHECK_STATUS(OK, arrow_open(&a, file("views.arrow"), "input_ids"));
    CHECK(a.levels[0].list_size == 3 && a.is_integer && !a.is_u8);
    arrow_close(&a);
    CHECK_STATUS(OK, arrow_open(&a, file("coded.arrow"), "text"));
    CHECK(a.is_dictionary_encoded && a.is_text && a.num_levels == 1 &&
          a.levels[0].type == ARROW_INT);
    CHECK(a.dictionary_values.type == ARROW_UTF8);
    arrow_close(&a);
}

TEST(flatbuffer_reads_past_the_end_return_0_and_set_bad)
{
    const unsigned char bytes[] = {8, 0, 8, 0, 4, 0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0};
    struct flatbuffer f = {bytes, sizeof bytes, false}; /* the vtable is at 0, the table at 8 */
    uint64_t first;
    CHECK(flatbuffer_scalar(&f, 8, 0, 4) == 7 && flatbuffer_scalar(&f, 8, 1, 4) == 0 && !f.bad);
    CHECK(flatbuffer_scalar(&f, 8, 9, 4) == 0 && !f.bad);
    CHECK(flatbuffer_vector(&f, 8, 0, 1, &first) == 0 && f.bad);
    f.bad = false;
    CHECK(flatbuffer_read(&f, 13, 4) == 0 && f.bad);
}
