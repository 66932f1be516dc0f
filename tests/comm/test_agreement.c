// SPDX-License-Identifier: Apache-2.0
#include "comm/agreement.h"
#include "comm/ranks.h"
#include "test.h"

/* What a rank holds, and the expected message on rank 0; NULL: the ranks agree. */
struct agreement_case {
    const char *values[5]; /* "name=value name=value ..." of each rank; NULL: it abstains */
    const char *parts[4];  /* of the message */
};

static void add_all(struct agreement *a, const char *values)
{
    char *copy = heap_strdup(values), *save = NULL;
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *equals = strchr(word, '=');
        *equals = 0;
        agreement_add(a, word, "%s", equals + 1);
    }
    free(copy);
}

static enum status compare(const struct comm *c, void *context)
{
    const struct agreement_case *x = context;
    struct agreement a = {.subject = "the list", .advice = "use one list"};
    bool same;
    if (x->values[c->rank]) add_all(&a, x->values[c->rank]);
    TRY(agreement_test(&a, c, &same));
    RANK_CHECK(same == !x->parts[0]);
    enum status st = agreement_check(&a, c);
    agreement_release(&a);
    RANK_CHECK(st == (same ? STATUS_OK : STATUS_CONFIG));
    if (same) return STATUS_OK;
    RANK_CHECK(status_is_shared() && status_is_remote() == (c->rank > 0));
    for (int i = 0; c->rank == 0 && i < 4 && x->parts[i]; i++)
        if (!strstr(status_message(), x->parts[i]))
            FAIL(DATA, "\"%s\" is not in: %s", x->parts[i], status_message());
    return STATUS_OK;
}

static int num_ranks(const struct agreement_case *x)
{
    int n = 5;
    while (n > 0 && !x->values[n - 1]) n--;
    return n;
}

TEST(agreement_names_what_differs_with_its_values_and_ranks)
{
    static const struct agreement_case cases[] = {
        {{"a=1 b=2", "a=1 b=2"}, {NULL}},
        {{"a=1 b=2", "a=1 b=3"},
         {"the list differs between ranks: b is 2 on rank 0 (", ") and 3 on rank 1 (",
          "; use one list"}},
        {{"a=1 b=2 c=3", "a=1 c=3"}, {"b is 2 on rank 0 (", " and missing on rank 1 ("}},
        {{"a=1", "a=1 b=2"}, {"b is missing on rank 0 (", " and 2 on rank 1 ("}},
        {{"a=1", "a=2", "a=1", "a=1", "a=3"},
         {"a is 1 on ranks 0 2-3 (", ") and 2 on rank 1 (", ") and 3 on rank 4 ("}},
        {{"a=1 b=1 c=1 d=1 e=1", "a=2 b=2 c=2 d=2 e=2"}, {"; c is 1 on", "; also d, e; use"}},
        /* the same length and another order */
        {{"a=1 b=2", "b=2 a=1 c=4"}, {"c is missing on rank 0"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct agreement_case x = cases[i];
        CHECK_STATUS(OK, ranks_run(num_ranks(&x), compare, &x));
    }
}

TEST(agreement_ignores_ranks_that_abstain)
{
    struct agreement_case same = {{NULL, "a=1", NULL, "a=1"}, {NULL}};
    struct agreement_case other = {{NULL, "a=1", NULL, "a=2"},
                                   {"a is 1 on rank 1 (", " and 2 on rank 3 ("}};
    struct agreement_case none = {{NULL, NULL}, {NULL}};
    CHECK_STATUS(OK, ranks_run(4, compare, &same));
    CHECK_STATUS(OK, ranks_run(4, compare, &other));
    CHECK_STATUS(OK, ranks_run(2, compare, &none));
}

static enum status compare_long(const struct comm *c, void *context)
{
    struct agreement a = {.subject = "the list", .advice = "use one list"};
    (void)context;
    for (int i = 0; i < 20000; i++)
        agreement_add(&a, "name", "%0500d", c->rank == 1 && i == 19999 ? 7 : 0);
    agreement_add(&a, "end", "%d%0500d", c->rank, 0);
    enum status st = agreement_check(&a, c);
    agreement_release(&a);
    RANK_CHECK(st == STATUS_CONFIG);
    if (c->rank == 0) RANK_CHECK(strstr(status_message(), "end is 00000"));
    if (c->rank == 0) RANK_CHECK(strstr(status_message(), "000... on rank 0 ("));
    if (c->rank == 0) RANK_CHECK(strlen(status_message()) < 800);
    return STATUS_OK;
}

TEST(agreement_compares_long_lists_and_cuts_long_values_in_messages)
{
    CHECK_STATUS(OK, ranks_run(3, compare_long, NULL));
}

/* A collective that the transport accepts although the ranks differ: the bytes are the same. */
static enum status gather_as(const struct comm *c, enum dtype dtype)
{
    float x[4] = {0};
    struct transfer t = {TRANSFER_all_gather, dtype, 4 / dtype_bytes(dtype), .x = x};
    TRY(comm_run(c, &t));
    return STATUS_OK;
}

static enum status gather_differently(const struct comm *c, void *context)
{
    const bool *differs = context;
    double x = 1;
    c->counts->name = "shard";
    TRY(gather_as(c, F32));
    TRY(agreement_check_collectives(c));
    TRY(gather_as(c, *differs && c->rank == 2 ? BF16 : F32));
    TRY(comm_all_reduce(c, REDUCE_SUM, &x, 1));
    RANK_CHECK(c->counts->last.kind == TRANSFER_all_reduce && c->counts->last.count == sizeof x);
    enum status st = agreement_check_collectives(c);
    if (!*differs) return st;
    RANK_CHECK(st == STATUS_COMM && !status_is_shared() && !status_is_remote());
    RANK_CHECK(
        strstr(status_message(), "the sequence of collectives differs between ranks: shard"));
    RANK_CHECK(strstr(status_message(), "on ranks 0-1 ("));
    RANK_CHECK(strstr(status_message(), "on rank 2 ("));
    return STATUS_OK;
}

TEST(agreement_finds_ranks_that_started_other_collectives)
{
    CHECK_STATUS(OK, ranks_run(3, gather_differently, &(bool){false}));
    CHECK_STATUS(OK, ranks_run(3, gather_differently, &(bool){true}));
}
