// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tasks/task_format.h"

static struct json *parse(const char *text)
{
    struct json *row;
    CHECK_STATUS(OK, json_parse(text, strlen(text), "row", &row));
    return row;
}

/* The format of the row must be `name`; fills in the question. */
static enum status question(const char *name, const char *text, struct task_question *q)
{
    struct json *row = parse(text);
    const struct task_format *f = task_format_detect(row);
    CHECK(f && !strcmp(f->name, name));
    enum status st = f->read(row, q);
    json_free(row);
    return st;
}

static void check_choice(const struct task_question *q, int i, const char *context,
                         const char *continuation, int64_t length)
{
    const struct task_choice *c = &q->choices[i];
    if (strcmp(c->context.data, context)) fail_msg("context: %s", c->context.data);
    if (strcmp(c->continuation.data, continuation)) fail_msg("%s", c->continuation.data);
    CHECK(c->length == length);
}

TEST(data_sets_become_the_prompts_of_lm_eval)
{
    struct task_question q = {0};
    CHECK_STATUS(OK, question("arc",
                              "{\"question\": \"Why?\", \"answerKey\": \"2\", \"choices\": "
                              "{\"label\": [\"1\", \"2\"], \"text\": [\"no\", \"caf\u00e9\"]}}",
                              &q));
    CHECK(q.num_choices == 2 && q.gold == 1);
    check_choice(&q, 1, "Question: Why?\nAnswer:", " caf\u00e9", 4);
    CHECK_STATUS(OK, question("hellaswag",
                              "{\"activity_label\": \"Ski\", \"ctx_a\": \"[header] A [title] b.\", "
                              "\"ctx_b\": \"tHE end\", \"endings\": [\" x [step] y\", \"z\"], "
                              "\"label\": \"0\"}",
                              &q));
    CHECK(q.num_choices == 2 && q.gold == 0);
    check_choice(&q, 0, "Ski: A. b. The end", " x y", 3);
    CHECK_STATUS(
        OK,
        question("piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}", &q));
    check_choice(&q, 0, "Question: g\nAnswer:", " a", 1);
    CHECK_STATUS(OK, question("winogrande",
                              "{\"sentence\": \"So _ was  here. \", \"option1\": \"A\", "
                              "\"option2\": \"Bo\", \"answer\": \"2\"}",
                              &q));
    CHECK(q.gold == 1);
    check_choice(&q, 1, "So Bo", " was  here.", 5);
    CHECK_STATUS(OK, question("mmlu",
                              "{\"question\": \" q \", \"subject\": \"high_school_art\", "
                              "\"choices\": [\"w\", \"x\", \"y\", \"z\"], \"answer\": 3}",
                              &q));
    CHECK(q.num_choices == 4 && q.gold == 3);
    check_choice(&q, 2,
                 "The following are multiple choice questions (with answers) about high school "
                 "art.\n\nq\nA. w\nB. x\nC. y\nD. z\nAnswer:",
                 " C", 1);
    CHECK_STATUS(OK, question("lambada", "{\"text\": \"one two  three\"}", &q));
    CHECK(q.num_choices == 1 && q.gold == 0);
    check_choice(&q, 0, "one two ", " three", 6);
    task_format_release_question(&q);
}

static void check_rejected(const char *name, const char *text, const char *message)
{
    struct task_question q = {0};
    CHECK_STATUS(DATA, question(name, text, &q));
    CHECK_MESSAGE(message);
    task_format_release_question(&q);
}

TEST(malformed_rows_are_rejected)
{
    check_rejected("piqa", "{\"goal\": 1, \"sol1\": \"a\", \"sol2\": \"b\"}", "goal");
    check_rejected("piqa", "{\"goal\": \"g\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": -1}",
                   "from 0 to 1");
    check_rejected(
        "winogrande",
        "{\"sentence\": \"no\", \"option1\": \"A\", \"option2\": \"B\", \"answer\": \"1\"}",
        "blank");
    check_rejected(
        "winogrande",
        "{\"sentence\": \"a _\", \"option1\": \"A\", \"option2\": \"B\", \"answer\": \"\"}",
        "is empty: expected a split with answers");
    check_rejected("arc",
                   "{\"question\": \"q\", \"answerKey\": \"C\", \"choices\": {\"label\": [\"A\"], "
                   "\"text\": [\"x\"]}}",
                   "expected one of \"choices.label\"");
    check_rejected("arc",
                   "{\"question\": \"q\", \"answerKey\": \"A\", \"choices\": {\"label\": [\"A\"], "
                   "\"text\": []}}",
                   "choices");
    check_rejected("mmlu",
                   "{\"question\": \"q\", \"subject\": \"s\", \"choices\": [\"a\"], \"answer\": 0}",
                   "expected 4, found 1");
    check_rejected("hellaswag",
                   "{\"activity_label\": \"l\", \"ctx_a\": \"a\", \"ctx_b\": \"\", \"endings\": "
                   "[\"x\", 2], \"label\": \"0\"}",
                   "expected a list of strings");
    struct json *row = parse("{\"prompt\": 1}");
    CHECK(!task_format_detect(row));
    json_free(row);
}

TEST(answers_of_mmlu_may_be_letters)
{
    struct task_question q = {0};
    CHECK_STATUS(OK, question("mmlu",
                              "{\"question\": \"q\", \"subject\": \"s\", \"choices\": [\"w\", "
                              "\"x\", \"y\", \"z\"], \"answer\": \"C\"}",
                              &q));
    CHECK(q.gold == 2);
    task_format_release_question(&q);
}

TEST(formats_are_in_the_order_of_their_names)
{
    for (int i = 0; i <= TASK_FORMAT_lambada; i++)
        CHECK(!strcmp(task_formats[i].name, task_format_id_word((enum task_format_id)i)));
}
