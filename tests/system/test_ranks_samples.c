/* test_ranks_samples.c -- the samples of each step do not depend on the layout, nor on resuming
 * with another layout. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "train/training.h"

#include "system/layouts.h"
#include "system/runs.h"

#include <pthread.h>

enum { STEPS = 12, CUT = 5, ROWS = 8, SETTINGS = 40 };

struct layout_of_ranks {
    const char *name;
    int ranks;
    const char *settings[4];
};

static const struct layout_of_ranks layouts[] = {
    {"one rank", 1, {SHARD(1)}},
    {"FSDP 2", 2, {SHARD(2)}},
    {"HSDP 2 x 2", 4, {COPIES(2), SHARD(2)}},
    {"FSDP 4 x TP 2", 8, {SHARD(4), TP(2)}},
    {"PP 2 x FSDP 2", 4, {PP(2), SHARD(2)}},
    {"CP 2 x FSDP 2", 4, {CP(2), SHARD(2)}},
    {"FSDP 8", 8, {SHARD(8)}},
    {"FSDP 3", 3, {SHARD(3)}},
    {"FSDP 5 x CP 2", 10, {SHARD(5), CP(2)}},
};

/* A hash of the tokens of each row that is read. */
struct sample_log {
    const struct layout_of_ranks *layout;
    const char *corpus;
    int from, to;
    uint64_t rows[STEPS][ROWS];
    int count[STEPS];
    struct text cursor; /* after the last step */
    pthread_mutex_t lock;
};

static uint64_t hash_of(const int32_t *ids, int T)
{
    uint64_t sum = UINT64_C(0xCBF29CE484222325);
    for (int t = 0; t < T; t++) sum = (sum ^ (uint32_t)ids[t]) * UINT64_C(0x100000001B3);
    return sum;
}

static void note_rows(struct sample_log *l, int step, const struct batch *b, int rows)
{
    pthread_mutex_lock(&l->lock);
    for (int row = 0; row < rows && l->count[step] < ROWS; row++)
        l->rows[step][l->count[step]++] = hash_of(b->ids_BT + (size_t)row * (size_t)b->T, b->T);
    pthread_mutex_unlock(&l->lock);
}

/* As a run does: the first reader saves the streams of all. */
static enum status save_cursor(struct training *t, struct sample_log *l)
{
    const struct comm *readers = &t->machine.groups.of[GROUP_data];
    TRY(loader_gather_cursor(t->loader, readers));
    if (readers->rank == 0) loader_save(t->loader, &(struct json_writer){.text = &l->cursor});
    return STATUS_OK;
}

static enum status load_cursor(struct training *t, const struct sample_log *l)
{
    struct json *j;
    TRY(json_parse(l->cursor.data, l->cursor.len, "cursor", &j));
    enum status st = loader_load(t->loader, j);
    json_free(j);
    TRY(st);
    return STATUS_OK;
}

static enum status read_rows(const struct comm *world, void *context)
{
    struct sample_log *l = context;
    const char *settings[SETTINGS] = {TRAINING_OF_RANKS, "data.prefetch=2", l->corpus};
    struct training t;
    int n = 0;
    while (settings[n]) n++;
    for (int i = 0; i < 4 && l->layout->settings[i]; i++) settings[n++] = l->layout->settings[i];
    TRY(training_open_rank(&t, world, settings, n));
    struct batch *b = &t.trainer.batch;
    if (t.loader && l->from) TRY(load_cursor(&t, l));
    for (int step = l->from, rows; step < l->to && t.loader; step++) {
        TRY(loader_next_step(t.loader, b, ROWS, &rows));
        note_rows(l, step, b, rows);
    }
    if (t.loader && !l->from) TRY(save_cursor(&t, l));
    training_close(&t);
    return STATUS_OK;
}

static int by_hash(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void read_steps(struct sample_log *l, const struct layout_of_ranks *layout, int from, int to)
{
    l->layout = layout, l->from = from, l->to = to;
    CHECK_STATUS(OK, ranks_run(layout->ranks, read_rows, l));
    for (int step = from; step < to; step++) {
        CHECK(l->count[step] == ROWS);
        qsort(l->rows[step], ROWS, sizeof l->rows[step][0], by_hash);
    }
}

static void log_open_empty(struct sample_log *l, const char *corpus)
{
    *l = (struct sample_log){.corpus = corpus};
    pthread_mutex_init(&l->lock, NULL);
}

TEST(every_pair_of_layouts_reads_the_same_samples_in_each_step)
{
    enum { LAYOUTS = sizeof layouts / sizeof *layouts };
    struct sample_log straight, l;
    uint64_t all[STEPS * ROWS];
    char data[256];
    int pairs = 0;
    snprintf(data, sizeof data, "training.dataset_path=%s/corpus.txt", test_folder());
    runs_write_corpus(strchr(data, '=') + 1, 60000);
    log_open_empty(&straight, data);
    read_steps(&straight, &layouts[0], 0, STEPS);
    text_release(&straight.cursor);
    memcpy(all, straight.rows, sizeof all);
    qsort(all, STEPS * ROWS, sizeof *all, by_hash);
    for (int i = 1; i < STEPS * ROWS; i++) CHECK(all[i] != all[i - 1]); /* no row occurs twice */
    for (int a = 0; a < LAYOUTS; a++)
        for (int b = 0; b < LAYOUTS; b++, pairs++) {
            log_open_empty(&l, data);
            read_steps(&l, &layouts[a], 0, CUT);
            read_steps(&l, &layouts[b], CUT, STEPS);
            if (memcmp(l.rows, straight.rows, sizeof l.rows))
                fail_msg("%s, then %s: samples differ", layouts[a].name, layouts[b].name);
            text_release(&l.cursor);
        }
    print_message("%d pairs of layouts, %d samples each: 0 missing, 0 twice\n", pairs,
                  STEPS * ROWS);
}
