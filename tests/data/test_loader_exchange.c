/* test_loader_exchange.c -- any number of data-parallel readers sees the same rows in the same
 * steps, also if runs end anywhere and resume with other numbers of readers, rows of a step and
 * weights of the sources. */
// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

#include "base/rng.h"
#include "comm/ranks.h"

#include <stdlib.h>

enum {
    T = 12,
    RUNS = TEST_SLOWED ? 3 : 12,
    ROWS = TEST_SLOWED ? 500 : 900,
    MOST_READERS = TEST_SLOWED ? 12 : 64,
    MOST_ROWS = 80,
    STAGE_ROWS = 250
};

/* One job of a run: it takes up the run at `cursor`, and ends at some row. */
struct job {
    struct rig *rig;
    int readers, step_rows, steps;
    struct row_interval skip; /* begin == end: none */
    struct text cursor, next_cursor;
    uint64_t next_row;
    unsigned char *seen; /* how often each row was read */
    const struct rows *want;
};

static enum status read_step(struct job *job, struct loader *l, int reader, struct batch *b)
{
    int rows;
    uint64_t begin = loader_position(l);
    TRY(loader_next_step(l, b, (uint64_t)job->step_rows, &rows));
    for (int i = 0; i < rows; i++) {
        uint64_t number = loader_delivered_row(l, reader, i);
        size_t at = (size_t)i * T, of = (size_t)number * T;
        RANK_CHECK(number >= begin && number < loader_position(l));
        RANK_CHECK(!memcmp(b->ids_BT + at, job->want->ids + of, T * 4));
        RANK_CHECK(!memcmp(b->labels_BT + at, job->want->labels + of, T * 4));
        RANK_CHECK(!memcmp(b->start_BT + at, job->want->start + of, T * 4));
        RANK_CHECK(!memcmp(b->end_BT + at, job->want->end + of, T * 4));
        RANK_CHECK(!b->has_weights || !memcmp(b->weight_BT + at, job->want->weights + of, T * 4));
        __atomic_add_fetch(&job->seen[number], 1, __ATOMIC_RELAXED);
    }
    for (size_t i = (size_t)rows * T; i < (size_t)b->B * T; i++) RANK_CHECK(b->labels_BT[i] < 0);
    return STATUS_OK;
}

static enum status run_reader(const struct comm *readers, void *context)
{
    struct job *job = context;
    struct loader_options o = job->rig->options;
    struct loader *l;
    struct arena arena = {0};
    struct batch b;
    enum status st = STATUS_OK;
    int room = (job->step_rows + job->readers - 1) / job->readers;
    o.data = &job->rig->data, o.objective = &job->rig->objective;
    o.reader = readers->rank, o.num_readers = readers->size, o.readers = readers;
    TRY(arena_init(&arena, 1 << 20, NULL));
    batch_alloc(&b, room, T, &arena);
    if (o.objective->name == OBJECTIVE_diffusion) batch_alloc_weights(&b, &arena);
    TRY(comm_agree(readers, loader_open(&l, &o)));
    if (job->cursor.len) {
        struct json *j;
        TRY_OUT(json_parse(job->cursor.data, job->cursor.len, "cursor", &j));
        st = loader_load(l, j);
        json_free(j);
        TRY_OUT(comm_agree(readers, st));
    }
    if (job->skip.end > job->skip.begin) loader_skip(l, job->skip);
    for (int step = 0; step < job->steps; step++)
        TRY_OUT(comm_agree(readers, read_step(job, l, readers->rank, &b)));
    TRY_OUT(loader_gather_cursor(l, readers));
    if (readers->rank == 0) {
        loader_save(l, &(struct json_writer){.text = &job->next_cursor});
        job->next_row = loader_position(l);
    }
out:
    loader_close(l);
    arena_release(&arena);
    return st;
}

/* The sources have other weights in each stage of the data; returns the stage's end. */
static uint64_t enter_stage(struct rig *r, uint64_t row)
{
    uint64_t stage = row / STAGE_ROWS;
    for (size_t i = 0; i < r->data.num_sources; i++)
        r->sources[i].weight = (double)((3 * stage + 2 * i) % 5);
    return (stage + 1) * STAGE_ROWS;
}

/* The rows of a run through stages, read by one reader. */
static struct rows rows_of_stages(struct rig *r, int64_t count)
{
    struct rows all = {0};
    struct text cursor = {0};
    while (all.count < count) {
        uint64_t end = enter_stage(r, (uint64_t)all.count);
        struct json *j = NULL;
        struct loader *l = rig_open(r);
        if (cursor.len) CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &j));
        if (cursor.len) CHECK_STATUS(OK, loader_load(l, j));
        json_free(j);
        rows_read(&all, l, T, 1, (int64_t)end - all.count);
        text_clear(&cursor);
        loader_save(l, &(struct json_writer){.text = &cursor});
        loader_close(l);
    }
    text_release(&cursor);
    return all;
}

/* What some jobs of a run do besides reading. */
enum events { EVENTS_NONE, EVENTS_SKIPS, EVENTS_STAGES };

/* Ends the job with the stage at the latest. */
static void limit_to_stage(struct job *job)
{
    int left = (int)(enter_stage(job->rig, job->next_row) - job->next_row);
    if (job->step_rows > left) job->step_rows = left;
    if (job->steps > left / job->step_rows) job->steps = left / job->step_rows;
}

