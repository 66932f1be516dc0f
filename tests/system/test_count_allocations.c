// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"

/* The Makefile builds the counter.  It does not work with sanitizers, which replace malloc too. */
static long long count_for(const char *const *command)
{
    char preload[512], into[512];
    const char *path = test_path(test_folder(), "count");
    const char *argv[16] = {"env", preload, into};
    char *whole = realpath(getenv("LLAMERO_COUNTER"), NULL);
    CHECK(whole);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", whole);
    snprintf(into, sizeof into, "COUNT_ALLOCATIONS=%s", path);
    for (int i = 0; command[i]; i++) argv[3 + i] = command[i];
    CHECK(test_run(argv, NULL, NULL) == 0);
    struct text t = {0};
    char *end;
    CHECK_STATUS(OK, file_read(path, 64, &t));
    long long count = strtoll(t.data, &end, 10);
    CHECK(end != t.data && *end == '\n');
    text_release(&t);
    free(whole);
    return count;
}

TEST(count_allocations_grows_with_work)
{
    const char *library = getenv("LLAMERO_COUNTER");
    if (!library || !*library) skip();
    struct text lines = {0};
    long long counts[2];
    const char *llamero = getenv("LLAMERO");
    const char *path = test_path(test_folder(), "metrics.jsonl");
    const char *const plot[] = {llamero ? llamero : "build/llamero", "plot", path, NULL};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 100; i++) text_addf(&lines, "{\"step\":%d,\"loss\":1}\n", i);
        CHECK_STATUS(OK, file_write(path, lines.data, lines.len));
        counts[round] = count_for(plot);
        CHECK(count_for(plot) == counts[round]);
    }
    CHECK(counts[0] > 100 && counts[1] > counts[0] + 100);
    text_release(&lines);
}
