// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "runs/run_metrics.h"

#include <unistd.h>

static const char *write_file(const char *content)
{
    const char *path = test_path(test_folder(), "metrics.jsonl");
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    return path;
}

/* "STEP:VALUE ..." */
static bool series_is(const struct run_metrics *m, const char *key, const char *want)
{
    const struct run_series *s = run_metrics_find(m, key);
    struct text t = {0};
    for (size_t i = 0; s && i < s->count; i++)
        text_addf(&t, "%s%g:%g", i ? " " : "", s->steps[i], s->values[i]);
    bool same = !strcmp(t.data ? t.data : "", want);
    if (!same) print_error("%s is %s\n", key, t.data ? t.data : "empty");
    text_release(&t);
    return same;
}

TEST(run_metrics_reads_series_by_key)
{
    struct run_metrics m = {0};
    const char *path = write_file("{\"step\":1,\"loss\":3,\"mfu\":null}\n"
                                  "{\"step\":5,\"loss\":2,\"mfu\":0.5}\n"
                                  "{\"step\":5,\"validation_loss\":2.5}\n"
                                  "{\"step\":5,\"task\":\"piqa\",\"acc\":0.75}\n"
                                  "{\"step\":6,\"rows_skipped\":[1,2]}\n"
                                  "{\"step\":7,\"gap\":3}\n"
                                  "{\"step\":10,\"loss\":null}\n");
    CHECK_STATUS(OK, run_metrics_update(&m, path));
    CHECK(series_is(&m, "loss", "1:3 5:2 10:nan") && series_is(&m, "mfu", "1:nan 5:0.5"));
    CHECK(series_is(&m, "validation_loss", "5:2.5") && series_is(&m, "piqa/acc", "5:0.75"));
    CHECK(m.last_step == 10 && m.num_gap_lines == 3 && m.num_bad_lines == 0);
    CHECK(isnan(run_metrics_last(&m, "loss")) && isnan(run_metrics_last(&m, "no such key")));
    run_metrics_release(&m);
}

/* Only its end is read: what a hole of 5 GiB precedes. */
TEST(run_metrics_reads_the_end_of_a_file_of_several_gib)
{
    struct run_metrics m = {0};
    const char *path = write_file("{\"step\":1,\"loss\":3}\n");
    if (TEST_SLOWED) skip();
    CHECK(!truncate(path, (off_t)5 << 30));
    FILE *f = fopen(path, "ab");
    CHECK(f && fputs("\n{\"step\":8,\"loss\":2}\n{\"step\":9,\"loss\":1}\n", f) >= 0);
    CHECK(!fclose(f));
    CHECK_STATUS(OK, run_metrics_update(&m, path));
    CHECK(series_is(&m, "loss", "8:2 9:1") && m.is_partial && m.last_step == 9);
    run_metrics_release(&m);
}

TEST(run_metrics_keeps_the_last_value_of_a_step)
{
    struct run_metrics m = {0};
    const char *path = write_file("{\"step\":1,\"loss\":3}\n{\"step\":5,\"loss\":2}\n"
                                  "{\"step\":10,\"loss\":9}\n{\"step\":15,\"loss\":99}\n"
                                  "{\"step\":5,\"rollback_from\":17,\"rows_skipped\":[1,2]}\n"
                                  "{\"step\":10,\"loss\":1}\n{\"step\":10,\"loss\":0.5}\n");
    for (int summary = 0; summary < 2; summary++) {
        m.is_summary = summary;
        CHECK_STATUS(OK, run_metrics_update(&m, path));
        CHECK(series_is(&m, "loss", "1:3 5:2 10:0.5") && m.last_step == 10);
        CHECK(m.num_rollbacks == 1 && m.rollbacks[0].from == 17 && m.rollbacks[0].to == 5);
        run_metrics_release(&m);
    }
    path =
        write_file("{\"step\":5,\"loss\":2}\n{\"step\":10,\"loss\":9}\n{\"step\":6,\"loss\":3}\n");
    CHECK_STATUS(OK, run_metrics_update(&m, path)); /* two files in one */
    CHECK(series_is(&m, "loss", "5:2 6:3") && m.last_step == 6);
    run_metrics_release(&m);
}

TEST(run_metrics_skips_what_is_not_a_record)
{
    struct run_metrics m = {0};
    struct text all = {0};
    text_adds(&all,
              "{\"step\":1,\"loss\":3}\nnot JSON\n[1]\n{\"loss\":4}\n{\"step\":-1,\"loss\":4}\n"
              "{\"step\":1e300,\"loss\":4}\n{\"step\":2,\"loss\":NaN}\n");
    text_add(&all, "{\"step\":3,\"lo\0s\":4}\n", 20);
    text_adds(&all, "{\"step\":4,\"loss\":1e999}\n{\"step\":5,\"l\\u001bx\":1,\"name\":\"x\"}\n"
                    "{\"step\":6,\"loss\":2");
    const char *path = test_path(test_folder(), "metrics.jsonl");
    CHECK_STATUS(OK, file_write(path, all.data, all.len));
    CHECK_STATUS(OK, run_metrics_update(&m, path));
    CHECK(m.num_bad_lines == 7 && m.last_step == 5);
    CHECK(run_metrics_find(&m, "l\\x1bx") && !run_metrics_find(&m, "name"));
    CHECK(isnan(run_metrics_last(&m, "loss")));
    FILE *f = fopen(path, "a");
    CHECK(f && fputs("}\n", f) >= 0 && !fclose(f));
    CHECK_STATUS(OK, run_metrics_update(&m, path));
    CHECK(run_metrics_last(&m, "loss") == 2 && m.last_step == 6);
    text_release(&all);
    run_metrics_release(&m);
}

TEST(run_metrics_limits_the_number_of_keys)
{
    struct run_metrics m = {0};
    struct text all = {0};
    for (int i = 0; i < 5000; i++) text_addf(&all, "{\"step\":%d,\"k%d\":1}\n", i, i);
    CHECK_STATUS(OK, run_metrics_update(&m, write_file(all.data)));
    CHECK(m.num_series == RUN_METRICS_KEYS && m.last_step == 4999);
    text_release(&all);
    run_metrics_release(&m);
}

TEST(run_metrics_summary_has_the_last_values_and_every_validation)
{
    struct run_metrics all = {0}, some = {.is_summary = true};
    struct text file = {0};
    for (int i = 1; i <= 100; i++) {
        text_addf(&file, "{\"step\":%d,\"loss\":%d,\"lr\":%d}\n", i, 200 - i, i);
        if (i % 10 == 0)
            text_addf(&file, "{\"step\":%d,\"validation_loss\":%d}\n", i, (i - 50) * i);
        if (i == 30) text_adds(&file, "{\"step\":30,\"task\":\"t\",\"loss\":7}\n");
    }
    const char *path = write_file(file.data);
    CHECK_STATUS(OK, run_metrics_update(&all, path));
    CHECK_STATUS(OK, run_metrics_update(&some, path));
    CHECK(run_metrics_find(&all, "loss")->count == 100 &&
          run_metrics_find(&some, "loss")->count < 20);
    CHECK(run_metrics_last(&some, "loss") == 100 && run_metrics_last(&some, "lr") == 100);
    CHECK(run_metrics_find(&some, "validation_loss")->count == 10 && some.last_step == 100);
    CHECK(series_is(&some, "t/loss", "30:7"));
    double least;
    int64_t step;
    CHECK(run_metrics_least(&some, "validation_loss", &least, &step));
    CHECK(least == -600 && (step == 20 || step == 30));
    text_release(&file);
    run_metrics_release(&all), run_metrics_release(&some);
}
