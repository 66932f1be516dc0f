// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "metrics/run_description.h"

TEST(run_description_takes_the_name_of_the_dump_folder)
{
    struct text t = {0};
    char *path = realpath(".", NULL);
    run_description_name(&t, ".");
    CHECK(path && !strcmp(t.data, strrchr(path, '/') + 1));
    text_clear(&t);
    run_description_name(&t, "/");
    CHECK(!strcmp(t.data, "run"));
    free(path);
    text_release(&t);
}

TEST(run_description_ids_differ)
{
    struct text a = {0}, b = {0};
    run_description_random(&a, "0123456789abcdef", 32);
    run_description_random(&b, "0123456789abcdef", 32);
    CHECK(a.len == 32 && strspn(a.data, "0123456789abcdef") == 32 && strcmp(a.data, b.data) != 0);
    text_release(&a);
    text_release(&b);
}

TEST(run_description_writes_the_configuration_as_json)
{
    struct text t = {0};
    struct toml *config = run_description_config("[a]\nb = 0.9\nc = \"<\\n\"\nd = [1, true]\n"
                                                 "e = 1e300\n[[a.f]]\ng = -2\nh = inf\n");
    CHECK(config);
    run_description_json(&t, config);
    CHECK(!strcmp(t.data, "{\"a\":{\"b\":0.9,\"c\":\"<\\n\",\"d\":[1,true],\"e\":1e+300,"
                          "\"f\":[{\"g\":-2,\"h\":null}]}}"));
    toml_free(config);
    text_release(&t);
    CHECK(!run_description_config(NULL) && !run_description_config("[a"));
}

TEST(run_description_ignores_empty_environment_variables)
{
    CHECK(!setenv("LLAMERO_TEST_NAME", "", 1));
    CHECK(!strcmp(run_description_env("LLAMERO_TEST_NAME", "x"), "x"));
    CHECK(!setenv("LLAMERO_TEST_NAME", "y", 1));
    CHECK(!strcmp(run_description_env("LLAMERO_TEST_NAME", "x"), "y"));
    unsetenv("LLAMERO_TEST_NAME");
}
