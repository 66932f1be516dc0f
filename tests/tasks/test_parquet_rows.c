// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "tasks/parquet_rows.h"

TEST(columns_without_a_place_in_a_row_are_omitted)
{
    struct parquet_rows *r;
    struct text row = {0};
    struct json *v;
    bool end;
    CHECK_STATUS(OK, parquet_rows_open(&r, "tests/oracle/data/parquet/documents.parquet"));
    for (int i = 0; i < 5; i++) {
        CHECK_STATUS(OK, parquet_rows_next(r, &row, &end));
        CHECK(!end);
        CHECK_STATUS(OK, json_parse(row.data, row.len, "row", &v));
        /* spike counts are lists of lists */
        CHECK(json_get(v, "text") && !json_get(v, "spike_counts"));
        if (i == 0) CHECK(json_string_is(json_get(v, "text"), "one"));
        json_free(v);
    }
    CHECK_STATUS(OK, parquet_rows_next(r, &row, &end));
    CHECK(end);
    text_release(&row);
    parquet_rows_close(r);
    CHECK_STATUS(MISSING, parquet_rows_open(&r, "nowhere.parquet"));
}
