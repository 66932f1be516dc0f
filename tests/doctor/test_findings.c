// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include "base/json.h"
#include "test.h"

static enum status fail_io(void) { FAIL(IO, "the disk said \"no\""); }

TEST(findings_are_lines_with_advice)
{
    struct findings f = {0};
    struct text out = {0};
    findings_add(&f, "cores", "%d of %d", 2, 2);
    findings_add(&f, "load", "9.5");
    findings_warn(&f, "wait %s", "a while");
    findings_print(&f, &out);
    CHECK(!strcmp(out.data, "ok    cores           2 of 2\n"
                            "warn  load            9.5\n"
                            "                   -> wait a while\n"));
    CHECK(!f.first.status);
    text_release(&out);
    findings_release(&f);
}

TEST(findings_keep_the_first_failure)
{
    struct findings f = {0};
    struct text out = {0};
    struct json *j;
    findings_add(&f, "a", "well");
    findings_fail(&f, "b", fail_io(), "repair it");
    (void)status_fail(STATUS_DATA, __FILE__, __LINE__, "another");
    findings_fail(&f, "c", STATUS_DATA, "and that");
    CHECK(f.first.status == STATUS_IO && status_restore(&f.first) == STATUS_IO);
    CHECK_MESSAGE("the disk said");
    findings_write_json(&f, &out);
    CHECK(
        !strcmp(out.data,
                "{\"ok\": false, \"findings\": [\n"
                "  {\"name\": \"a\", \"level\": \"ok\", \"says\": \"well\", \"advice\": null},\n"
                "  {\"name\": \"b\", \"level\": \"FAIL\", \"says\": \"the disk said \\\"no\\\"\", "
                "\"advice\": \"repair it\"},\n"
                "  {\"name\": \"c\", \"level\": \"FAIL\", \"says\": \"another\", "
                "\"advice\": \"and that\"}]}\n"));
    CHECK_STATUS(OK, json_parse(out.data, out.len, "findings", &j));
    CHECK(!json_true(json_get(j, "ok")));
    const struct json *a = json_first(json_get(j, "findings")), *b = json_next(a);
    CHECK(json_is_null(json_get(a, "advice")));
    CHECK(!strcmp(json_string(json_get(b, "level")), "FAIL"));
    CHECK(!strcmp(json_string(json_get(b, "says")), "the disk said \"no\""));
    CHECK(!strcmp(json_string(json_get(b, "advice")), "repair it"));
    json_free(j);
    text_release(&out);
    findings_release(&f);
}
