// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "test.h"

TEST(doctor_reports_every_check_as_json)
{
    static const char *const names[] = {
        "program",     "libraries",  "ranks",         "load",         "processor",
        "cores",       "kernels",    "clock",         "memory",       "huge pages",
        "open files",  "stack",      "address space", "file size",    "locked memory",
        "file system", "free space", "writing",       "peak compute", "bandwidth"};
    struct text out = {0};
    struct json *j;
    CHECK(LLAMERO(&out, NULL, "doctor", "--json", test_folder()) == 0);
    CHECK_STATUS(OK, json_parse(out.data, out.len, "doctor", &j));
    CHECK(json_true(json_get(j, "ok")));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct json *v = json_first(json_get(j, "findings"));
        while (v && strcmp(json_string(json_get(v, "name")), names[i]) != 0) v = json_next(v);
        CHECK(v);
        const char *level = json_string(json_get(v, "level"));
        CHECK(!strcmp(level, "ok") || !strcmp(level, "warn"));
        CHECK(json_is_null(json_get(v, "advice")) == !strcmp(level, "ok"));
        CHECK(json_string(json_get(v, "says"))[0]);
    }
    json_free(j);
    text_release(&out);
}

TEST(doctor_fails_for_an_unusable_folder)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "doctor", "/nowhere/at/all") == 66);
    CHECK(strstr(out.data, "FAIL  folder") && strstr(out.data, "->"));
    CHECK(strstr(err.data, "/nowhere/at/all"));
    text_clear(&out);
    CHECK(LLAMERO(&out, NULL, "doctor", "--json", "/proc") == 74);
    CHECK(strstr(out.data, "\"ok\": false"));
    CHECK(LLAMERO(NULL, &err, "doctor", "model.dim=3") == 64);
    text_release(&out);
    text_release(&err);
}