/* Draws the jobs of one run until it has read ROWS rows. */
static void simulate(struct rig *rig, const struct rows *want, uint64_t seed, enum events events)
{
    struct job job = {.rig = rig, .want = want, .seen = heap((size_t)want->count)};
    unsigned char *skipped = heap((size_t)want->count);
    int jobs = 0;
    for (uint64_t draw = 0; job.next_row < ROWS; jobs++) {
        job.readers = 1 + (int)rng_below(seed ? 8 : MOST_READERS, seed, RNG_TEST, 0, draw++);
        job.step_rows = 1 + (int)rng_below(MOST_ROWS, seed, RNG_TEST, 0, draw++);
        job.steps = 1 + (int)rng_below(8, seed, RNG_TEST, 0, draw++);
        rig->options.prefetch_rows = (int)rng_below(4, seed, RNG_TEST, 0, draw++);
        job.skip.begin = job.next_row + rng_below(40, seed, RNG_TEST, 0, draw++);
        bool skips = events == EVENTS_SKIPS && jobs % 2 == 0;
        job.skip.end = skips ? job.skip.begin + rng_below(9, seed, RNG_TEST, 0, draw++) : 0;
        if (events == EVENTS_STAGES) limit_to_stage(&job);
        uint64_t begin = job.next_row;
        enum status st = ranks_run(job.readers, run_reader, &job);
        if (st)
            fail_msg("seed %d, job %d: %d readers, %d rows a step, from row %d: %s", (int)seed,
                     jobs, job.readers, job.step_rows, (int)begin, status_message());
        for (uint64_t n = job.skip.begin; n < job.skip.end && n < job.next_row; n++) skipped[n] = 1;
        text_release(&job.cursor);
        job.cursor = job.next_cursor, job.next_cursor = (struct text){0};
    }
    for (uint64_t n = 0; n < job.next_row; n++)
        if (job.seen[n] + skipped[n] != 1)
            fail_msg("seed %d: row %d was read %d times", (int)seed, (int)n, job.seen[n]);
    print_message("seed %d: %d rows in %d jobs: 0 missing, 0 twice\n", (int)seed, (int)job.next_row,
                  jobs);
    text_release(&job.cursor);
    free(job.seen), free(skipped);
}

TEST(loader_rows_do_not_depend_on_the_readers_of_any_job)
{
    for (int run = 0; run < RUNS; run++) {
        struct rig r;
        rig_init(&r, "bytes", T);
        r.data.streams = 1 + (int64_t)rng_below(8, 9, RNG_TEST, 1, (uint64_t)run);
        static const enum objective_kind kinds[] = {OBJECTIVE_masked, OBJECTIVE_causal,
                                                    OBJECTIVE_diffusion};
        r.objective.name = kinds[run % 3];
        r.objective.mask_token = "<|mask|>";
        if (run % 4 < 2) r.data.packing = PACKING_best_fit;
        enum events events = run % 4 == 2 ? EVENTS_STAGES : run % 3 ? EVENTS_NONE : EVENTS_SKIPS;
        rig_add_kind(&r, test_folder(), events == EVENTS_STAGES ? RIG_KINDS - 1 : run % RIG_KINDS);
        int64_t count = ROWS + 5 * MOST_ROWS + 400;
        struct rows want =
            events == EVENTS_STAGES ? rows_of_stages(&r, count) : rows_of(&r, 1, count);
        simulate(&r, &want, (uint64_t)run, events);
        rows_release(&want);
        rig_release(&r);
    }
}

/* With 2 readers, 4 streams need an exchange only because of the row that a job skipped. */
TEST(loader_saves_its_streams_after_an_earlier_job_skipped_an_odd_number_of_rows)
{
    struct rig r;
    rig_init(&r, "bytes", T);
    r.data.streams = 4;
    rig_add_kind(&r, test_folder(), 0);
    struct rows want = rows_of(&r, 1, 100);
    struct job job = {.rig = &r, .readers = 2, .step_rows = 4, .steps = 3, .want = &want};
    job.seen = heap((size_t)want.count);
    job.skip = (struct row_interval){5, 6};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(OK, ranks_run(job.readers, run_reader, &job));
        text_release(&job.cursor);
        job.cursor = job.next_cursor, job.next_cursor = (struct text){0};
        job.skip = (struct row_interval){0};
    }
    assert_int_equal(job.next_row, 37);
    for (int n = 0; n < 37; n++) assert_int_equal(job.seen[n], n != 5);
    text_release(&job.cursor);
    free(job.seen);
    rows_release(&want);
    rig_release(&r);
}

TEST(a_resumed_loader_keeps_the_streams_with_which_the_run_began)
{
    struct rig r;
    rig_init(&r, "bytes", T);
    r.data.streams = 8;
    rig_add_kind(&r, test_folder(), 0);
    struct rows want = rows_of(&r, 1, 200), got = {0};
    struct text cursor = {0};
    struct json *j;
    struct loader *l = rig_open(&r);
    got.T = T;
    rows_read(&got, l, T, 1, 37);
    loader_save(l, &(struct json_writer){.text = &cursor});
    loader_close(l);
    r.data.streams = 3, r.options.prefetch_rows = 2;
    l = rig_open(&r);
    CHECK_STATUS(OK, json_parse(cursor.data, cursor.len, "cursor", &j));
    CHECK_STATUS(OK, loader_load(l, j));
    json_free(j);
    rows_read(&got, l, T, 1, 163);
    rows_check_same(&want, 0, &got, 0, 200);
    loader_close(l);
    text_release(&cursor);
    rows_release(&want), rows_release(&got);
    rig_release(&r);
}
