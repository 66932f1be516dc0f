// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tasks/task_list.h"

#define DATA "tests/infer/data/lm_eval/"

static const struct tokenizer_config plain = {0};

static enum status open_words(struct task_list *l, const char *a, const char *b)
{
    const char *words[] = {a, b};
    struct option_list list = {words, 2};
    struct task_options o = {.max_tokens = 1000};
    struct tokenizer *bytes;
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &plain));
    enum status st = task_list_open(l, &list, &o, bytes);
    tokenizer_close(bytes);
    return st;
}

TEST(tasks_are_named_after_their_files_or_explicitly)
{
    struct task_list l;
    CHECK_STATUS(OK, open_words(&l, DATA "arc.jsonl", "other=" DATA "arc.parquet"));
    CHECK(l.count == 2 && !strcmp(l.tasks[0].name, "arc") && !strcmp(l.tasks[1].name, "other"));
    CHECK(l.tasks[0].ids.count == l.tasks[1].ids.count);
    CHECK(task_list_longest_row(&l) > 100);
    task_list_close(&l);
    CHECK_STATUS(CONFIG, open_words(&l, DATA "arc.jsonl", DATA "arc.parquet"));
    CHECK_MESSAGE("two tasks are named \"arc\"; rename one with NAME=FILE");
    CHECK_STATUS(MISSING, open_words(&l, DATA "arc.jsonl", "nowhere.jsonl"));
    CHECK(!strcmp(task_list_path("a=b/c"), "b/c") && !strcmp(task_list_path("a/b=c"), "a/b=c"));
}

TEST(a_masked_model_requires_its_mask_token)
{
    struct tokenizer *bytes;
    int32_t mask;
    CHECK_STATUS(OK, tokenizer_open(&bytes, "bytes", &plain));
    CHECK_STATUS(OK, task_list_find_mask(bytes, "<|mask|>", &mask));
    CHECK(mask == 258);
    CHECK_STATUS(CONFIG, task_list_find_mask(bytes, "<mask>", &mask));
    tokenizer_close(bytes);
}
