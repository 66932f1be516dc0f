/* test_ranks_resume.c -- a run over many ranks resumes bit for bit over the same layout, and over
 * any other layout with the same samples in the same order. */
// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "checkpoint/comparison.h"
#include "system/device_runs.h"
#include "system/layouts.h"
#include "system/runs.h"

struct layout_of_ranks {
    const char *name;
    int ranks;
    const char *settings[10];
};

#define CHUNKS "parallelism.pipeline_parallel_schedule=Interleaved1F1B"
#define ASYNC  "checkpoint.async_mode=async"

#define SPLIT  "optimizer.master_weights=split"
#define NARROW "optimizer.state_dtype=bfloat16"
#define MUON   "optimizer.name=Muon"
#define FLOAT8 "model.converters=[\"float8\"]", "float8.recipe_name=delayed", "model.ffn_hidden=32"

static const struct layout_of_ranks layouts[] = {
    {"one rank", 1, {SHARD(1), ASYNC}},
    {"FSDP 2", 2, {SHARD(2), ASYNC}},
    {"ZeRO-1 4", 4, {SHARD(4), "parallelism.fsdp_shard_gradients=false"}},
    {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2), ASYNC}},
    {"TP 2", 2, {TP(2), ASYNC}},
    {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2)}},
    {"TP 4, heads of keys twice", 4, {TP(4)}},
    {"HSDP 2 x 2 x TP 2", 8, {COPIES(2), SHARD(2), TP(2), ASYNC}},
    {"PP 2", 2, {PP(2), ASYNC}},
    {"PP 2, chunks, x FSDP 2", 4, {PP(2), SHARD(2), CHUNKS}},
    {"PP 2 x FSDP 2 x TP 2", 8, {PP(2), SHARD(2), TP(2), ASYNC}},
    {"CP 2", 2, {CP(2), ASYNC}},
    {"FSDP 2 x CP 2", 4, {SHARD(2), CP(2)}},
    {"bfloat16", 1, {SHARD(1), HALF}},
    {"split", 1, {SHARD(1), HALF, SPLIT}},
    {"narrow", 2, {SHARD(2), HALF, SPLIT, NARROW}},
    {"narrow, FSDP 2 x TP 2", 4, {SHARD(2), TP(2), HALF, SPLIT, NARROW, ASYNC}},
    {"float8", 1, {SHARD(1), FLOAT8}},
    {"float8, PP 2 x FSDP 2", 4, {PP(2), SHARD(2), FLOAT8, ASYNC}},
    {"Muon", 1, {SHARD(1), MUON, ASYNC}},
    {"Muon, FSDP 2 x TP 2", 4, {SHARD(2), TP(2), MUON}},
    {"Muon, narrow, PP 2 x FSDP 2", 4, {PP(2), SHARD(2), HALF, SPLIT, NARROW, MUON}},
    {"8-bit", 1, {SHARD(1), EIGHT_BIT, ASYNC}},
    {"8-bit, FSDP 2 x TP 2", 4, {SHARD(2), TP(2), EIGHT_BIT}},
    {"8-bit, split, PP 2 x FSDP 2", 4, {PP(2), SHARD(2), HALF, SPLIT, EIGHT_BIT, BF16_GRADIENTS}},
    {"bfloat16 gradients", 1, {SHARD(1), BF16_GRADIENTS, ASYNC, "model.tie_embeddings=true"}},
    {"bfloat16 gradients, HSDP 2 x 2", 4, {COPIES(2), SHARD(2), BF16_GRADIENTS, HALF}},
    {"bfloat16 gradients, ZeRO-1 x TP 2", 4, {SHARD(2), TP(2), BF16_GRADIENTS, ZERO1, HALF, SPLIT}},
    {"bfloat16 gradients, replicas", 2, {COPIES(2), SHARD(1), BF16_GRADIENTS}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, HALVES = 13 /* the first in bfloat16 */ };
enum { FLOAT8_ONE = 17, FLOAT8_FOUR = 18 }; /* with FP8, on one rank and on four */

static void train(const struct layout_of_ranks *l, const char *corpus, const char *dump)
{
    /* Under TSan half of the time is spent in the reference's GEMMs. */
    const char *settings[11] = {TEST_SLOWED ? "training.seq_len=8" : "training.seq_len=16"};
    memcpy(settings + 1, l->settings, sizeof l->settings);
    device_run_train(ON_HOST, l->ranks, settings, corpus, dump);
}

