/* test_ranks_uneven.c -- a run that loses and regains ranks keeps its batches: losses are those of
 * one rank. */
// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

/* A run in pieces of four steps, on these numbers of ranks, with settings of the layout. */
static void check_pieces(const int *ranks, const char *data, const char *layout)
{
    const char *folder = test_folder(), *config = test_path(folder, "run.toml");
    const char *straight = test_path(folder, "straight"), *dump = test_path(folder, "pieces");
    struct text all = {0}, err = {0};
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(config, test_path(folder, "corpus.txt"));
    text_addf(&all,
              "training.mixed_precision_param=float32 device.threads=1 checkpoint.interval=4 "
              "lr_scheduler.total_steps=16 training.local_batch_size=1 "
              "training.global_batch_size=10 %s training.steps=16",
              data);
    CHECK(runs_train(config, straight, all.data, &err) == 0);
    text_addf(&all, " %s training.steps=", layout);
    size_t end = all.len;
    for (int piece = 0; piece < 4; piece += TEST_SLOWED ? 3 : 1) {
        all.len = end;
        text_addf(&all, "%d", 4 * (piece + 1));
        int code = runs_train_ranks(ranks[piece], config, dump, all.data, &err);
        if (code < 0) skip(); /* no launcher */
        if (code) fail_msg("%d ranks: exit code %d: %s", ranks[piece], code, err.data);
    }
    runs_check_close_losses(straight, dump, 1e-5);
    text_release(&all), text_release(&err);
}

TEST(a_run_on_4_3_2_and_3_ranks_has_the_losses_of_one_rank)
{
    check_pieces((const int[]){4, 3, 2, 3}, "", "");
}

TEST(a_pipelined_run_on_2_and_6_ranks_has_the_losses_of_one_rank)
{
    check_pieces((const int[]){2, 6, 2, 6}, "", "parallelism.pipeline_parallel_degree=2");
}

TEST(a_run_with_fewer_streams_than_ranks_has_the_losses_of_one_rank)
{
    check_pieces((const int[]){3, 2, 3, 4}, "data.streams=2", "training.local_batch_size=2");
}
