// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "checkpoint/folder.h"
#include "runs/runs_fixture.h"
#include "runs/top_frame.h"

static const double now_s = 1800000000;

/* A run of 400 steps at its 300th, with a rollback, a straggler and odd lines. */
static void open_run(struct run_folder *r, const char *folder)
{
    struct text lines = {0}, log = {0};
    fixture_write(folder, "config.toml", "[training]\nsteps = 400\n");
    for (int i = 10; i <= 300; i += 10) {
        text_addf(&lines,
                  "{\"step\":%d,\"loss\":%.4f,\"grad_norm\":%.3f,\"lr\":%g,\"tokens_seen\":%d,"
                  "\"tokens_per_second\":%d,\"tokens_per_second_per_rank\":%d,\"mfu\":0.41,"
                  "\"step_seconds\":0.5,\"data_seconds\":0.05,\"memory_bytes\":8589934592}\n",
                  i, 8 / sqrt(i), 1 + (i % 70) * 0.01, 1e-3, 4096 * i, 8000 + i, 2000 + i / 4);
        if (i % 50 == 0)
            text_addf(&lines, "{\"step\":%d,\"validation_loss\":%.4f}\n", i, 8.5 / sqrt(i));
        if (i == 150) text_adds(&lines, "{\"step\":120,\"rollback_from\":155}\nnot JSON\n");
        text_addf(&log, "2026-11-24 02:43:%02d step: %3d  loss: %8.5f\n", i / 10, i, 8 / sqrt(i));
    }
    text_adds(&log, "2026-11-24 02:44:00 warning: rank 2 on node\0337 is slow\n");
    fixture_write(folder, "metrics.jsonl", lines.data);
    fixture_write(folder, "log.txt", log.data);
    fixture_write(folder, "checkpoint/step-200/manifest.json", "{}");
    fixture_write(folder, "checkpoint/step-300/state.json", "{}");
    CHECK_STATUS(OK, run_folder_open(r, folder, false));
    free(r->title);
    r->title = heap_string("outputs/wide", 12);
    r->written_s = now_s - 4;
    r->checkpoints[0].written_s = now_s - 300;
    r->state = RUN_running;
    text_release(&lines), text_release(&log);
}

/* Compares a frame with a file; TOP_FRAMES=write replaces the file. */
static void check_frame(const struct top_view *v, int rows, int columns, const char *file)
{
    struct screen s;
    struct text got = {0}, want = {0};
    const char *mode = getenv("TOP_FRAMES");
    screen_init(&s, rows, columns);
    top_frame(v, &s);
    screen_text(&s, false, &got);
    if (mode && !strcmp(mode, "write")) CHECK_STATUS(OK, file_write(file, got.data, got.len));
    CHECK_STATUS(OK, file_read(file, 1 << 20, &want));
    bool same = got.len == want.len && !memcmp(got.data, want.data, got.len);
    if (!same) print_error("%s differs:\n%s", file, got.data);
    CHECK(same);
    text_release(&got), text_release(&want);
    screen_release(&s);
}

TEST(top_frame_fits_screens_of_many_sizes)
{
    struct run_folder r;
    open_run(&r, test_folder());
    struct top_view v = {.run = &r, .now_s = now_s, .has_keys = true};
    check_frame(&v, 24, 80, "tests/runs/data/top-80x24.txt");
    check_frame(&v, 50, 200, "tests/runs/data/top-200x50.txt");
    check_frame(&v, 8, 30, "tests/runs/data/top-30x8.txt");
    v.ascii = true, v.has_keys = false, v.curve = 2;
    check_frame(&v, 24, 80, "tests/runs/data/top-ascii.txt");
    for (int rows = 1; rows < 60; rows += 3)
        for (int columns = 1; columns < 150; columns += 7) {
            struct screen s;
            screen_init(&s, rows, columns);
            top_frame(&v, &s);
            screen_release(&s);
        }
    run_folder_close(&r);
}

TEST(top_frame_in_ascii_has_only_ascii)
{
    struct run_folder r;
    struct screen s;
    struct text t = {0};
    open_run(&r, test_folder());
    struct top_view v = {.run = &r, .now_s = now_s, .ascii = true};
    screen_init(&s, 50, 200);
    top_frame(&v, &s);
    screen_text(&s, false, &t);
    for (size_t i = 0; i < t.len; i++) CHECK((unsigned char)t.data[i] < 0x80);
    CHECK(!strchr(t.data, '\033') && strstr(t.data, "node\\x1b7 is slow"));
    CHECK(strstr(t.data, "log.txt (after 13 earlier lines)"));
    text_release(&t);
    screen_release(&s);
    run_folder_close(&r);
}

TEST(top_frame_lists_the_curves_that_have_points)
{
    struct run_folder r;
    const char *folder = test_folder();
    open_run(&r, folder);
    CHECK(top_frame_num_curves(&r) == 9);
    CHECK(!strcmp(top_frame_curve(&r, 0), "loss") && !strcmp(top_frame_curve(&r, 2), "lr"));
    CHECK(!top_frame_curve(&r, 9));
    run_folder_close(&r);
    fixture_write(folder, "metrics.jsonl", "{\"step\":1,\"loss\":null,\"x\":1e308,\"y\":-1e308}\n");
    CHECK_STATUS(OK, run_folder_open(&r, folder, false));
    CHECK(top_frame_num_curves(&r) == 2 && !strcmp(top_frame_curve(&r, 0), "x"));
    struct screen s;
    screen_init(&s, 24, 80);
    top_frame(&(struct top_view){.run = &r, .now_s = now_s}, &s);
    screen_release(&s);
    run_folder_close(&r);
}

TEST(top_frame_shows_a_run_that_has_logged_nothing)
{
    struct run_folder r;
    struct screen s;
    struct text t = {0};
    const char *folder = test_folder();
    fixture_write(folder, "config.toml", "");
    fixture_write(folder, "log.txt", "2026-11-24 02:44:00 error: no data\n");
    CHECK_STATUS(OK, run_folder_open(&r, folder, false));
    screen_init(&s, 24, 80);
    top_frame(&(struct top_view){.run = &r, .now_s = now_s, .has_keys = true}, &s);
    screen_text(&s, false, &t);
    CHECK(strstr(t.data, "failed") && strstr(t.data, "no step has been logged"));
    CHECK(strstr(t.data, "\nerror: no data\n") && strstr(t.data, "\nstep 0\n"));
    text_release(&t);
    screen_release(&s);
    run_folder_close(&r);
}
