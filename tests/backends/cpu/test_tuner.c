// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/tuner.h"

#include "base/file.h"
#include "test.h"

/* A product that computes nothing: of its clock the named way takes a moment, others four. */
static const char *fastest;
static double now;
static double tell_time(void) { return now; }
static int calls;
static double moment = 1e-3;
static enum status pretend(const struct gemm_shape *s, const struct gemm_blocking *blocking,
                           const struct gemm_buffers *io, struct queue *queue)
{
    arena_take(&queue->scratch, 100, 1);
    arena_reset(&queue->scratch, 0);
    if (queue->measuring) return STATUS_OK;
    CHECK(io->a && io->b && io->c && io->d && queue->num_threads == 3 && s->K > 0);
    calls++;
    now += !strcmp(blocking->name, fastest) ? moment : 4 * moment;
    return STATUS_OK;
}

static const struct tuned_device device = {"cpu test", "processor", 3};
static const struct gemm_shape shape = {.M = 7, .N = 5, .K = 3, .dtype = BF16, .out = F32};

static struct queue measuring(void) { return (struct queue){.measuring = true, .num_threads = 3}; }

static const char *way_of(struct tuner *t, const struct gemm_shape *s)
{
    struct queue queue = measuring();
    return tuner_blocking(t, s, pretend, &queue)->name;
}

/* What a run that finds the file does; *made: calls that took. */
static const char *way_of_run(const char *path, int *made)
{
    struct tuner *t = tuner_open(path, &device, tell_time);
    calls = 0;
    const char *name = way_of(t, &shape);
    *made = calls;
    tuner_close(t);
    return name;
}

TEST(the_fastest_way_is_taken_and_a_later_run_finds_it_without_timing)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int made;
    fastest = "far";
    CHECK(!strcmp(way_of_run(path, &made), "far") && made > 0);
    fastest = "wide"; /* nobody looks */
    CHECK(!strcmp(way_of_run(path, &made), "far") && made == 0);
}

TEST(where_the_usual_way_is_the_fastest_it_stays)
{
    const char *path = test_path(test_folder(), "gemm.json");
    int made;
    fastest = "usual";
    CHECK(!strcmp(way_of_run(path, &made), "usual") && made > 0);
    CHECK(!strcmp(way_of_run(path, &made), "usual") && made == 0);
}

TEST(a_way_that_this_program_does_not_know_is_found_anew)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuning file;
    struct text key = {0};
    int made;
    struct tuned_product p = {.M = 7, .N = 5, .K = 3, .dtype = BF16, .out = F32};
    tuning_open(&file, path);
    tuning_key(&key, &device, &p);
    tuning_put(&file, key.data, "of another version");
    CHECK_STATUS(OK, tuning_save(&file));
    tuning_close(&file);
    fastest = "near";
    CHECK(!strcmp(way_of_run(path, &made), "near") && made > 0);
    CHECK(!strcmp(way_of_run(path, &made), "near") && made == 0);
    text_release(&key);
}

TEST(the_file_is_written_by_the_first_product_after_a_measuring_pass)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, tell_time);
    struct queue queue = {.num_threads = 3};
    struct gemm_shape other = shape;
    fastest = "wide";
    way_of(t, &shape);
    CHECK(!file_exists(path));
    CHECK(!strcmp(tuner_blocking(t, &shape, pretend, &queue)->name, "wide"));
    CHECK(file_exists(path));
    other.M = 8; /* which no measuring pass met */
    calls = 0;
    CHECK(!strcmp(tuner_blocking(t, &other, pretend, &queue)->name, "usual") && calls == 0);
    tuner_use(t, false);
    CHECK(!strcmp(tuner_blocking(t, &shape, pretend, &queue)->name, "usual"));
    tuner_use(t, true);
    CHECK(!strcmp(tuner_blocking(t, &shape, pretend, &queue)->name, "wide"));
    CHECK(tuner_blocking(NULL, &shape, pretend, &queue) == gemm_blocking_at(0));
    tuner_close(t);
}

TEST(a_product_that_would_take_too_long_is_left_as_it_is_and_not_kept)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, tell_time);
    struct gemm_shape large = shape;
    large.M = large.N = large.K = 1 << 15;
    calls = 0;
    CHECK(!strcmp(way_of(t, &large), "usual") && calls == 0);
    tuner_close(t);
    CHECK(!file_exists(path));
}

TEST(what_ten_seconds_are_not_enough_for_is_left_and_not_kept)
{
    const char *path = test_path(test_folder(), "gemm.json");
    struct tuner *t = tuner_open(path, &device, tell_time);
    struct gemm_shape s = shape;
    int timed = 0;
    fastest = "far", moment = 0.06; /* three rounds of all take seconds */
    for (s.M = 10; s.M < 30; s.M++) {
        calls = 0;
        if (!strcmp(way_of(t, &s), "far")) timed++;
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
