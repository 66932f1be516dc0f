// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"
#include "test.h"

#include "base/text.h"

/* Element i of what rank r contributes: sums of few of them show in which order they were added. */
static float value(int r, size_t i) { return sinf((float)(r * 1009 + (int)i * 31 + 1)) * 3; }

static void *filled(enum dtype dtype, int r, size_t first, size_t n)
{
    float *x = heap((n + 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        if (dtype == F32)
            x[i] = value(r, first + i);
        else
            ((bf16 *)x)[i] = bf16_from_f32(value(r, first + i));
    return x;
}

static double get(enum dtype dtype, const void *x, size_t i)
{
    return dtype == F32 ? (double)((const float *)x)[i] : (double)bf16_to_f32(((const bf16 *)x)[i]);
}

struct sizes {
    enum dtype dtype;
    size_t count;
};

static enum status gathers(const struct comm *c, void *context)
{
    const struct sizes *s = context;
    size_t bytes = s->count * dtype_bytes(s->dtype);
    char *x = heap((size_t)c->size * bytes + 1);
    void *mine = filled(s->dtype, c->rank, 0, s->count);
    memcpy(x + (size_t)c->rank * bytes, mine, bytes);
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_gather, s->dtype, s->count, .x = x}));
    for (int r = 0; r < c->size; r++) {
        void *theirs = filled(s->dtype, r, 0, s->count);
        RANK_CHECK(!memcmp(x + (size_t)r * bytes, theirs, bytes));
        free(theirs);
    }
    free(mine), free(x);
    return STATUS_OK;
}

static enum status sums_parts(const struct comm *c, void *context)
{
    const struct sizes *s = context;
    size_t size = (size_t)c->size, first = (size_t)c->rank * s->count;
    void *x = filled(s->dtype, c->rank, 0, size * s->count);
    void *own = filled(s->dtype, 0, 0, s->count);
    struct transfer t = {TRANSFER_reduce_scatter, s->dtype, s->count, .x = x, .own = own};
    t.work = heap(transfer_work_bytes(t.kind, s->dtype, s->count, c->size) + 1);
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < s->count; i++) {
        double want = 0;
        for (int r = 0; r < c->size; r++) {
            void *theirs = filled(s->dtype, r, first + i, 1);
            want += get(s->dtype, theirs, 0);
            free(theirs);
        }
        RANK_CHECK(fabs(get(s->dtype, own, i) - want) < (s->dtype == F32 ? 1e-5 : 0.06));
    }
    free(t.work), free(own), free(x);
    return STATUS_OK;
}

static enum status sums_all(const struct comm *c, void *context)
{
    const struct sizes *s = context;
    void *x = filled(s->dtype, c->rank, 0, s->count);
    struct transfer t = {TRANSFER_all_reduce, s->dtype, s->count, .x = x};
    t.work = heap(transfer_work_bytes(t.kind, s->dtype, s->count, c->size) + 1);
    TRY(comm_run(c, &t));
    for (size_t i = 0; i < s->count; i++) {
        double want = 0;
        for (int r = 0; r < c->size; r++) {
            void *theirs = filled(s->dtype, r, i, 1);
            want += get(s->dtype, theirs, 0);
            free(theirs);
        }
        RANK_CHECK(fabs(get(s->dtype, x, i) - want) < (s->dtype == F32 ? 1e-5 : 0.06));
    }
    free(t.work), free(x);
    return STATUS_OK;
}

static enum status broadcasts(const struct comm *c, void *context)
{
    const struct sizes *s = context;
    for (int root = 0; root < c->size; root++) {
        void *x = filled(s->dtype, c->rank, 0, s->count),
             *want = filled(s->dtype, root, 0, s->count);
        TRY(comm_run(
            c, &(struct transfer){TRANSFER_broadcast, s->dtype, s->count, .x = x, .peer = root}));
        RANK_CHECK(!memcmp(x, want, s->count * dtype_bytes(s->dtype)));
        free(x), free(want);
    }
    return STATUS_OK;
}

/* Everybody to the next, with another message overtaking it by its tag. */
static enum status passes_on(const struct comm *c, void *context)
{
    const struct sizes *s = context;
    if (c->size == 1) return STATUS_OK;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    void *x = filled(s->dtype, c->rank, 0, s->count), *want = filled(s->dtype, before, 0, s->count);
    void *got = heap(s->count * sizeof(float) + 1);
    float told = (float)c->rank, heard = -1;
    struct transfer out = {TRANSFER_send, s->dtype, s->count, .x = x, .peer = next, .tag = 1};
    struct transfer also = {TRANSFER_send, F32, 1, .x = &told, .peer = next, .tag = 2};
    TRY(comm_start(c, &out));
    TRY(comm_start(c, &also));
    TRY(comm_run(
        c, &(struct transfer){TRANSFER_receive, F32, 1, .x = &heard, .peer = before, .tag = 2}));
    TRY(comm_run(c, &(struct transfer){TRANSFER_receive, s->dtype, s->count, .x = got,
                                       .peer = before, .tag = 1}));
    TRY(comm_wait(&also));
    TRY(comm_wait(&out));
    RANK_CHECK(heard == (float)before);
    RANK_CHECK(!memcmp(got, want, s->count * dtype_bytes(s->dtype)));
    free(x), free(want), free(got);
    return STATUS_OK;
}

static void on_every_number_of_ranks(enum status (*body)(const struct comm *c, void *context))
{
    for (int size = 1; size <= 5; size++)
        for (enum dtype dtype = 0; dtype < DTYPE_COUNT; dtype++)
            for (size_t count = 0; count <= 1200; count = count * 3 + 1) {
                struct sizes s = {dtype, count};
                if (size > 1) CHECK_STATUS(OK, ranks_run(size, body, &s));
            }
}

