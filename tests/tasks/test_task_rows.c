// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "tasks/task_rows.h"

#include <unistd.h>

static const char *write_rows(const char *name, const char *bytes)
{
    const char *path = test_path(test_folder(), name);
    CHECK_STATUS(OK, file_write(path, bytes, strlen(bytes)));
    return path;
}

static struct task_rows *start(const char *path)
{
    struct task_rows *r;
    CHECK_STATUS(OK, task_rows_open(&r, path));
    return r;
}

TEST(lines_are_objects_and_blank_lines_are_skipped)
{
    struct task_rows *r = start(write_rows("a.jsonl", "{\"a\": 1}\r\n \n{\"a\": 2}"));
    struct json *row;
    CHECK_STATUS(OK, task_rows_next(r, &row));
    CHECK(json_number(json_get(row, "a")) == 1);
    json_free(row);
    CHECK_STATUS(OK, task_rows_next(r, &row));
    CHECK(json_number(json_get(row, "a")) == 2 && strstr(task_rows_where(r), "a.jsonl, line 3"));
    json_free(row);
    CHECK_STATUS(OK, task_rows_next(r, &row));
    CHECK(!row);
    task_rows_close(r);
}

TEST(lines_that_are_not_objects_are_rejected)
{
    static const char *const lines[] = {"[1]", "3", "{\"a\": }", "{\"a\": 1} x", "\xff"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct task_rows *r = start(write_rows("a.jsonl", lines[i]));
        struct json *row;
        CHECK_STATUS(DATA, task_rows_next(r, &row));
        CHECK(!row);
        CHECK_MESSAGE("a.jsonl, line 1");
        task_rows_close(r);
    }
    struct task_rows *none;
    CHECK_STATUS(CONFIG, task_rows_open(&none, write_rows("a.csv", "a,b")));
    CHECK_MESSAGE("expected a .jsonl");
    CHECK_STATUS(MISSING, task_rows_open(&none, "nowhere.jsonl"));
    CHECK_STATUS(MISSING, task_rows_open(&none, "nowhere.parquet"));
    CHECK_STATUS(MISSING, task_rows_open(&none, "nowhere.jsonl.gz"));
}

/* Two values with the same content. */
static void check_equal(const struct json *a, const struct json *b)
{
    if (json_is_object(b) || json_is_array(b)) {
        CHECK(json_count(a) == json_count(b));
        const struct json *x = json_first(a);
        for (const struct json *y = json_first(b); y; y = json_next(y), x = json_next(x))
            check_equal(json_is_object(b) ? json_get(a, json_key(y)) : x, y);
        return;
    }
    CHECK(a && json_is_string(a) == json_is_string(b));
    if (json_is_string(b))
        CHECK(!strcmp(json_string(a), json_string(b)));
    else
        CHECK(json_number(a) == json_number(b));
}

TEST(parquet_rows_equal_the_lines_they_were_written_from)
{
    static const char *const names[] = {"arc", "mmlu", "hellaswag"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char lines[100], table[100];
        snprintf(lines, sizeof lines, "tests/infer/data/lm_eval/%s.jsonl", names[i]);
        snprintf(table, sizeof table, "tests/infer/data/lm_eval/%s.parquet", names[i]);
        struct task_rows *a = start(table), *b = start(lines);
        struct json *x, *y;
        int rows = 0;
        do {
            CHECK_STATUS(OK, task_rows_next(a, &x));
            CHECK_STATUS(OK, task_rows_next(b, &y));
            CHECK(!x == !y);
            if (x) check_equal(x, y);
            rows += x != NULL;
            json_free(x), json_free(y);
        } while (x);
        CHECK(rows == 16);
        task_rows_close(a), task_rows_close(b);
    }
}

TEST(a_file_truncated_while_its_rows_are_read_fails_with_its_name)
{
    const char *path = write_rows("a.jsonl", "{\"a\": 1}\n{\"a\": 2}\n");
    struct task_rows *r = start(path);
    struct json *row;
    CHECK_STATUS(OK, task_rows_next(r, &row));
    json_free(row);
    CHECK(!truncate(path, 9));
    CHECK_STATUS(DATA, task_rows_next(r, &row));
    CHECK(!row);
    CHECK_MESSAGE("a.jsonl: the file was truncated from 18 to 9 bytes");
    task_rows_close(r);
}
