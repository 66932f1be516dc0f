// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "tensor/trace.h"
#include "test.h"

TEST(a_trace_is_json_with_every_span_inside_the_one_around_it)
{
    struct trace t = {0};
    const char *path = test_path(test_folder(), "trace.json");
    double outer = trace_begin(&t);
    for (int i = 0; i < 300; i++) trace_end(&t, "inner \"op\"", trace_begin(&t));
    trace_end(&t, "outer", outer);
    trace_end(NULL, "nothing", trace_begin(NULL));
    CHECK(t.count == 301);
    CHECK_STATUS(OK, trace_write(&t, path));
    struct json *root;
    CHECK_STATUS(OK, json_read(path, 1 << 20, &root));
    const struct json *events = json_get(root, "traceEvents");
    CHECK(json_count(events) == 301);
    double end = 0;
    for (const struct json *e = json_first(events); e; e = json_next(e)) {
        double ts = json_number(json_get(e, "ts")), dur = json_number(json_get(e, "dur"));
        CHECK(ts >= 0 && dur >= 0);
        if (ts + dur > end) end = ts + dur;
        if (json_next(e)) continue;
        CHECK(!strcmp(json_string(json_get(e, "name")), "outer"));
        CHECK(ts == 0 && ts + dur == end);
    }
    json_free(root);
    trace_release(&t);
}
