// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

/* One pass over the data by several readers: each row exactly once, for any number of readers. */
enum { T = 7, DOCUMENTS = 31, MOST_SHARES = 5 };

static void add_tokens(struct rig *r)
{
    int lengths[DOCUMENTS];
    const char *folder = test_folder();
    for (int d = 0; d < DOCUMENTS; d++) lengths[d] = 1 + d % 9;
    rig_tokens(folder, "t", lengths, DOCUMENTS, 0);
    rig_add(r, test_path(folder, "t"), 1);
}

/* Row g is row g / n of reader g % n, and no reader has more. */
static void check_shares(struct rig *r, const struct rows *want, int readers, int B)
{
    for (int reader = 0; reader < readers; reader++) {
        r->options.reader = reader, r->options.num_readers = readers;
        struct rows got = rows_of(r, B, 10000);
        CHECK(got.count == (want->count + readers - 1 - reader) / readers);
        for (int64_t k = 0; k < got.count; k++)
            rows_check_same(want, reader + k * readers, &got, k, 1);
        rows_release(&got);
    }
}

TEST(readers_of_a_single_pass_read_each_row_once)
{
    for (int ahead = 0; ahead < 4; ahead += 3) {
        struct rig r;
        rig_init(&r, NULL, T);
        r.options.once = true;
        add_tokens(&r);
        struct rows whole = rows_of(&r, 4, 10000);
        CHECK(whole.count > 15);
        r.options.prefetch_rows = ahead;
        for (int readers = 1; readers <= MOST_SHARES; readers++)
            check_shares(&r, &whole, readers, 3);
        check_shares(&r, &whole, 40, 2); /* more readers than rows */
        rows_release(&whole);
        rig_release(&r);
    }
}

TEST(masks_of_a_single_pass_do_not_depend_on_the_number_of_readers)
{
    struct rig r;
    rig_init(&r, "bytes", T);
    rig_add_kind(&r, test_folder(), RIG_KINDS - 1);
    r.options.once = true;
    r.objective.name = OBJECTIVE_masked, r.objective.mask_probability = 0.3;
    r.objective.mask_token = "<|mask|>";
    struct rows whole = rows_of(&r, 5, 10000);
    CHECK(whole.valid > whole.count);
    for (int readers = 2; readers <= 3; readers++) check_shares(&r, &whole, readers, 4);
    rows_release(&whole);
    rig_release(&r);
}

TEST(a_single_pass_ends_after_most_rows_of_all_readers)
{
    struct rig r;
    rig_init(&r, NULL, T);
    r.options.once = true;
    add_tokens(&r);
    struct rows whole = rows_of(&r, 4, 10);
    r.options.max_rows = 10;
    CHECK(whole.count == 10);
    for (int readers = 1; readers <= MOST_SHARES; readers++) check_shares(&r, &whole, readers, 3);
    rows_release(&whole);
    rig_release(&r);
}

/* Each row of each batch is the one that loader_delivered_row names. */
static void check_delivered_rows(struct rig *r, const struct rows *want, int batch)
{
    struct loader *l = rig_open(r);
    for (int64_t left = want->count / r->options.num_readers; left; left -= batch) {
        struct rows got = {0};
        rows_read(&got, l, T, batch, batch);
        for (int i = 0; i < batch; i++) {
            uint64_t row = loader_delivered_row(l, r->options.reader, i);
            CHECK(row < (uint64_t)want->count);
            rows_check_same(want, (int64_t)row, &got, i, 1);
        }
        rows_release(&got);
    }
    loader_close(l);
}

/* Microbatch j of reader r is number n = j * readers + r of the step, of the rows that are n modulo
 * 4 among the 12 of each four microbatches. */
TEST(rows_are_dealt_to_microbatches_that_do_not_depend_on_the_number_of_readers)
{
    enum { CANONICAL = 4, B = 3, ROWS = 6 * CANONICAL * B };
    struct rig r;
    rig_init(&r, "bytes", T);
    r.data.streams = 8;
    rig_add_kind(&r, test_folder(), 1);
    struct rows want = rows_of(&r, 1, ROWS);
    r.options.block = B;
    for (int readers = 1; readers <= CANONICAL; readers *= 2)
        for (int reader = 0; reader < readers; reader++) {
            r.options.num_readers = readers, r.options.reader = reader;
            r.options.deal = CANONICAL / readers;
            int batch = 2 * r.options.deal * B;
            struct rows got = rows_of(&r, batch, ROWS / readers);
            CHECK(got.count == ROWS / readers);
            check_delivered_rows(&r, &want, batch);
            for (int64_t k = 0; k < got.count; k++) {
                int64_t n = k / B * readers + reader;
                int64_t first = n / CANONICAL * CANONICAL * B + n % CANONICAL;
                rows_check_same(&want, first + k % B * CANONICAL, &got, k, 1);
            }
            rows_release(&got);
        }
    rows_release(&want);
    rig_release(&r);
}
