// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "tensor/trace.h"
#include "test.h"

TEST(trace_nests_spans_within_the_enclosing_one)
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
    const struct json *outermost = json_first(events);
    double end = json_number(json_get(outermost, "dur"));
    CHECK(!strcmp(json_string(json_get(outermost, "name")), "outer"));
    for (const struct json *e = outermost; e; e = json_next(e)) {
        double ts = json_number(json_get(e, "ts")), dur = json_number(json_get(e, "dur"));
        CHECK(ts >= 0 && dur >= 0 && ts + dur <= end + 0.01); /* microseconds with three digits */
        CHECK(json_number(json_get(e, "tid")) == 0);
    }
    json_free(root);
    trace_release(&t);
}

/* The line of a span, and the name of that line. */
static int line_of(const struct json *events, const char *name, const char **track)
{
    int line = -1;
    for (const struct json *e = json_first(events); e; e = json_next(e))
        if (!strcmp(json_string(json_get(e, "name")), name))
            line = (int)json_number(json_get(e, "tid"));
    for (const struct json *e = json_first(events); e; e = json_next(e))
        if (!strcmp(json_string(json_get(e, "name")), "thread_name") &&
            (int)json_number(json_get(e, "tid")) == line)
            *track = json_string(json_get(json_get(e, "args"), "name"));
    return line;
}

TEST(concurrent_spans_of_a_track_are_on_separate_lines)
{
    static const struct {
        const char *track, *name;
        double begin, end;
    } spans[] = {
        /* in the order the compute thread waits for them */
        {"shard", "second", 2, 5}, {"shard", "first", 1, 3},  {"tp", "other", 1.5, 4},
        {"shard", "third", 3, 4},  {"shard", "fourth", 6, 7},
    };
    struct trace t = {0};
    const char *path = test_path(test_folder(), "trace.json"), *track = NULL;
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        trace_add_on_track(&t, spans[i].track, spans[i].name, spans[i].begin, spans[i].end);
    CHECK_STATUS(OK, trace_write(&t, path));
    struct json *root;
    CHECK_STATUS(OK, json_read(path, 1 << 20, &root));
    const struct json *events = json_get(root, "traceEvents");
    int first = line_of(events, "first", &track);
    CHECK(first > 0 && !strcmp(track, "shard"));
    int second = line_of(events, "second", &track);
    CHECK(second > 0 && second != first && !strcmp(track, "shard"));
    CHECK(line_of(events, "third", &track) == first);
    CHECK(line_of(events, "fourth", &track) == first);
    int other = line_of(events, "other", &track);
    CHECK(other > 0 && other != first && other != second && !strcmp(track, "tp"));
    CHECK(json_count(events) == 5 + 3);
    json_free(root);
    trace_release(&t);
}
