// SPDX-License-Identifier: Apache-2.0
#include "train/repeats.h"

#include "system/runs.h"

/* The lines about epochs that runs log, in their order, without times. */
static void add_lines(const struct text *err, struct text *out)
{
    for (const char *at = err->data; (at = strstr(at, "corpus.jsonl: epoch ")); at++)
        text_addf(out, "%.*s\n", (int)strcspn(at, "\n"), at);
}

static void train(const char *folder, int ranks, const char *dump, const char *settings,
                  struct text *lines)
{
    struct text err = {0};
    const char *config = test_path(folder, "run.toml");
    CHECK(runs_train_ranks(ranks, config, test_path(folder, dump), settings, &err) == 0);
    add_lines(&err, lines);
    text_release(&err);
}

TEST(a_run_says_once_that_a_source_repeats_and_when_its_epochs_have_doubled)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    struct text straight = {0}, resumed = {0}, ranks = {0}, none = {0};
    runs_write_corpus(corpus, 1000);
    runs_write_config(test_path(folder, "run.toml"), corpus);
    train(folder, 1, "straight", "training.steps=40 metrics.log_freq=1", &straight);
    CHECK(strstr(straight.data, "epoch 2 began by step "));
    CHECK(strstr(straight.data, "epoch 4 began by step "));
    CHECK(!strstr(straight.data, "epoch 3 ") && !strstr(straight.data, "epoch 5 "));
    const char *first = strstr(straight.data, "epoch 2 ");
    CHECK(!strstr(first + 1, "epoch 2 "));
    train(folder, 1, "resumed", "training.steps=20 metrics.log_freq=1", &resumed);
    train(folder, 1, "resumed", "training.steps=40 metrics.log_freq=1", &resumed);
    CHECK(!strcmp(resumed.data, straight.data));
    train(folder, 2, "ranks", "training.steps=20 metrics.log_freq=1", &ranks);
    CHECK(strstr(ranks.data, "epoch 2 began by step "));
    CHECK(!strstr(strstr(ranks.data, "epoch 2 ") + 1, "epoch 2 "));
    train(folder, 1, "short", "training.steps=3", &none);
    CHECK(!none.len);
    text_release(&straight), text_release(&resumed), text_release(&ranks);
    text_release(&none);
}
