// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "runs/runs_fixture.h"

TEST(runs_lists_sorted_and_filtered_runs)
{
    const char *folder = test_folder();
    struct text out = {0}, err = {0};
    struct json *json = NULL;
    fixture_run(folder, "a", 20, 3.5, 0.25);
    fixture_run(folder, "b", 10, 2.5, 0.5);
    CHECK(LLAMERO(&out, &err, "runs", folder, folder, "--json", "--sort", "loss", "--reverse") ==
          0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "json", &json));
    CHECK(json_count(json) == 2 && !err.len);
    CHECK(json_number(json_get(json_item(json, 0), "best_validation")) == 2.5);
    CHECK(json_number(json_get(json_item(json, 0), "optimizer.lr")) == 0.5);
    CHECK(json_string_is(json_get(json_item(json, 1), "state"), "finished"));
    json_free(json);
    CHECK(LLAMERO(&out, &err, "runs", folder, "--csv", "--columns", "step", "--filter",
                  "loss < 85 and state = finished") == 0);
    CHECK(!strcmp(out.data, "step\r\n20\r\n"));
    CHECK(LLAMERO(&out, &err, "runs", folder, "--filter", "loss < 1") == 0);
    CHECK(strstr(err.data, "none of 2 runs fits --filter"));
    text_release(&out), text_release(&err);
}

TEST(runs_rejects_wrong_arguments)
{
    const char *folder = test_folder();
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "runs", folder) == 66);
    CHECK(strstr(err.data, "contains no run"));
    fixture_run(folder, "a", 20, 3.5, 0.25);
    CHECK(LLAMERO(&out, &err, "runs", folder, "--json", "--csv") == 64);
    CHECK(LLAMERO(&out, &err, "runs", folder, "--reverse") == 64);
    CHECK(strstr(err.data, "--reverse requires --sort"));
    CHECK(LLAMERO(&out, &err, "runs", folder, "--width", "3") == 64);
    CHECK(LLAMERO(&out, &err, "runs", folder, "--csv", "--width", "80") == 64);
    CHECK(LLAMERO(&out, &err, "runs", folder, "--sort", "lr") == 64);
    CHECK(strstr(err.data, "--sort: unknown column lr; did you mean optimizer.lr?"));
    CHECK(LLAMERO(&out, &err, "runs", folder, "optimizer.lr=0.25") == 64);
    CHECK(strstr(err.data, "--filter 'optimizer.lr=0.25'"));
    CHECK(LLAMERO(&out, &err, "runs", folder, "--filter", "loss <") == 64);
    CHECK(strstr(err.data, "character 7: expected a value, but the filter ends"));
    text_release(&out), text_release(&err);
}
