// SPDX-License-Identifier: Apache-2.0
#include "train/skipped_records.h"

#include "system/runs.h"

#include <sys/stat.h>
#include <unistd.h>

/* A corpus of which some lines are bad, and the configuration of a run that skips them. */
static const char *write_run(const char *folder, int every)
{
    const char *good = test_path(folder, "good.jsonl"), *corpus = test_path(folder, "a.jsonl");
    const char *config = test_path(folder, "run.toml");
    struct text lines = {0}, out = {0};
    runs_write_corpus(good, 8000);
    CHECK_STATUS(OK, file_read(good, 1 << 20, &lines));
    int n = 0;
    for (const char *at = lines.data, *end; (end = strchr(at, '\n')); at = end + 1, n++) {
        text_add(&out, at, (size_t)(end - at) + 1);
        if (n % every == 3) text_addf(&out, "{\"text\": \"broken %d\n", n);
    }
    CHECK_STATUS(OK, file_write(corpus, out.data, out.len));
    CHECK(remove(good) == 0);
    runs_write_config(config, corpus);
    text_release(&lines), text_release(&out);
    return config;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of DUMP/bad_records.jsonl; `sorted`: ranks may append in any order. */
static void read_list(const char *dump, bool sorted, struct text *out)
{
    struct text all = {0};
    char *lines[100], *save = NULL;
    size_t n = 0;
    CHECK_STATUS(OK, file_read(test_path(dump, "bad_records.jsonl"), 1 << 20, &all));
    for (char *at = strtok_r(all.data, "\n", &save); at; at = strtok_r(NULL, "\n", &save)) {
        CHECK(n < 100);
        lines[n++] = at;
    }
    if (sorted) qsort(lines, n, sizeof *lines, by_text);
    text_clear(out);
    for (size_t i = 0; i < n; i++) text_addf(out, "%s\n", lines[i]);
    text_release(&all);
}

TEST(a_run_skips_bad_records_and_lists_each_once_also_over_restarts)
{
    const char *folder = test_folder(), *config = write_run(folder, 20);
    const char *straight = test_path(folder, "straight"), *resumed = test_path(folder, "resumed");
    struct text err = {0}, want = {0}, got = {0};
    CHECK(runs_train(config, test_path(folder, "stopped"), "", &err) == 65);
    CHECK(strstr(err.data, "unterminated string"));
    CHECK(runs_train(config, straight, "data.on_bad_record=skip data.bad_record_limit=0.2", &err) ==
          0);
    CHECK(strstr(err.data, "records are bad and were skipped"));
    read_list(straight, false, &want);
    int listed = 0;
    for (const char *at = want.data; (at = strchr(at, '\n')); at++) listed++;
    CHECK(listed > 3);
    const char *last = strstr(want.data, "{\"step\": ");
    CHECK(last && strstr(want.data, "\"reason\": \"byte 10 of the line: unterminated string\"}"));

    CHECK(runs_train(config, resumed,
                     "data.on_bad_record=skip data.bad_record_limit=0.2 training.steps=27",
                     &err) == 0);
    CHECK_STATUS(OK, file_remove_tree(test_path(resumed, "checkpoint/step-27")));
    CHECK_STATUS(OK, file_remove_tree(test_path(resumed, "checkpoint/step-20")));
    CHECK(runs_train(config, resumed,
                     "data.on_bad_record=skip data.bad_record_limit=0.2 data.prefetch=0",
                     &err) == 0);
    CHECK(strstr(err.data, "checkpoint/step-10"));
    read_list(resumed, false, &got);
    CHECK(!strcmp(got.data, want.data));
    runs_check_same_metrics(straight, resumed);
    runs_check_same_files(test_path(straight, "checkpoint/step-40"),
                          test_path(resumed, "checkpoint/step-40"), "state.json");
    text_release(&err), text_release(&want), text_release(&got);
}

TEST(any_number_of_ranks_skips_and_lists_the_same_records)
{
    const char *folder = test_folder(), *config = write_run(folder, 20);
    const char *one = test_path(folder, "one"), *two = test_path(folder, "two");
    struct text err = {0}, want = {0}, got = {0};
    const char *settings = "data.on_bad_record=skip data.bad_record_limit=0.2 "
                           "training.local_batch_size=1";
    CHECK(runs_train(config, one, settings, &err) == 0);
    int code = runs_train_ranks(2, config, two, settings, &err);
    if (code < 0) skip();
    if (code) fail_msg("%s", err.data);
    read_list(one, true, &want);
    read_list(two, true, &got);
    CHECK(!strcmp(got.data, want.data));
    runs_check_same_files(test_path(one, "checkpoint/step-40"),
                          test_path(two, "checkpoint/step-40"), "state.json");
    text_release(&err), text_release(&want), text_release(&got);
}

TEST(too_many_bad_records_end_the_run_and_name_the_last)
{
    const char *folder = test_folder(), *config = write_run(folder, 4);
    const char *dump = test_path(folder, "out");
    struct text err = {0}, list = {0};
    CHECK(runs_train(config, dump, "data.on_bad_record=skip", &err) == 65);
    CHECK(strstr(err.data, "too many bad records") &&
          strstr(err.data, "more than bad_record_limit"));
    read_list(dump, false, &list);
    list.data[list.len - 1] = 0;
    CHECK(strstr(err.data, strrchr(list.data, '\n') + 1));
    text_release(&err), text_release(&list);
}

TEST(a_list_that_cannot_be_written_does_not_end_the_run)
{
    const char *folder = test_folder(), *config = write_run(folder, 20);
    const char *dump = test_path(folder, "out");
    struct config c;
    struct skipped_records s;
    struct text err = {0}, line = {0};
    CHECK(runs_train(config, dump,
                     "data.on_bad_record=skip data.bad_record_limit=1 training.steps=1",
                     &err) == 0);
    CHECK_STATUS(OK, file_remove_tree(test_path(dump, "bad_records.jsonl")));
    CHECK(symlink("/nowhere/bad_records.jsonl", test_path(dump, "bad_records.jsonl")) == 0);
    CHECK(runs_train(config, dump, "data.on_bad_record=skip data.bad_record_limit=1", &err) == 0);
    CHECK(strstr(err.data, "bad_records.jsonl: write: No such file or directory; each record"));
    CHECK(strstr(err.data, " records are lost"));
    CHECK(runs_metric(dump, "step") == 40);

    /* Lines that could not be written follow as soon as the file can be. */
    const char *const settings[] = {"data.on_bad_record=skip"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 1));
    c.job.dump_folder = test_path(folder, "later");
    CHECK_STATUS(OK, skipped_records_open(&s, &c, 0, true));
    CHECK(!append_file_write(&s.file, "{\"step\": 1}\n", 12));
    skipped_records_list(&s, NULL, 1);
    CHECK(append_file_is_late(&s.file));
    CHECK(mkdir(c.job.dump_folder, 0777) == 0);
    skipped_records_list(&s, NULL, 2);
    CHECK(!append_file_is_late(&s.file) && s.file.fd < 0);
    CHECK_STATUS(OK, file_read(test_path(folder, "later/bad_records.jsonl"), 100, &line));
    CHECK(!strcmp(line.data, "{\"step\": 1}\n"));
    skipped_records_close(&s);
    config_release(&c);
    text_release(&err), text_release(&line);
}

TEST(validation_skips_bad_records_and_lists_them_once)
{
    const char *folder = test_folder(), *config = write_run(folder, 20);
    const char *dump = test_path(folder, "out"), *bad = test_path(folder, "v.jsonl");
    const char *lines = "{\"text\": \"good\"}\n[]\n{\"text\": \"more\"}\n";
    struct text err = {0}, list = {0}, settings = {0};
    CHECK_STATUS(OK, file_write(bad, lines, strlen(lines)));
    text_addf(&settings,
              "data.on_bad_record=skip data.bad_record_limit=0.2 validation.enable=true "
              "validation.freq=10 validation.dataset_path=%s",
              bad);
    CHECK(runs_train(config, dump, settings.data, &err) == 0);
    CHECK(strstr(err.data, "validation: 1 of 3 records are bad"));
    read_list(dump, false, &list);
    const char *first = strstr(list.data, "v.jsonl");
    CHECK(first && strstr(list.data, "{\"step\": 10, \"source\"") < first);
    const char *second = strstr(strchr(first, '\n'), "v.jsonl");
    CHECK(!second);
    text_release(&err), text_release(&list), text_release(&settings);
}
