// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/tuner.h"

#include "base/file.h"
#include "test.h"

/* A GEMM that computes nothing: by its clock the named blocking takes a moment, others four. */
static const char *fastest;
static double now;
static double fake_clock(void) { return now; }
static int calls;
static double moment = 1e-3;
static enum status fake_gemm(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                             const struct gemm_buffers *io, struct queue *queue)
{
    arena_alloc(&queue->scratch, 100, 1);
    arena_reset(&queue->scratch, 0);
    if (queue->sizing) return STATUS_OK;
    CHECK(io->a && io->b && io->c && io->d && queue->num_threads == 3 && s->K > 0);
    calls++;
    now += !strcmp(blocking->name, fastest) ? moment : 4 * moment;
    return STATUS_OK;
}

static const struct tuned_device device = {"cpu test", "processor", 3};
static const struct gemm_shape shape = {.M = 7, .N = 5, .K = 3, .dtype = BF16, .out = F32};

static struct queue sizing_queue(void) { return (struct queue){.sizing = true, .num_threads = 3}; }

static const char *tuned_name(struct tuner *t, const struct gemm_shape *s)
{
    struct queue queue = sizing_queue();
    return tuner_blocking(t, s, fake_gemm, &queue)->name;
}

/* Simulates a run that reads and writes the file; *num_calls: number of timed calls. */
static const char *tuned_name_of_run(const char *path, int *num_calls)
{
    struct tuner *t = tuner_open(path, &device, fake_clock);
    calls = 0;
    const char *name = tuned_name(t, &shape);
    *num_calls = calls;
    tuner_close(t);
    return name;
}

TEST(tuner_picks_the_fastest_and_a_later_run_reads_it_from_the_file)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int num_calls;
    fastest = "far";
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "far") && num_calls > 0);
    fastest = "wide"; /* ignored: the file has an entry */
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "far") && num_calls == 0);
}

TEST(tuner_keeps_the_default_where_it_is_fastest)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int num_calls;
    fastest = "usual";
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "usual") && num_calls > 0);
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "usual") && num_calls == 0);
}

TEST(tuner_ignores_unknown_names_in_the_file)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuning file;
    struct text key = {0};
    int num_calls;
    struct tuned_matmul p = {.M = 7, .N = 5, .K = 3, .dtype = BF16, .out = F32};
    tuning_open(&file, path);
    tuning_key(&key, &device, &p);
    tuning_set(&file, key.data, "of another version");
    CHECK_STATUS(OK, tuning_save(&file));
    tuning_close(&file);
    fastest = "near";
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "near") && num_calls > 0);
    CHECK(!strcmp(tuned_name_of_run(path, &num_calls), "near") && num_calls == 0);
    text_release(&key);
}

TEST(first_gemm_after_a_sizing_pass_saves_the_file)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, fake_clock);
    struct queue queue = {.num_threads = 3};
    struct gemm_shape other = shape;
    fastest = "wide";
    tuned_name(t, &shape);
    CHECK(!file_exists(path));
    CHECK(!strcmp(tuner_blocking(t, &shape, fake_gemm, &queue)->name, "wide"));
    CHECK(file_exists(path));
    other.M = 8; /* not seen by a sizing pass */
    calls = 0;
    CHECK(!strcmp(tuner_blocking(t, &other, fake_gemm, &queue)->name, "usual") && calls == 0);
    tuner_use(t, false);
    CHECK(!strcmp(tuner_blocking(t, &shape, fake_gemm, &queue)->name, "usual"));
    tuner_use(t, true);
    CHECK(!strcmp(tuner_blocking(t, &shape, fake_gemm, &queue)->name, "wide"));
    CHECK(tuner_blocking(NULL, &shape, fake_gemm, &queue) == gemm_blocking_at(0));
    tuner_close(t);
}

TEST(shape_that_would_exceed_the_budget_gets_the_default_unsaved)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, fake_clock);
    struct gemm_shape large = shape;
    large.M = large.N = large.K = 1 << 15;
    calls = 0;
    CHECK(!strcmp(tuned_name(t, &large), "usual") && calls == 0);
    tuner_close(t);
    CHECK(!file_exists(path));
}

TEST(tuner_stops_after_ten_seconds)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, fake_clock);
    struct gemm_shape s = shape;
    int timed = 0;
    fastest = "far", moment = 0.06; /* three rounds of all blockings take seconds */
    for (s.M = 10; s.M < 30; s.M++) {
        calls = 0;
        if (!strcmp(tuned_name(t, &s), "far")) timed++;
        CHECK(calls < 50);
    }
    moment = 1e-3;
    CHECK(timed >= 1 && timed < 5);
    tuner_close(t);
    struct tuning file;
    tuning_open(&file, path);
    CHECK(file.count == (size_t)timed);
    tuning_close(&file);
}
