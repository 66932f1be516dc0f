// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "comm/shm/endpoint.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

struct pair {
    int fd;
    struct segment *segment;
    struct endpoint *ends[2];
};

static struct pair pair_make(void)
{
    struct pair p;
    CHECK_STATUS(OK, segment_make(2, &p.fd));
    CHECK_STATUS(OK, segment_map(p.fd, 2, &p.segment));
    for (int r = 0; r < 2; r++) p.ends[r] = endpoint_make(p.segment, r);
    return p;
}

/* The same where the system does not let ranks read each other's memory. */
static struct pair pair_make_unreadable(void)
{
    struct pair p = pair_make();
    for (int r = 0; r < 2; r++) segment_set_process(p.segment, r, 0);
    return p;
}

static void pair_free(struct pair *p)
{
    for (int r = 0; r < 2; r++) endpoint_free(p->ends[r]);
    segment_unmap(p->segment);
    close(p->fd);
}

/* Advances both ends until nothing of the batches is pending; false: not within many rounds. */
static bool completes(const struct pair *p, const struct endpoint_batch *a,
                      const struct endpoint_batch *b)
{
    int rounds = 0;
    while ((a->num_pending || b->num_pending) && rounds++ < 10000)
        endpoint_advance(p->ends[0]), endpoint_advance(p->ends[1]);
    return rounds < 10000;
}

static char *filled(size_t bytes, unsigned seed)
{
    char *x = heap(bytes + 1);
    for (size_t i = 0; i < bytes; i++) x[i] = (char)(i * 31 + i / 251 + seed);
    return x;
}

static struct endpoint_message message(int peer, int tag, size_t bytes)
{
    return (struct endpoint_message){.peer = peer, .group = 9, .tag = tag, .bytes = bytes};
}

/* Around the length of one packet and of a whole ring; the receive comes before or after. */
static void move_messages(struct pair p)
{
    static const size_t lengths[] = {0, 1, 4095, 16383, 16384, 16385, 100000, 1 << 20, 3000001};
    for (size_t i = 0; i < 2 * sizeof lengths / sizeof *lengths; i++) {
        size_t bytes = lengths[i / 2];
        struct endpoint_batch sent = {0}, received = {0};
        char *x = filled(bytes, (unsigned)i), *y = filled(bytes, 200);
        if (i & 1) endpoint_receive(p.ends[1], message(0, 3, bytes), y, &received);
        endpoint_send(p.ends[0], message(1, 3, bytes), x, &sent);
        endpoint_advance(p.ends[1]);
        if (!(i & 1)) endpoint_receive(p.ends[1], message(0, 3, bytes), y, &received);
        CHECK(completes(&p, &sent, &received));
        CHECK(!memcmp(x, y, bytes) && received.received == bytes && !received.is_mismatched);
        free(x), free(y);
    }
    pair_free(&p);
}

TEST(endpoint_moves_messages_of_every_length) { move_messages(pair_make()); }
TEST(endpoint_moves_messages_through_the_ring) { move_messages(pair_make_unreadable()); }

/* Long messages that nobody receives, and then a short one that somebody does. */
static void leave_messages(struct pair p)
{
    enum { MESSAGES = 300, BYTES = 1 << 17 };
    struct endpoint_batch sent = {0}, received = {0}, none = {0};
    char *x = filled(BYTES, 1), y = 0, *z = filled(BYTES, 7);
    for (int i = 0; i < MESSAGES; i++)
        endpoint_send(p.ends[0], message(1, i, i % 2 ? BYTES : 16384), x, &sent);
    endpoint_send(p.ends[0], message(1, MESSAGES, 1), x, &sent);
    endpoint_receive(p.ends[1], message(0, MESSAGES, 1), &y, &received);
    CHECK(completes(&p, &received, &none) && y == x[0] && sent.num_pending);
    for (int i = MESSAGES; i-- > 0;) {
        size_t bytes = i % 2 ? BYTES : 16384;
        memset(z, 0, BYTES);
        endpoint_receive(p.ends[1], message(0, i, bytes), z, &received);
        CHECK(completes(&p, &received, &none) && !memcmp(x, z, bytes));
    }
    CHECK(completes(&p, &sent, &received));
    free(x), free(z);
    pair_free(&p);
}

TEST(endpoint_is_not_blocked_by_messages_without_a_receive)
{
    leave_messages(pair_make());
    leave_messages(pair_make_unreadable());
}

TEST(endpoint_keeps_the_order_of_equal_tags)
{
    struct pair p = pair_make();
    struct endpoint_batch sent = {0}, received = {0};
    char *x = filled(100000, 1), *y = filled(100000, 2), a[16], *b = heap(100000), c[16];
    endpoint_send(p.ends[0], message(1, 5, 16), x, &sent);
    endpoint_send(p.ends[0], message(1, 5, 100000), y, &sent);
    endpoint_send(p.ends[0], message(1, 5, 16), x + 64, &sent);
    endpoint_receive(p.ends[1], message(0, 5, 16), a, &received);
    endpoint_receive(p.ends[1], message(0, 5, 100000), b, &received);
    endpoint_receive(p.ends[1], message(0, 5, 16), c, &received);
    CHECK(completes(&p, &sent, &received) && !received.is_mismatched);
    CHECK(!memcmp(a, x, 16) && !memcmp(b, y, 100000) && !memcmp(c, x + 64, 16));
    free(x), free(y), free(b);
    pair_free(&p);
}