/* The last checkpoint of <folder>/<number>, a run without interruption; the first call trains. */
static const char *train_straight(const char *folder, int number, const struct layout_of_ranks *l,
                                  const char *corpus)
{
    char name[16];
    snprintf(name, sizeof name, "%d", number);
    const char *dump = test_path(folder, name);
    if (!file_exists(dump)) train(l, corpus, dump);
    return test_path(dump, "checkpoint/step-6");
}

/* Resumes the run <straight>/<from> after step 3 with layout `to`; returns the checkpoint of step
 * 6. */
static const char *resume(const char *straight, int from, const struct layout_of_ranks *to,
                          const char *corpus)
{
    const char *dump = test_folder();
    char step[64];
    snprintf(step, sizeof step, "%d/checkpoint/step-3", from);
    CHECK_STATUS(OK, file_make_dirs(test_path(dump, "checkpoint")));
    const char *argv[] = {"cp", "-r", test_path(straight, step), test_path(dump, "checkpoint"),
                          NULL};
    CHECK(test_run(argv, NULL, NULL) == 0);
    train(to, corpus, dump);
    return test_path(dump, "checkpoint/step-6");
}

/* The largest relative difference of any tensor of the two folders. */
static double max_relative_difference(const char *a, const char *b)
{
    struct comparison c;
    double most = 0;
    CHECK_STATUS(OK, comparison_make(&c, a, b));
    for (size_t i = 0; i < c.count; i++) {
        if (c.all[i].kind == DIFFERENCE_VALUE) continue; /* of state.json */
        CHECK(c.all[i].kind == DIFFERENCE_NUMBERS);
        most = fmax(most, c.all[i].relative);
    }
    comparison_release(&c);
    return most;
}

TEST(a_run_resumes_over_the_same_and_over_other_layouts)
{
    static const int pairs[][2] = {{0, 1},  {1, 0},  {1, 4},   {4, 3},  {3, 2},   {2, 6},
                                   {6, 5},  {5, 7},  {7, 0},   {0, 6},  {4, 1},   {7, 2},
                                   {3, 5},  {8, 0},  {3, 8},   {5, 9},  {9, 10},  {10, 2},
                                   {11, 0}, {1, 11}, {11, 12}, {12, 5}, {13, 14}, {14, 13}};
    const char *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    const char *straight = test_folder();
    for (int i = 0; i < LAYOUTS; i += TEST_SLOWED ? 4 : 1) {
        const char *want = train_straight(straight, i, &layouts[i], corpus);
        const char *got = resume(straight, i, &layouts[i], corpus);
        runs_check_same_files(want, got, ".safetensors");
        runs_check_same_files(want, got, "state.json");
    }
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i += TEST_SLOWED ? 9 : 1) {
        int from = pairs[i][0], to = pairs[i][1];
        train_straight(straight, from, &layouts[from], corpus);
        const char *want = train_straight(straight, to, &layouts[to], corpus);
        const char *got = resume(straight, from, &layouts[to], corpus);
        double off = max_relative_difference(want, got);
        print_message("%-26s -> %-26s off by %.1e\n", layouts[from].name, layouts[to].name, off);
        runs_check_same_files(want, got, "state.json"); /* every stream's position in the data */
        /* Another order of sums can round a bfloat16 differently. */
        CHECK(off < (from < HALVES ? 1e-4 : 5e-2));
    }
}

#define EMA "optimizer.ema_decay=0.9"

/* Converts a checkpoint's weights, or with --ema their moving average, to a folder. */
static const char *export(const char *step, const char *flag)
{
    const char *to = test_path(test_folder(), "exported");
    const char *argv[] = {"convert", step, to, "--to", "hf", flag, NULL};
    CHECK(test_llamero(NULL, NULL, argv) == 0);
    return to;
}

TEST(the_moving_average_of_weights_resumes_and_is_close_over_other_layouts)
{
    static const struct layout_of_ranks all[] = {
        {"one rank", 1, {SHARD(1), EMA, ASYNC}},
        {"FSDP 2 x TP 2", 4, {SHARD(2), TP(2), EMA}},
        {"PP 2, chunks, x FSDP 2", 4, {PP(2), SHARD(2), CHUNKS, EMA, ASYNC}},
        {"Muon, HSDP 2 x 2", 4, {COPIES(2), SHARD(2), MUON, EMA}},
        {"split", 1, {SHARD(1), HALF, SPLIT, EMA}},
        {"split, bfloat16 gradients", 2, {SHARD(2), HALF, SPLIT, BF16_GRADIENTS, EMA}},
    };
    const char *corpus = test_path(test_folder(), "corpus.txt"), *straight = test_folder();
    runs_write_corpus(corpus, 60000);
    const char *one = train_straight(straight, 0, &all[0], corpus), *first = export(one, "--ema");
    CHECK(max_relative_difference(first, export(one, NULL)) > 1e-4); /* it is not the weights */
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i += TEST_SLOWED ? 3 : 1) {
        const char *want = train_straight(straight, i, &all[i], corpus);
        CHECK(file_exists(test_path(want, "ema-00001-of-00001.safetensors")));
        runs_check_same_files(want, resume(straight, i, &all[i], corpus), ".safetensors");
        if (i == 0 || i > 2) continue; /* other arithmetic */
        const char *other = resume(straight, 0, &all[i], corpus);
        CHECK(max_relative_difference(export(want, "--ema"), first) < 1e-4);
        CHECK(max_relative_difference(export(other, "--ema"), first) < 1e-4);
    }
}

