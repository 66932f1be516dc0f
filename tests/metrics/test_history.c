// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "metrics/history.h"

static const char *write_file(const char *content)
{
    const char *path = test_path(test_folder(), "metrics.jsonl");
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    return path;
}

static bool file_is(const char *path, const char *want)
{
    struct text t = {0};
    CHECK_STATUS(OK, file_read(path, 1 << 20, &t));
    bool same = t.len == strlen(want) && !memcmp(t.data, want, t.len);
    text_release(&t);
    return same;
}

static const char three_steps[] =
    "{\"step\":1,\"loss\":3}\n{\"step\":5,\"loss\":2}\n"
    "{\"step\":5,\"validation_loss\":2.5}\n{\"step\":10,\"loss\":1}\n";

#define UP_TO(step) (&(struct history_end){.last_step = step})

TEST(history_truncate_keeps_lines_up_to_the_step)
{
    size_t removed;
    const char *path = write_file(three_steps);
    CHECK_STATUS(OK, history_truncate(path, UP_TO(10), &removed));
    CHECK(removed == 0 && file_is(path, three_steps));
    CHECK_STATUS(OK, history_truncate(path, UP_TO(9), &removed));
    CHECK(removed == 1 && file_is(path, "{\"step\":1,\"loss\":3}\n{\"step\":5,\"loss\":2}\n"
                                        "{\"step\":5,\"validation_loss\":2.5}\n"));
    CHECK_STATUS(OK, history_truncate(path, UP_TO(4), &removed));
    CHECK(removed == 2 && file_is(path, "{\"step\":1,\"loss\":3}\n"));
}

TEST(history_truncate_removes_a_validation_that_is_repeated)
{
    size_t removed;
    const struct history_end end = {.last_step = 5, .validates = true};
    const char *path = write_file("{\"step\":4,\"validation_loss\":3}\n{\"step\":5,\"loss\":2}\n"
                                  "{\"step\":5,\"validation_loss\":2.5}\n"
                                  "{\"step\":5,\"task\":\"piqa\",\"acc\":1}\n"
                                  "{\"step\":6,\"loss\":1}\n");
    for (size_t again = 0; again < 2; again++) {
        CHECK_STATUS(OK, history_truncate(path, &end, &removed));
        CHECK(removed == (again ? 0 : 3));
        CHECK(file_is(path, "{\"step\":4,\"validation_loss\":3}\n{\"step\":5,\"loss\":2}\n"));
    }
}

TEST(history_truncate_to_step_0_empties_the_file)
{
    size_t removed;
    const char *path = write_file("{\"step\":0,\"validation_loss\":9}\n{\"step\":1,\"loss\":3}\n");
    CHECK_STATUS(OK, history_truncate(path, UP_TO(0), &removed));
    CHECK(removed == 2 && file_is(path, ""));
}

/* Truncates the last line at every byte, as a crash could. */
TEST(history_truncate_drops_an_incomplete_last_line)
{
    const char *path = write_file("");
    static const char first[] = "{\"step\":1,\"loss\":3}\n", last[] = "{\"step\":2,\"loss\":2.5}\n";
    for (size_t written = 0; written < sizeof last; written++) {
        struct text t = {0};
        text_adds(&t, first);
        text_add(&t, last, written);
        CHECK_STATUS(OK, file_write(path, t.data, t.len));
        size_t removed;
        CHECK_STATUS(OK, history_truncate(path, UP_TO(100), &removed));
        bool whole = written == sizeof last - 1;
        CHECK(removed == (written && !whole ? 1u : 0u));
        CHECK(file_is(path, whole ? t.data : first));
        text_release(&t);
    }
}

TEST(history_truncate_drops_malformed_lines)
{
    size_t removed;
    const char *path = write_file("{\"step\":1}\nhello\n[1]\n{\"loss\":1}\n{\"step\":-1}\n\n"
                                  "{\"step\":1.5}\n{\"step\":\"1\"}\n{\"step\":2}\n");
    CHECK_STATUS(OK, history_truncate(path, UP_TO(5), &removed));
    CHECK(removed == 7 && file_is(path, "{\"step\":1}\n{\"step\":2}\n"));
}

TEST(history_truncate_accepts_a_missing_file)
{
    size_t removed = 1;
    const char *path = test_path(test_folder(), "metrics.jsonl");
    CHECK_STATUS(OK, history_truncate(path, UP_TO(5), &removed));
    CHECK(removed == 0 && !file_exists(path));
}

/* A kept line is one of the file's, of step 5 or an earlier one. */
static void check_line(const struct text *damaged, const char *line)
{
    struct json *v;
    int64_t step;
    CHECK(memmem(damaged->data, damaged->len, line, strlen(line)));
    CHECK_STATUS(OK, json_parse(line, strlen(line), "line", &v));
    CHECK(json_as_int(json_get(v, "step"), 0, 5, &step));
    json_free(v);
}

/* Truncating keeps complete lines only, and truncating again changes nothing. */
TEST(history_truncate_is_idempotent_on_corrupt_files)
{
    const char *path = write_file("");
    for (uint64_t round = 0; round < 300; round++) {
        struct text damaged = {0}, once = {0}, twice = {0};
        size_t removed;
        for (int i = 1; i <= 8; i++) text_addf(&damaged, "{\"step\":%d,\"loss\":%d}\n", i, 9 - i);
        for (uint64_t i = 0; i < 4; i++)
            damaged.data[rng_below(damaged.len, 1, RNG_TEST, round, 2 * i)] =
                (char)rng_below(256, 1, RNG_TEST, round, 2 * i + 1);
        CHECK_STATUS(OK, file_write(path, damaged.data, damaged.len));
        CHECK_STATUS(OK, history_truncate(path, UP_TO(5), &removed));
        CHECK_STATUS(OK, file_read(path, 1 << 20, &once));
        CHECK(!once.len || once.data[once.len - 1] == '\n');
        CHECK_STATUS(OK, history_truncate(path, UP_TO(5), &removed));
        CHECK_STATUS(OK, file_read(path, 1 << 20, &twice));
        CHECK(removed == 0 && once.len == twice.len && !memcmp(once.data, twice.data, once.len));
        for (char *rest = once.data, *line; (line = strsep(&rest, "\n")) && *line;)
            check_line(&damaged, line);
        text_release(&damaged);
        text_release(&once);
        text_release(&twice);
    }
}

/* A checkpoint of step 5 is older than a rollback to step 5. */
TEST(history_truncate_drops_a_rollback_that_will_be_repeated)
{
    static const char all[] = "{\"step\":5,\"loss\":3}\n"
                              "{\"step\":5,\"rollback_from\":9,\"rows_skipped\":[40,71]}\n"
                              "{\"step\":6,\"loss\":3}\n";
    size_t removed;
    const char *path = write_file(all);
    CHECK_STATUS(OK, history_truncate(path, UP_TO(6), &removed));
    CHECK(removed == 0 && file_is(path, all));
    CHECK_STATUS(OK, history_truncate(path, UP_TO(5), &removed));
    CHECK(removed == 2 && file_is(path, "{\"step\":5,\"loss\":3}\n"));
}
