// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "runs/run_settings.h"

static const char *write_file(const char *content)
{
    const char *path = test_path(test_folder(), "config.toml");
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    return path;
}

#define CHECK_VALUE(key, want) CHECK(!strcmp(run_settings_find(&s, key), want))

TEST(run_settings_lists_values_by_key)
{
    struct run_settings s;
    CHECK_STATUS(OK,
                 run_settings_read(&s, write_file("[optimizer]\nlr = 0.002\nname = \"AdamW\"\n"
                                                  "[a]\nb = [1, 2]\nc = true\nd = []\n"
                                                  "e = {x = \"y\"}\nf = 2024-01-01\n"
                                                  "[[data.source]]\npath = \"x.txt\"\n"
                                                  "[[data.source]]\npath = \"y\\u001b.txt\"\n")));
    CHECK(s.count == 9);
    CHECK_VALUE("optimizer.lr", "0.002");
    CHECK_VALUE("optimizer.name", "AdamW");
    CHECK_VALUE("a.b", "[1, 2]");
    CHECK_VALUE("a.c", "true");
    CHECK_VALUE("a.d", "[]");
    CHECK_VALUE("a.e.x", "y");
    CHECK_VALUE("a.f", "2024-01-01");
    CHECK_VALUE("data.source.0.path", "x.txt");
    CHECK_VALUE("data.source.1.path", "y\\x1b.txt");
    CHECK(!run_settings_find(&s, "a") && !run_settings_find(&s, "z"));
    CHECK(run_settings_number(&s, "optimizer.lr", 1) == 0.002);
    CHECK(run_settings_number(&s, "optimizer.name", 1) == 1);
    run_settings_release(&s);
}

TEST(run_settings_refuses_what_is_not_toml)
{
    struct run_settings s;
    struct text many = {0};
    CHECK_STATUS(MISSING, run_settings_read(&s, test_path(test_folder(), "none")));
    CHECK_STATUS(DATA, run_settings_read(&s, write_file("[a\n")));
    CHECK_MESSAGE("config.toml:1:");
    for (int i = 0; i <= RUN_SETTINGS_MOST; i++) text_addf(&many, "k%d = 1\n", i);
    CHECK_STATUS(DATA, run_settings_read(&s, write_file(many.data)));
    CHECK_MESSAGE("config.toml: more than 4096 keys");
    CHECK(!s.count);
    text_release(&many);
}
