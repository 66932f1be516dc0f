/* test_loader_ranks.c -- the cursors of data-parallel readers. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "data/rig.h"

enum { READERS = 4, T = 20, EACH = 7 };

/* The cursor that each reader saves. */
struct shared {
    const struct rig *rig;
    struct text saved[READERS];
};

static enum status read_and_gather(const struct comm *world, void *context)
{
    struct shared *s = context;
    struct loader *l;
    struct rows rows = {0};
    struct loader_options o = s->rig->options;
    o.data = &s->rig->data, o.objective = &s->rig->objective;
    o.reader = world->rank, o.num_readers = world->size, o.prefetch_rows = world->rank;
    TRY(loader_open(&l, &o));
    rows_read(&rows, l, T, 2, EACH);
    enum status st = loader_gather_cursor(l, world);
    if (!st) loader_save(l, &(struct json_writer){.text = &s->saved[world->rank]});
    loader_close(l);
    rows_release(&rows);
    return st;
}

static void check_gathered(struct rig *r, int readers)
{
    struct shared s = {.rig = r};
    struct text want = {0};
    struct rows rows = {0};
    r->options.num_readers = 1;
    struct loader *l = rig_open(r);
    rows_read(&rows, l, T, 1, EACH * readers);
    loader_save(l, &(struct json_writer){.text = &want});
    CHECK_STATUS(OK, ranks_run(readers, read_and_gather, &s));
    for (int i = 0; i < readers; i++) {
        CHECK(!strcmp(s.saved[i].data, want.data));
        text_release(&s.saved[i]);
    }
    loader_close(l);
    rows_release(&rows);
    text_release(&want);
}

TEST(gathered_cursors_in_megatrons_order_equal_that_of_a_single_reader)
{
    struct rig r;
    rig_init(&r, "bytes", T);
    rig_add_kind(&r, test_folder(), 5); /* a .bin/.idx pair: two files, sampled by two readers */
    r.data.order = ORDER_megatron;
    r.options.run_rows = 100;
    for (int readers = 1; readers <= READERS; readers *= 2) check_gathered(&r, readers);
    rig_release(&r);
}

TEST(gathered_cursors_equal_those_of_a_single_reader)
{
    for (int kind = 0; kind < RIG_KINDS; kind += 4) {
        struct rig r;
        rig_init(&r, "bytes", T);
        r.data.streams = 8;
        rig_add_kind(&r, test_folder(), kind);
        for (int readers = 1; readers <= READERS; readers *= 2) check_gathered(&r, readers);
        rig_release(&r);
    }
}
