// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "tasks/task.h"

static const struct tokenizer_config plain = {0};

/* Opens a task over these lines with the tokenizer "bytes", whose BOS is 256. */
static enum status open_lines(struct task *t, struct task_options *o, const char *lines)
{
    struct tokenizer *bytes;
    const char *path = test_path(test_folder(), "task.jsonl");
    CHECK_STATUS(OK, file_write(path, lines, strlen(lines)));
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &plain));
    o->name = "task", o->path = path;
    enum status st = task_open(t, o, bytes);
    tokenizer_close(bytes);
    return st;
}

static void check_request(const struct task *t, size_t i, const char *text, int scored)
{
    const struct task_request *r = &t->requests[i];
    const int32_t *ids = t->ids.ids + r->first;
    CHECK(r->num_scored == scored && r->num_ids == (int)strlen(text));
    for (int n = 0; n < r->num_ids; n++)
        CHECK(ids[n] == (text[n] == '^' ? 256 : (unsigned char)text[n]));
}

TEST(white_space_moves_from_the_context_to_the_continuation)
{
    struct task t;
    struct task_options o = {.max_tokens = 100};
    CHECK_STATUS(OK, open_lines(&t, &o, "{\"text\": \"ab \\n cd\"}\n{\"text\": \"ab cd\"}"));
    CHECK(t.num_items == 2 && t.num_requests == 2 && !t.num_truncated);
    check_request(&t, 0, "^ab \n cd", 5);
    check_request(&t, 1, "^ab cd", 3);
    CHECK(task_row_tokens(&t, &t.requests[1]) == 5); /* the last token is only predicted */
    task_close(&t);
}

TEST(bos_stands_in_for_an_empty_context)
{
    struct task t;
    struct task_options o = {.max_tokens = 100, .masked = true};
    CHECK_STATUS(OK, open_lines(&t, &o, "{\"text\": \"cd\"}\n{\"text\": \"  cd\"}"));
    check_request(&t, 0, "^ cd", 3);
    check_request(&t, 1, "^  cd", 4);
    CHECK(task_row_tokens(&t, &t.requests[0]) == 4);
    task_close(&t);
}

TEST(the_beginning_of_a_long_request_is_left_out)
{
    struct task t;
    struct task_options o = {.max_tokens = 5};
    CHECK_STATUS(OK, open_lines(&t, &o, "{\"text\": \"0123456789 cd\"}"));
    check_request(&t, 0, "789 cd", 3);
    CHECK(t.num_truncated == 1 && task_row_tokens(&t, &t.requests[0]) == 5);
    task_close(&t);
    o.masked = true;
    CHECK_STATUS(OK, open_lines(&t, &o, "{\"text\": \"0123456789 cd\"}"));
    check_request(&t, 0, "89 cd", 3);
    task_close(&t);
    o.max_tokens = 2;
    CHECK_STATUS(DATA, open_lines(&t, &o, "{\"text\": \"0123456789 cd\"}"));
    CHECK_MESSAGE("task.jsonl, line 1: an answer has 3 tokens, more than a row of 2");
}

TEST(a_task_names_the_row_that_is_wrong)
{
    struct task t;
    struct task_options o = {.max_tokens = 5};
    CHECK_STATUS(DATA, open_lines(&t, &o, ""));
    CHECK_MESSAGE("contains no rows");
    CHECK_STATUS(CONFIG, open_lines(&t, &o, "{\"txt\": \"0\"}"));
    CHECK_MESSAGE("task.jsonl, line 1: the columns match no known task; expected those of arc");
    CHECK_STATUS(DATA, open_lines(&t, &o, "{\"text\": \"a b\"}\n{\"text\": 3}"));
    CHECK_MESSAGE("task.jsonl, line 2");
    o.format = &task_formats[TASK_FORMAT_piqa];
    CHECK_STATUS(DATA, open_lines(&t, &o, "{\"text\": \"a b\"}"));
    CHECK_MESSAGE("goal");
    CHECK_STATUS(CONFIG, task_open(&t, &o, NULL));
    CHECK_MESSAGE("requires a tokenizer");
}

TEST(a_limit_reads_only_the_first_rows)
{
    struct task t;
    struct task_options o = {.max_tokens = 100, .limit = 1};
    CHECK_STATUS(OK, open_lines(&t, &o, "{\"text\": \"a b\"}\nnot read"));
    CHECK(t.num_items == 1);
    task_close(&t);
}
