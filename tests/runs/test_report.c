// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"
#include "runs/report.h"
#include "runs/runs_fixture.h"

/* The page's data, parsed. */
static struct json *data_of(const struct text *page)
{
    static const char begin[] = "<script type=\"application/json\" id=\"data\">\n";
    struct json *v;
    char *at = strstr(page->data, begin);
    CHECK(at != NULL);
    at += sizeof begin - 1;
    char *end = strstr(at, "</script>");
    CHECK(end != NULL);
    CHECK_STATUS(OK, json_parse(at, (size_t)(end - at), "data", &v));
    return v;
}

TEST(a_report_has_the_runs_curves_settings_and_samples)
{
    const char *folder = test_folder();
    struct run_folder folders[2];
    struct text page = {0};
    fixture_run(folder, "a", 20, 3.5, 0.25);
    fixture_run(folder, "b", 10, 2.5, 0.5);
    CHECK_STATUS(OK, run_folder_open(&folders[0], test_path(folder, "a"), false));
    CHECK_STATUS(OK, run_folder_open(&folders[1], test_path(folder, "b"), false));
    const struct report_sample sample = {"Once", " upon </script><b>"};
    const struct report_run runs[] = {{&folders[0], NULL, 0}, {&folders[1], &sample, 1}};
    report_page(runs, 2, 1.8e9, &page);
    struct json *v = data_of(&page);
    const struct json *a = json_item(json_get(v, "runs"), 0),
                      *b = json_item(json_get(v, "runs"), 1);
    CHECK(json_string_is(json_get(a, "name"), "a"));
    CHECK(json_number(json_get(json_get(b, "summary"), "best_validation")) == 2.5);
    CHECK(json_string_is(json_get(json_get(b, "settings"), "optimizer.lr"), "0.5"));
    const struct json *loss = json_first(json_get(a, "series"));
    CHECK(json_string_is(json_get(loss, "key"), "loss") &&
          json_count(json_get(loss, "steps")) == 4);
    CHECK(json_number(json_item(json_get(loss, "values"), 3)) == 80);
    CHECK(json_string_is(json_get(loss, "label"), "loss (nats/token)"));
    const struct json *text = json_get(json_item(json_get(b, "samples"), 0), "text");
    CHECK(json_string_is(text, " upon </script><b>"));
    CHECK(!json_count(json_get(a, "samples")) && json_count(json_get(a, "log")) == 1);
    json_free(v);
    run_folder_close(&folders[0]), run_folder_close(&folders[1]);
    text_release(&page);
}

TEST(a_report_has_metrics_in_the_units_of_their_labels)
{
    const char *folder = test_folder();
    struct run_folder r;
    struct text page = {0};
    fixture_run(folder, "a", 20, 3.5, 0.25);
    fixture_write(folder, "a/metrics.jsonl",
                  "{\"step\":1,\"mfu\":0.25,\"memory_bytes\":3221225472}\n");
    CHECK_STATUS(OK, run_folder_open(&r, test_path(folder, "a"), false));
    report_page(&(struct report_run){&r, NULL, 0}, 1, 0, &page);
    struct json *v = data_of(&page);
    const struct json *mfu = json_first(json_get(json_first(json_get(v, "runs")), "series")),
                      *memory = json_next(mfu);
    CHECK(json_string_is(json_get(mfu, "label"), "model FLOPs utilization (%)"));
    CHECK(json_number(json_first(json_get(mfu, "values"))) == 25);
    CHECK(json_string_is(json_get(memory, "label"), "peak memory per rank (GiB)"));
    CHECK(json_number(json_first(json_get(memory, "values"))) == 3);
    json_free(v);
    run_folder_close(&r);
    text_release(&page);
}

TEST(a_report_loads_nothing_from_elsewhere)
{
    const char *folder = test_folder();
    struct run_folder r;
    struct text page = {0};
    fixture_run(folder, "a", 20, 3.5, 0.25);
    CHECK_STATUS(OK, run_folder_open(&r, test_path(folder, "a"), false));
    report_page(&(struct report_run){&r, NULL, 0}, 1, 0, &page);
    CHECK(strstr(page.data, "Content-Security-Policy\" content=\"default-src 'none'"));
    CHECK(!strstr(page.data, "src=") && !strstr(page.data, "@import"));
    for (const char *at = page.data; (at = strstr(at, "://")); at++)
        CHECK(!strncmp(at - 4, "http://www.w3.org/2000/svg", 26)); /* SVG's namespace, no link */
    run_folder_close(&r);
    text_release(&page);
}

TEST(thinned_curves_keep_their_ends_and_extremes)
{
    enum { COUNT = 100000, MOST = 100 };
    double *x = heap(COUNT * sizeof *x), *y = heap(COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) x[i] = i, y[i] = sin(i * 1e-4);
    y[54321] = 7, y[77777] = -7, y[12] = NAN;
    size_t kept = report_thin(x, y, COUNT, MOST);
    bool has_most = false, has_least = false, has_nan = false;
    CHECK(kept <= MOST && x[0] == 0 && x[kept - 1] == COUNT - 1);
    for (size_t i = 0; i < kept; i++) {
        CHECK(!i || x[i] > x[i - 1]);
        has_most |= x[i] == 54321, has_least |= x[i] == 77777, has_nan |= isnan(y[i]);
    }
    CHECK(has_most && has_least && has_nan);
    CHECK(report_thin(x, y, 4, 4) == 4);
    double nan_first[] = {5, NAN, 4, 2, 3, 5};
    CHECK(report_thin(x, nan_first, 6, 4) == 4); /* the only group begins with NaN */
    CHECK(isnan(nan_first[1]) && nan_first[2] == 2);
    free(x), free(y);
}
