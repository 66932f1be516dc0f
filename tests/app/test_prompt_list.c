// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "app/prompt_list.h"

static enum status read_as(const char *name, const char *content, struct prompt_list *p)
{
    const char *path = test_path(test_folder(), name);
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    return prompt_list_read(p, path);
}

TEST(prompts_are_lines_or_members_of_json_lines)
{
    struct prompt_list p;
    CHECK_STATUS(OK, read_as("a.txt", "one\r\n\n two \nlast", &p));
    CHECK(p.count == 3 && p.longest == 5);
    CHECK(!strcmp(p.all[0], "one") && !strcmp(p.all[1], " two ") && !strcmp(p.all[2], "last"));
    prompt_list_release(&p);
    CHECK_STATUS(OK,
                 read_as("a.jsonl", "{\"prompt\":\"a\\nb\",\"id\":1}\n\n{\"prompt\":\"\"}\n", &p));
    CHECK(p.count == 2 && !strcmp(p.all[0], "a\nb") && !*p.all[1]);
    prompt_list_release(&p);
}

TEST(files_without_prompts_are_rejected)
{
    struct prompt_list p;
    CHECK_STATUS(MISSING, prompt_list_read(&p, "nowhere.txt"));
    prompt_list_release(&p);
    CHECK_STATUS(DATA, read_as("a.txt", "", &p));
    CHECK_STATUS(DATA, read_as("a.txt", "\n\r\n", &p));
    prompt_list_release(&p);
    CHECK_STATUS(DATA, read_as("a.jsonl", "{\"prompt\":\"a\"}\n{\"text\":\"b\"}\n", &p));
    CHECK_MESSAGE("a.jsonl:2: expected an object with a string \"prompt\"");
    prompt_list_release(&p);
    CHECK_STATUS(DATA, read_as("a.jsonl", "{\"prompt\":5}\n", &p));
    prompt_list_release(&p);
    CHECK_STATUS(DATA, read_as("a.jsonl", "nothing\n", &p));
    prompt_list_release(&p);
}

TEST(generate_prints_an_object_for_each_prompt_and_copy)
{
    char *dump = runs_trained("training.steps=2"), *file = file_join(test_folder(), "p.txt");
    struct text out = {0}, err = {0};
    CHECK_STATUS(OK, file_write(file, "the\na llama\n", 12));
    CHECK(LLAMERO(&out, &err, "generate", dump, "--prompts", file, "--n", "2", "--max-tokens", "3",
                  "--batch", "3", "--seed", "5") == 0);
    CHECK(strstr(err.data, " tokens of 4 texts in "));
    CHECK(strstr(err.data, " s and generated 12 in "));
    int lines = 0;
    for (const char *at = out.data; *at; lines++) {
        struct json *v;
        size_t len = strcspn(at, "\n");
        CHECK_STATUS(OK, json_parse(at, len, "line", &v));
        CHECK(json_string_is(json_get(v, "prompt"), lines < 2 ? "the" : "a llama"));
        CHECK(json_count(json_get(v, "ids")) == 3);
        CHECK(json_count(json_get(v, "log_probabilities")) == 3);
        json_free(v);
        at += len + 1;
    }
    CHECK(lines == 4);
    CHECK(LLAMERO(NULL, &err, "generate", dump, "--prompts", file, "--batch", "65") == 64);
    CHECK(LLAMERO(NULL, &err, "generate", dump, "--prompts", file, "--prompt", "a") == 64);
    CHECK(LLAMERO(NULL, &err, "generate", dump, "--prompts", file, "--echo") == 64);
    CHECK(LLAMERO(NULL, &err, "generate", dump, "--prompt", "a", "--batch", "2") == 64);
    text_release(&out), text_release(&err);
    free(dump), free(file);
}
