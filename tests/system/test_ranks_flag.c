/* test_ranks_flag.c -- runs of several ranks that the program starts itself, with --ranks. */
// SPDX-License-Identifier: Apache-2.0
#include "machine/launch.h"
#include "system/runs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

static const char base[] =
    "model.vocab_size=264 training.local_batch_size=1 training.global_batch_size=4 "
    "training.mixed_precision_param=float32 metrics.log_freq=1 checkpoint.enable=true "
    "checkpoint.interval=100000 device.threads=1 ";

static const char *new_folder(void)
{
    const char *folder = test_folder();
    runs_write_corpus(test_path(folder, "corpus.txt"), 60000);
    runs_write_config(test_path(folder, "run.toml"), test_path(folder, "corpus.txt"));
    return folder;
}

/* launched: ranks of mpirun; 1: none.  Returns the exit code; -1: mpirun is not installed. */
static int train(int launched, const char *folder, const char *dump, const char *more)
{
    struct text settings = {0}, err = {0};
    text_addf(&settings, "%s%s", base, more);
    int code = runs_train_ranks(launched, test_path(folder, "run.toml"), test_path(folder, dump),
                                settings.data, &err);
    if (code > 0) print_error("%s: %s\n", more, err.data);
    text_release(&settings), text_release(&err);
    return code;
}

static void check_same_checkpoint(const char *folder, const char *a, const char *b, int step)
{
    char name[64];
    snprintf(name, sizeof name, "checkpoint/step-%d", step);
    const char *x = test_path(test_path(folder, a), name);
    const char *y = test_path(test_path(folder, b), name);
    runs_check_same_files(x, y, ".safetensors");
    runs_check_same_files(x, y, "state.json");
}

TEST(ranks_without_mpirun_have_the_bits_of_those_with_it)
{
    static const char *const layouts[] = {"data_parallel_shard", "tensor_parallel",
                                          "pipeline_parallel", "context_parallel"};
    const char *folder = new_folder();
    CHECK(train(1, folder, "one", "training.steps=4") == 0);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char here[128], dumps[2][64];
        snprintf(here, sizeof here, "training.steps=4 parallelism.%s_degree=2 --ranks 2",
                 layouts[i]);
        snprintf(dumps[0], sizeof dumps[0], "%s", layouts[i]);
        snprintf(dumps[1], sizeof dumps[1], "%s_mpi", layouts[i]);
        CHECK(train(1, folder, dumps[0], here) == 0);
        CHECK_NEAR(runs_metric(test_path(folder, dumps[0]), "loss"),
                   runs_metric(test_path(folder, "one"), "loss"), 1e-5);
        *strstr(here, " --ranks") = 0;
        int code = launch_library() ? train(2, folder, dumps[1], here) : -1;
        if (code < 0) continue; /* no MPI to compare with */
        CHECK(code == 0);
        check_same_checkpoint(folder, dumps[0], dumps[1], 4);
        runs_check_same_metrics(test_path(folder, dumps[0]), test_path(folder, dumps[1]));
    }
}

static pid_t start(const char *folder, const char *dump, const char *ranks, const char *steps)
{
    const char *err = test_path(folder, "err.txt");
    char into[512], count[64];
    snprintf(into, sizeof into, "job.dump_folder=%s", test_path(folder, dump));
    snprintf(count, sizeof count, "training.steps=%s", steps);
    pid_t run = RUNS_START(err, "train", test_path(folder, "run.toml"), "--ranks", ranks, into,
                           count, "model.vocab_size=264", "training.local_batch_size=1",
                           "training.global_batch_size=6", "metrics.log_freq=1",
                           "checkpoint.enable=true", "checkpoint.interval=100000",
                           "device.threads=1", "training.mixed_precision_param=float32");
    runs_wait_for_bytes(test_path(test_path(folder, dump), "metrics.jsonl"), 1000);
    return run;
}

TEST(a_killed_rank_is_named_and_ends_all_with_81)
{
    enum { RANKS = 3 };
    const char *folder = new_folder();
    pid_t ranks[RANKS], run = start(folder, "run", "3", "100000000");
    struct text said = {0};
    CHECK(runs_find_ranks(run, ranks, RANKS) == RANKS);
    kill(ranks[1], SIGKILL);
    int code = runs_wait(run, test_path(folder, "err.txt"), &said);
    if (code != 81) print_error("exit code %d: %s\n", code, said.data);
    CHECK(code == 81);
    CHECK(strstr(said.data, "rank 1 on ") && strstr(said.data, "was killed by SIGKILL at step "));
    for (int r = 0; r < RANKS; r++) CHECK(kill(ranks[r], 0) && errno == ESRCH);
    text_release(&said);
}

TEST(a_stopped_launcher_leaves_a_checkpoint_that_resumes_bit_for_bit)
{
    const char *folder = new_folder();
    const char *more = "training.global_batch_size=6 training.steps=600 --ranks ";
    char again[128];
    struct text said = {0};
    CHECK(train(1, folder, "straight",
                "training.global_batch_size=6 training.steps=600 --ranks 2") == 0);
    pid_t run = start(folder, "cut", "2", "600");
    kill(run, SIGTERM);
    int code = runs_wait(run, test_path(folder, "err.txt"), &said);
    if (code != 75) print_error("exit code %d: %s\n", code, said.data);
    CHECK(code == 75 && strstr(said.data, "stopped by SIGTERM after step "));
    snprintf(again, sizeof again, "%s2", more);
    CHECK(train(1, folder, "cut", again) == 0);
    check_same_checkpoint(folder, "straight", "cut", 600);
    text_release(&said);
}

TEST(eval_and_generate_run_on_ranks_of_their_own)
{
    const char *folder = new_folder();
    struct text one = {0}, two = {0};
    struct json *a, *b;
    CHECK(train(1, folder, "run", "training.steps=4") == 0);
    const char *dump = test_path(folder, "run"), *corpus = test_path(folder, "corpus.txt");
    const char *eval[] = {"eval", dump, corpus, "--batches", "4", "--json", NULL, NULL, NULL};
    const char *generate[] = {
        "generate", dump, "--prompt", "a llama", "--max-tokens", "8", "--temperature",
        "0",        NULL, NULL,       NULL};
    CHECK(test_llamero(&one, NULL, eval) == 0);
    CHECK_STATUS(OK, json_parse(one.data, one.len, "eval", &a));
    eval[6] = "--ranks", eval[7] = "2";
    CHECK(test_llamero(&two, NULL, eval) == 0);
    CHECK_STATUS(OK, json_parse(two.data, two.len, "eval", &b));
    CHECK_NEAR(json_number(json_get(a, "loss")), json_number(json_get(b, "loss")), 1e-5);
    one.len = two.len = 0;
    CHECK(test_llamero(&one, NULL, generate) == 0);
    generate[8] = "--ranks", generate[9] = "2";
    CHECK(test_llamero(&two, NULL, generate) == 0);
    CHECK(one.len && one.len == two.len && !memcmp(one.data, two.data, one.len));
    json_free(a), json_free(b);
    text_release(&one), text_release(&two);
}
