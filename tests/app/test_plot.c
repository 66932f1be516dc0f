// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"

static const char lines[] = "{\"step\":1,\"loss\":9,\"lr\":0.1,\"mfu\":0.5}\n"
                            "{\"step\":10,\"loss\":5,\"lr\":0.2,\"mfu\":0.25}\n"
                            "{\"step\":10,\"validation_loss\":6}\n"
                            "{\"step\":20,\"loss\":4,\"lr\":0.2,\"mfu\":null}\n{\"step\":30,\"lo";

static const char *made_run(const char *name)
{
    const char *folder = test_path(test_folder(), name);
    CHECK_STATUS(OK, file_make_dirs(folder));
    CHECK_STATUS(OK, file_write(test_path(folder, "metrics.jsonl"), lines, sizeof lines - 1));
    return folder;
}

TEST(plot_draws_loss_and_validation_loss_on_the_terminal)
{
    struct text out = {0}, err = {0};
    const char *run = made_run("run");
    setenv("LC_ALL", "C", 1);
    CHECK(LLAMERO(&out, &err, "plot", run) == 0);
    CHECK(strstr(out.data, "loss (nats/token)") && strstr(out.data, "loss 4"));
    CHECK(strstr(out.data, "validation 6") && !strstr(out.data, "\u25cf"));
    setenv("LC_ALL", "C.UTF-8", 1);
    CHECK(LLAMERO(&out, NULL, "plot", run) == 0);
    CHECK(strstr(out.data, "validation 6") && strstr(out.data, "\u25cf"));
    CHECK(!strchr(out.data, '\033') && err.len == 0);
    text_release(&out);
    text_release(&err);
}

TEST(plot_writes_an_svg_of_several_runs)
{
    struct text out = {0}, svg = {0};
    const char *a = made_run("one"), *b = made_run("two");
    const char *picture = test_path(test_folder(), "loss.svg");
    const char *b_file = test_path(b, "metrics.jsonl");
    CHECK(LLAMERO(&out, NULL, "plot", a, b_file, "--svg", picture, "--title", "Runs", "--width",
                  "500", "--smooth", "3", "--log") == 0);
    CHECK(out.len == 0);
    CHECK_STATUS(OK, file_read(picture, 1 << 20, &svg));
    CHECK(strstr(svg.data, "<title>Runs</title>") && strstr(svg.data, "width=\"500\""));
    CHECK(strstr(svg.data, ">one</text>") && strstr(svg.data, ">two validation</text>"));
    CHECK(LLAMERO(&out, NULL, "plot", a, "--svg=-") == 0);
    CHECK(!strncmp(out.data, "<svg ", 5));
    text_release(&out);
    text_release(&svg);
}

TEST(plot_names_runs_by_whole_path_if_folders_share_a_name)
{
    struct text out = {0};
    const char *a = made_run("run"), *b = made_run("run");
    CHECK(LLAMERO(&out, NULL, "plot", a, b, "--svg", "-") == 0);
    char label[512];
    snprintf(label, sizeof label, ">%s</text>", b);
    CHECK(strstr(out.data, label));
    text_release(&out);
}

TEST(plot_shows_other_keys_in_their_units)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "plot", made_run("run"), "--key", "mfu") == 0);
    CHECK(strstr(out.data, "model FLOPs utilization (%)") && strstr(out.data, "mfu 25\n"));
    text_release(&out);
}

TEST(plot_separates_tasks_and_drops_steps_that_a_rollback_undid)
{
    static const char more[] = "{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":7}\n"
                               "{\"step\":2,\"task\":\"piqa\",\"acc\":0.25}\n"
                               "{\"step\":2,\"task\":\"arc\",\"acc\":0.75}\n"
                               "{\"step\":3,\"loss\":999}\n"
                               "{\"step\":2,\"rollback_from\":3,\"rows_skipped\":[16,23]}\n";
    struct text out = {0}, err = {0};
    const char *run = test_folder();
    CHECK_STATUS(OK, file_write(test_path(run, "metrics.jsonl"), more, sizeof more - 1));
    CHECK(LLAMERO(&out, &err, "plot", run, "--key", "piqa/acc") == 0);
    CHECK(strstr(out.data, "piqa/acc 0.25\n"));
    CHECK(LLAMERO(NULL, &err, "plot", run, "--key", "acc") == 64);
    CHECK(strstr(err.data, "expected one of: loss piqa/acc arc/acc"));
    CHECK(LLAMERO(&out, &err, "plot", run) == 0 && strstr(out.data, "loss 7\n"));
    text_release(&out), text_release(&err);
}

TEST(plot_omits_steps_before_from)
{
    struct text out = {0};
    CHECK(LLAMERO(&out, NULL, "plot", made_run("run"), "--from", "20", "--svg", "-") == 0);
    CHECK(strstr(out.data, ">4.000</text>") && !strstr(out.data, "validation"));
    text_release(&out);
}

TEST(plot_reports_what_is_wrong)
{
    struct text err = {0};
    const char *run = made_run("run"), *empty = test_folder();
    CHECK_STATUS(OK, file_write(test_path(empty, "metrics.jsonl"), "", 0));
    CHECK(LLAMERO(NULL, &err, "plot", "/nowhere/run") == 66 && strstr(err.data, "/nowhere/run"));
    CHECK(LLAMERO(NULL, &err, "plot", run, "--key", "los") == 64);
    CHECK(strstr(err.data, "--key los: ") && strstr(err.data, "expected one of: loss lr mfu"));
    CHECK(LLAMERO(NULL, &err, "plot", empty) == 65 && strstr(err.data, "no step has been logged"));
    CHECK(LLAMERO(NULL, &err, "plot", test_folder()) == 66);
    CHECK(strstr(err.data, "not a run: expected a dump folder"));
    CHECK(LLAMERO(NULL, &err, "plot", run, "--from", "999") == 65 && strstr(err.data, "--from"));
    CHECK(LLAMERO(NULL, &err, "plot", run, "--svg", "-", "--width", "299") == 64 &&
          strstr(err.data, "--width: must be at least 300 with --svg, is 299"));
    CHECK(LLAMERO(NULL, &err, "plot", run, "--svg", "-", "--height", "199") == 64);
    CHECK(LLAMERO(NULL, &err, "plot", run, "--svg", "/nowhere/x.svg") == 74);
    CHECK(LLAMERO(NULL, &err, "plot") == 64);
    text_release(&err);
}