#define RAMP "training.global_batch_size=16", "training.batch_ramp=4,4,20"

/* Steps of 4, 4, 8, 12, 16, 16 rows; the run resumes after the third. */
TEST(a_run_resumes_in_a_batch_ramp_over_the_same_and_over_other_layouts)
{
    static const struct layout_of_ranks ramps[] = {
        {"one rank", 1, {SHARD(1), RAMP, ASYNC}},
        {"FSDP 2", 2, {SHARD(2), RAMP}},
        {"FSDP 4", 4, {SHARD(4), RAMP}},
        {"PP 2, chunks, x FSDP 2", 4, {PP(2), SHARD(2), CHUNKS, RAMP}},
    };
    enum { RAMPS = sizeof ramps / sizeof *ramps };
    const char *corpus = test_path(test_folder(), "corpus.txt"), *straight = test_folder();
    runs_write_corpus(corpus, 60000);
    for (int i = 0; i < RAMPS; i += TEST_SLOWED ? 3 : 1) {
        int next = (i + 1) % RAMPS;
        train_straight(straight, next, &ramps[next], corpus);
        const char *want = train_straight(straight, i, &ramps[i], corpus);
        const char *same = resume(straight, i, &ramps[i], corpus);
        const char *other = resume(straight, next, &ramps[i], corpus);
        runs_check_same_files(want, same, ".safetensors");
        runs_check_same_files(want, same, "state.json");
        runs_check_same_files(want, other, "state.json");
        CHECK(max_relative_difference(want, other) < 1e-4);
    }
}

/* amax histories are of the whole model, whichever layout wrote them.  Another order of sums may
 * round values differently, so results are close. */
TEST(an_fp8_run_resumes_over_another_layout)
{
    if (TEST_SLOWED) skip(); /* test_ranks_float8 has the same code */
    const char *folder = test_folder(), *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (int to = FLOAT8_ONE; to <= FLOAT8_FOUR; to++) {
        int from = FLOAT8_ONE + FLOAT8_FOUR - to;
        train_straight(folder, from, &layouts[from], corpus);
        const char *want = train_straight(folder, to, &layouts[to], corpus);
        const char *got = resume(folder, from, &layouts[to], corpus);
        double off = max_relative_difference(want, got);
        print_message("to %-24s off by %.1e\n", layouts[to].name, off);
        CHECK(off < 1e-4);
    }
}

/* Checkpoints hold 261 tokens, whatever the padding in memory. */
TEST(a_run_resumes_with_another_padding_of_the_vocabulary)
{
    if (TEST_SLOWED) skip(); /* the layouts above communicate in the same way */
#define ODD         "model.vocab_size=261"
#define MULTIPLE(n) "model.vocab_multiple=" #n
    static const struct layout_of_ranks padded[] = {
        {"no padding", 1, {ODD, SHARD(1), MULTIPLE(1)}},
        {"TP 4, multiple of 128", 4, {ODD, TP(4), MULTIPLE(128), ASYNC}},
        {"FSDP 2 x TP 2", 4, {ODD, SHARD(2), TP(2)}},
    };
    enum { COUNT = sizeof padded / sizeof *padded };
    const char *folder = test_folder(), *corpus = test_path(test_folder(), "corpus.txt");
    runs_write_corpus(corpus, 60000);
    for (int i = 0; i < COUNT; i++) train_straight(folder, i, &padded[i], corpus);
    for (int to = 0; to < COUNT; to++) {
        const char *want = train_straight(folder, to, &padded[to], corpus);
        const char *got = resume(folder, (to + 1) % COUNT, &padded[to], corpus);
        double off = max_relative_difference(want, got);
        print_message("to %-24s off by %.1e\n", padded[to].name, off);
        CHECK(off < 1e-4);
        runs_check_same_files(want, got, "config.json");
        got = resume(folder, to, &padded[to], corpus);
        runs_check_same_files(want, got, ".safetensors");
    }
}