TEST(comm_gathers_every_ranks_part) { on_every_number_of_ranks(gathers); }
TEST(comm_sums_each_ranks_part) { on_every_number_of_ranks(sums_parts); }
TEST(comm_sums_over_all_ranks) { on_every_number_of_ranks(sums_all); }
TEST(comm_broadcasts_from_any_root) { on_every_number_of_ranks(broadcasts); }
TEST(comm_sends_and_receives_by_tag) { on_every_number_of_ranks(passes_on); }

/* Two pairs, and then the pairs' sums, against all four at once. */
static enum status sums_in_two_ways(const struct comm *c, void *context)
{
    enum { N = 999 };
    struct comm pair, across;
    float *flat = filled(F32, c->rank, 0, N), *nested = filled(F32, c->rank, 0, N), work[4 * N];
    (void)context;
    TRY(comm_split(c, c->rank / 2, c->rank, &pair));
    TRY(comm_split(c, c->rank % 2, c->rank, &across));
    RANK_CHECK(pair.size == 2 && pair.rank == c->rank % 2);
    RANK_CHECK(across.size == 2 && across.rank == c->rank / 2);
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_reduce, F32, N, .x = flat, .work = work}));
    TRY(comm_run(&pair,
                 &(struct transfer){TRANSFER_all_reduce, F32, N, .x = nested, .work = work}));
    TRY(comm_run(&across,
                 &(struct transfer){TRANSFER_all_reduce, F32, N, .x = nested, .work = work}));
    RANK_CHECK(!memcmp(flat, nested, N * sizeof *flat));
    comm_release(&pair), comm_release(&across);
    free(flat), free(nested);
    return STATUS_OK;
}

TEST(comm_sums_have_the_same_bits_however_neighbours_are_grouped)
{
    CHECK_STATUS(OK, ranks_run(4, sums_in_two_ways, NULL));
}

static enum status counts(const struct comm *c, void *context)
{
    float x[40] = {0}, work[40];
    (void)context;
    TRY(comm_run(c, &(struct transfer){TRANSFER_all_gather, F32, 10, .x = x}));
    TRY(comm_run(
        c, &(struct transfer){TRANSFER_reduce_scatter, BF16, 10, .x = x, .own = x, .work = work}));
    RANK_CHECK(c->counts->calls[TRANSFER_all_gather] == 1);
    RANK_CHECK(c->counts->bytes[TRANSFER_all_gather] == 3 * 10 * 4);
    RANK_CHECK(c->counts->bytes[TRANSFER_reduce_scatter] == 3 * 10 * 2);
    return STATUS_OK;
}

TEST(comm_counts_the_bytes_each_rank_receives) { CHECK_STATUS(OK, ranks_run(4, counts, NULL)); }

static enum status reduces(const struct comm *c, void *context)
{
    double values[2] = {c->rank, 10}, most = c->rank == 1 ? 9 : 4;
    (void)context;
    TRY(comm_all_reduce(c, REDUCE_SUM, values, 2));
    RANK_CHECK(values[0] == 3 && values[1] == 30);
    TRY(comm_all_reduce(c, REDUCE_MAX, &most, 1));
    RANK_CHECK(most == 9);
    return STATUS_OK;
}

TEST(comm_sums_and_takes_the_maximum_over_ranks) { CHECK_STATUS(OK, ranks_run(3, reduces, NULL)); }

static enum status hides_no_nan(const struct comm *c, void *context)
{
    for (int bad = 0; bad < c->size; bad++) {
        double most = c->rank == bad ? (double)NAN : 4;
        (void)context;
        TRY(comm_all_reduce(c, REDUCE_MAX, &most, 1));
        RANK_CHECK(isnan(most));
    }
    return STATUS_OK;
}

TEST(comm_maximum_does_not_hide_a_nan) { CHECK_STATUS(OK, ranks_run(3, hides_no_nan, NULL)); }

/* Ranks 2 and 3 fail; what each rank is told. */
static enum status agrees(const struct comm *c, void *context)
{
    TRY(comm_agree(c, STATUS_OK));
    for (int kind = 1; kind < STATUS_COUNT; kind++) {
        enum status mine = STATUS_OK, told;
        if (c->rank == 2) mine = status_fail((enum status)kind, "x.c", 1, "the seventh row is bad");
        if (c->rank == 3) mine = status_fail(STATUS_DEVICE, "x.c", 1, "this one too");
        told = comm_agree(c, mine);
        const char *want = "rank 2 failed: ";
        if (c->rank == 2) want = "the seventh row is bad";
        if (c->rank == 3) want = "this one too";
        RANK_CHECK(told == (c->rank == 3 ? STATUS_DEVICE : (enum status)kind));
        RANK_CHECK(strstr(status_message(), want) != NULL);
    }
    (void)context;
    return STATUS_OK;
}

TEST(comm_tells_every_rank_which_rank_failed_first_and_how)
{
    CHECK_STATUS(OK, ranks_run(4, agrees, NULL));
}

static enum status misses_a_rank(const struct comm *c, void *context)
{
    (void)context;
    if (c->rank == 1) FAIL(IO, "the disk is gone");
    TRY(comm_agree(c, STATUS_OK));
    return STATUS_OK;
}

TEST(comm_agree_reports_a_rank_that_is_gone)
{
    CHECK_STATUS(IO, ranks_run(2, misses_a_rank, NULL));
    CHECK_MESSAGE("the disk is gone");
}