TEST(endpoint_separates_groups_and_tags)
{
    struct pair p = pair_make();
    struct endpoint_batch sent = {0}, received = {0};
    char x[3] = {1, 2, 3}, y[3] = {0};
    struct endpoint_message m[3] = {{1, 1, 4, 1}, {1, 2, 4, 1}, {1, 1, 5, 1}};
    for (int i = 0; i < 3; i++) endpoint_send(p.ends[0], m[i], &x[i], &sent);
    for (int i = 3; i-- > 0;) {
        m[i].peer = 0;
        endpoint_receive(p.ends[1], m[i], &y[i], &received);
    }
    CHECK(completes(&p, &sent, &received) && !memcmp(x, y, 3));
    pair_free(&p);
}

TEST(endpoint_reports_a_message_of_another_length)
{
    struct pair p = pair_make();
    struct endpoint_batch sent = {0}, received = {0}, none = {0};
    char x[32] = {0}, y[32] = {1};
    endpoint_send(p.ends[0], message(1, 4, 8), x, &sent);
    endpoint_receive(p.ends[1], message(0, 4, 32), y, &received);
    CHECK(completes(&p, &received, &none));
    CHECK(received.is_mismatched && received.received == 8 && y[0] == 1);
    pair_free(&p);
}

/* Both ends in threads of their own, which exchange messages of many lengths. */
enum { EXCHANGES = 300, LONGEST = 70000 };

struct side {
    struct endpoint *end;
    int rank, num_wrong;
};

static void *exchange(void *context)
{
    struct side *s = context;
    char *x = filled(LONGEST, (unsigned)s->rank), *y = heap(LONGEST), *want;
    want = filled(LONGEST, 1 - (unsigned)s->rank);
    for (int i = 0; i < EXCHANGES; i++) {
        size_t bytes = (size_t)(i * 7919 % LONGEST);
        struct endpoint_batch batch = {0};
        endpoint_send(s->end, message(1 - s->rank, i, bytes), x, &batch);
        endpoint_receive(s->end, message(1 - s->rank, i, bytes), y, &batch);
        while (batch.num_pending) endpoint_advance(s->end), sched_yield();
        s->num_wrong += memcmp(y, want, bytes) != 0;
    }
    free(x), free(y), free(want);
    return NULL;
}

static void exchange_in_threads(struct pair p)
{
    struct side sides[2];
    pthread_t threads[2];
    for (int r = 0; r < 2; r++) {
        sides[r] = (struct side){.end = p.ends[r], .rank = r};
        CHECK(!pthread_create(&threads[r], NULL, exchange, &sides[r]));
    }
    for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
    CHECK(!sides[0].num_wrong && !sides[1].num_wrong);
    pair_free(&p);
}

TEST(endpoint_works_between_threads)
{
    exchange_in_threads(pair_make());
    exchange_in_threads(pair_make_unreadable());
}

TEST(endpoint_reads_long_messages_from_the_senders_memory)
{
    enum { BYTES = 1 << 22 };
    struct pair p = pair_make();
    struct endpoint_batch sent = {0}, received = {0};
    char *x = filled(BYTES, 1), *y = filled(BYTES, 2);
    endpoint_send(p.ends[0], message(1, 5, BYTES), x, &sent);
    endpoint_receive(p.ends[1], message(0, 5, BYTES), y, &received);
    while (received.num_pending) endpoint_advance(p.ends[1]); /* the sender does nothing */
    CHECK(!memcmp(x, y, BYTES) && sent.num_pending == 1);
    endpoint_advance(p.ends[0]);
    CHECK(!sent.num_pending);
    free(x), free(y);
    pair_free(&p);
}

/* A receive that follows its message rings the bell of its own thread, which reads the bytes. */
TEST(endpoint_rings_its_own_bell_to_read_a_message_that_has_arrived)
{
    enum { BYTES = 1 << 17 };
    struct pair p = pair_make();
    struct endpoint_batch sent = {0}, received = {0};
    char *x = filled(BYTES, 1), *y = filled(BYTES, 2);
    endpoint_send(p.ends[0], message(1, 5, BYTES), x, &sent);
    endpoint_advance(p.ends[1]);
    uint32_t rings = segment_bell(p.segment, 1)->rings;
    endpoint_receive(p.ends[1], message(0, 5, BYTES), y, &received);
    CHECK(segment_bell(p.segment, 1)->rings != rings);
    CHECK(completes(&p, &sent, &received) && !memcmp(x, y, BYTES));
    free(x), free(y);
    pair_free(&p);
}
