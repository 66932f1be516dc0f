// SPDX-License-Identifier: Apache-2.0
#include "config/import/imported.h"

#include "base/json.h"

TEST(the_written_file_loads_whatever_its_values_contain)
{
    struct import im = {0};
    struct text json = {0};
    struct json *root;
    const char *value = "a\nb = 3\n[x] \"quoted\" # \x7f";
    CHECK_STATUS(OK, import_init(&im, "dir/f\ng.yaml", "a program"));
    import_add_item(&im, "some\nkey", 3, &value, 1);
    const struct import_item *item = import_get(&im, "some\nkey");
    CHECK_STATUS(OK, import_copy(&im, item, "job.description", "one\ntwo"));
    import_add_note(&im, IMPORT_ORIGINAL_BUG, item,
                    "a long note that repeats and repeats and repeats and repeats and repeats "
                    "until the line has to be wrapped somewhere");
    import_add_note(&im, IMPORT_UNSUPPORTED, NULL, "x");
    import_add_note(&im, IMPORT_IGNORED, item, "nothing");
    import_add_source(&im, "p\"q", "ids", 0.25);
    const char *const expected[] = {
        "job.description=\"a\\u000Ab = 3\\u000A[x] \\\"quoted\\\" # \\u007F\"", NULL};
    imported_check(&im, expected);
    import_write_json(&im, &json);
    CHECK_STATUS(OK, json_parse(json.data, json.len, "json", &root));
    const struct json *keys = json_get(root, "keys");
    CHECK(json_count(keys) == 4 && json_get(root, "toml"));
    CHECK(!strcmp(json_string(json_get(json_first(keys), "verdict")), "ours"));
    CHECK(!strcmp(json_string(json_get(json_first(keys), "ours")), "job.description"));
    json_free(root);
    text_release(&json);
    import_release(&im);
}

TEST(bugs_and_unsupported_keys_come_first_and_comments_are_wrapped)
{
    struct import im = {0};
    struct text toml = {0};
    CHECK_STATUS(OK, import_init(&im, "f.yaml", "a program"));
    CHECK_STATUS(OK, import_set(&im, NULL, "training.steps", "3", "Why."));
    import_add_note(&im, IMPORT_IGNORED, NULL, "idle");
    import_add_note(&im, IMPORT_UNSUPPORTED, NULL, "not here");
    import_add_note(&im, IMPORT_ORIGINAL_BUG, NULL,
                    "The documentation says one thing and the code does another, which is "
                    "too long for one line.");
    im.num_ranks = 12;
    import_write(&im, &toml);
    const char *bug = strstr(toml.data, "says one thing"), *lost = strstr(toml.data, "not here");
    const char *steps = strstr(toml.data, "# Why.\nsteps = 3\n"), *idle = strstr(toml.data, "idle");
    CHECK(bug && lost && steps && idle && bug < lost && lost < steps && steps < idle);
    CHECK(strstr(toml.data, "# For 12 ranks.\n"));
    for (const char *at = toml.data; *at;) {
        size_t len = strcspn(at, "\n");
        CHECK(len <= 100);
        at += len + (at[len] == '\n');
    }
    text_release(&toml);
    import_release(&im);
}

TEST(weights_of_sources_have_the_fewest_digits)
{
    struct import im = {0};
    struct text toml = {0};
    CHECK_STATUS(OK, import_init(&im, "f.yaml", "a program"));
    import_add_source(&im, "a", "text", 0.3);
    import_add_source(&im, "b", "text", 1);
    import_write(&im, &toml);
    CHECK(strstr(toml.data, "weight = 0.3\n") && strstr(toml.data, "weight = 1"));
    text_release(&toml);
    import_release(&im);
}
