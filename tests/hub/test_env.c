// SPDX-License-Identifier: Apache-2.0
#include "hub/env.h"
#include "test.h"

TEST(env_treats_an_empty_variable_as_unset)
{
    unsetenv("LLAMERO_TEST_VARIABLE");
    CHECK(!env_find("LLAMERO_TEST_VARIABLE") && !env_is_true("LLAMERO_TEST_VARIABLE"));
    setenv("LLAMERO_TEST_VARIABLE", "", 1);
    CHECK(!env_find("LLAMERO_TEST_VARIABLE"));
    setenv("LLAMERO_TEST_VARIABLE", "a", 1);
    CHECK(!strcmp(env_find("LLAMERO_TEST_VARIABLE"), "a"));
    unsetenv("LLAMERO_TEST_VARIABLE");
}

TEST(env_truth_follows_huggingface_hub)
{
    static const struct {
        const char *value;
        bool is_true;
    } cases[] = {{"1", true},  {"on", true}, {"Yes", true}, {"TRUE", true},
                 {"0", false}, {"y", false}, {"2", false},  {"true ", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("LLAMERO_TEST_VARIABLE", cases[i].value, 1);
        CHECK(env_is_true("LLAMERO_TEST_VARIABLE") == cases[i].is_true);
    }
    unsetenv("LLAMERO_TEST_VARIABLE");
}
