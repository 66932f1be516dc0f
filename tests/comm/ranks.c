// SPDX-License-Identifier: Apache-2.0
#include "comm/ranks.h"

#include "base/text.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

/* Messages are copies, so a send never blocks. */
struct letter {
    uint64_t group, number; /* of a collective, or the tag of a message */
    int from, to;
    bool is_p2p;
    size_t size;
    void *bytes;
    struct letter *next;
};

/* A thread that waits for a letter.  The sender wakes only this one: waking all of them would cost
 * as much as what they compute. */
struct receiver {
    struct letter expected;
    struct letter *found; /* NULL: a rank has failed */
    sem_t arrived;
    struct receiver *next;
};

struct post_office {
    pthread_mutex_t lock;
    struct letter *letters;     /* oldest first */
    struct receiver *receivers; /* no letter matches one of these */
    bool failed;                /* a rank has failed: nobody waits for it any longer */
};

struct group {
    struct post_office *post;
    uint64_t id, number; /* of the next collective */
    char *gathered;      /* of gather */
    struct comm_counts counts;
};

static bool matches(const struct letter *a, const struct letter *b)
{
    return a->group == b->group && a->number == b->number && a->from == b->from && a->to == b->to &&
           a->is_p2p == b->is_p2p;
}

static void send_letter(const struct comm *c, struct letter l, const void *bytes)
{
    struct group *g = c->group;
    struct letter *kept = heap(sizeof *kept), **end = &g->post->letters;
    struct receiver **at = &g->post->receivers, *to;
    *kept = l;
    kept->group = g->id, kept->from = c->rank, kept->next = NULL;
    kept->bytes = heap_grow(NULL, l.size + 1, 1);
    if (l.size) memcpy(kept->bytes, bytes, l.size);
    pthread_mutex_lock(&g->post->lock);
    while (*at && !matches(&(*at)->expected, kept)) at = &(*at)->next;
    to = *at;
    if (to) {
        *at = to->next, to->found = kept;
    } else {
        while (*end) end = &(*end)->next;
        *end = kept;
    }
    pthread_mutex_unlock(&g->post->lock);
    if (to) sem_post(&to->arrived);
}

/* Receives the letter that matches l, of l.size bytes, from l.from. */
static enum status receive_letter(const struct comm *c, struct letter l, void *bytes)
{
    struct group *g = c->group;
    struct receiver r = {.expected = l};
    struct letter **at = &g->post->letters;
    r.expected.group = g->id, r.expected.to = c->rank;
    sem_init(&r.arrived, 0, 0);
    pthread_mutex_lock(&g->post->lock);
    while (*at && !matches(*at, &r.expected)) at = &(*at)->next;
    r.found = *at;
    if (r.found) *at = r.found->next;
    bool waits = !r.found && !g->post->failed;
    if (waits) r.next = g->post->receivers, g->post->receivers = &r;
    pthread_mutex_unlock(&g->post->lock);
    while (waits && sem_wait(&r.arrived)) continue; /* a signal interrupted it */
    sem_destroy(&r.arrived);
    if (!r.found) FAIL(COMM, "a rank has failed");
    bool fits = r.found->size == l.size;
    if (fits && l.size) memcpy(bytes, r.found->bytes, l.size);
    free(r.found->bytes), free(r.found);
    if (!fits) FAIL(COMM, "rank %d did not send %zu bytes", l.from, l.size);
    return STATUS_OK;
}

static void *part(void *x, int rank, size_t bytes) { return (char *)x + (size_t)rank * bytes; }

/* Sends a part of x to another rank, in the chunks that it is summed in. */
static void send_chunks(const struct transfer *t, struct letter l, size_t begin, size_t count)
{
    size_t chunk = transfer_chunk(count, t->comm->size), each = transfer_element_bytes(t);
    for (size_t at = 0; at < count; at += chunk) {
        l.size = (count - at < chunk ? count - at : chunk) * each;
        send_letter(t->comm, l, (char *)t->x + (begin + at) * each);
    }
}

static enum status start(const struct comm *c, struct transfer *t)
{
    struct group *g = c->group;
    size_t each = transfer_element_bytes(t), bytes = t->count * each, begin;
    struct letter l = {.number = g->number, .size = bytes};
    if (t->kind == TRANSFER_send || t->kind == TRANSFER_receive) {
        l.number = (uint64_t)t->tag, l.is_p2p = true, l.to = t->peer;
        if (t->kind == TRANSFER_send) send_letter(c, l, t->x);
        return STATUS_OK;
    }
    t->in_flight = (void *)(uintptr_t)g->number++;
    for (l.to = 0; l.to < c->size; l.to++) {
        if (l.to == c->rank) continue;
        if (t->kind == TRANSFER_all_gather) send_letter(c, l, part(t->x, c->rank, bytes));
        if (t->kind == TRANSFER_reduce_scatter)
            send_chunks(t, l, (size_t)l.to * t->count, t->count);
        if (t->kind == TRANSFER_broadcast && c->rank == t->peer) send_letter(c, l, t->x);
        if (t->kind == TRANSFER_shift && l.to == (c->rank + 1) % c->size) send_letter(c, l, t->x);
        if (t->kind == TRANSFER_all_to_all) {
            l.size = t->sends[l.to] * each;
            send_letter(c, l, (const char *)t->x + transfer_part(t->sends, l.to) * each);
        }
        if (t->kind == TRANSFER_all_reduce) {
            size_t count = transfer_shard(t->count, c->size, l.to, &begin);
            send_chunks(t, l, begin, count);
        }
    }
    return STATUS_OK;
}

/* out = the sum over ranks of their `count` elements for this one; `mine` are its own. */
static enum status sum(struct transfer *t, struct letter l, char *mine, size_t count, char *out)
{
    const struct comm *c = t->comm;
    size_t chunk = transfer_chunk(count, c->size), each = transfer_element_bytes(t);
    const void **parts = heap((size_t)c->size * sizeof *parts);
    enum status st = STATUS_OK;
    for (size_t at = 0; at < count; at += chunk) {
        size_t n = count - at < chunk ? count - at : chunk;
        l.size = n * each;
        for (l.from = 0; l.from < c->size; l.from++) {
            bool own = l.from == c->rank;
            void *to = part(t->work, l.from, l.size);
            parts[l.from] = own ? mine + at * each : to;
            if (!own) TRY_OUT(receive_letter(c, l, to));
        }
        comm_sum(t->dtype, parts, c->size, n, out + at * each);
    }
out:
    free(parts);
    return st;
}

static enum status all_reduce(struct transfer *t, struct letter l)
{
    const struct comm *c = t->comm;
    size_t each = transfer_element_bytes(t), begin;
    size_t count = transfer_shard(t->count, c->size, c->rank, &begin);
    char *x = t->x, *mine = x + begin * each;
    TRY(sum(t, l, mine, count, mine));
    l.size = count * each;
    for (l.to = 0; l.to < c->size; l.to++)
        if (l.to != c->rank) send_letter(c, l, mine);
    for (l.from = 0; l.from < c->size; l.from++) {
        l.size = transfer_shard(t->count, c->size, l.from, &begin) * each;
        if (l.from != c->rank) TRY(receive_letter(c, l, x + begin * each));
    }
    return STATUS_OK;
}

static enum status all_to_all(const struct transfer *t, struct letter l)
{
    const struct comm *c = t->comm;
    size_t each = transfer_element_bytes(t);
    const char *x = (const char *)t->x + transfer_part(t->sends, c->rank) * each;
    for (l.from = 0; l.from < c->size; l.from++) {
        char *to = (char *)t->own + transfer_part(t->receives, l.from) * each;
        l.size = t->receives[l.from] * each;
        if (l.from != c->rank) TRY(receive_letter(c, l, to));
        if (l.from == c->rank && l.size) memcpy(to, x, l.size);
    }
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    const struct comm *c = t->comm;
    size_t bytes = t->count * transfer_element_bytes(t);
    struct letter l = {.number = (uint64_t)(uintptr_t)t->in_flight, .size = bytes};
    switch (t->kind) {
    case TRANSFER_receive:
        l.number = (uint64_t)t->tag, l.is_p2p = true, l.from = t->peer;
        return receive_letter(c, l, t->x);
    case TRANSFER_shift:
        if (c->size == 1) memcpy(t->own, t->x, bytes);
        l.from = (c->rank + c->size - 1) % c->size;
        return c->size == 1 ? STATUS_OK : receive_letter(c, l, t->own);
    case TRANSFER_broadcast:
        l.from = t->peer;
        return c->rank == t->peer ? STATUS_OK : receive_letter(c, l, t->x);
    case TRANSFER_reduce_scatter: return sum(t, l, part(t->x, c->rank, bytes), t->count, t->own);
    case TRANSFER_all_reduce: return all_reduce(t, l);
    case TRANSFER_all_gather:
        for (l.from = 0; l.from < c->size; l.from++)
            if (l.from != c->rank) TRY(receive_letter(c, l, part(t->x, l.from, bytes)));
        return STATUS_OK;
    case TRANSFER_all_to_all: return all_to_all(t, l);
    case TRANSFER_send:
    case TRANSFER_COUNT: break;
    }
    return STATUS_OK;
}

static enum status gather(const struct comm *c, const void *mine, size_t bytes, const void **all)
{
    struct group *g = c->group;
    struct letter l = {.number = g->number++, .size = bytes};
    g->gathered = heap_grow(g->gathered, (size_t)c->size * bytes + 1, 1);
    if (bytes) memcpy(part(g->gathered, c->rank, bytes), mine, bytes);
    for (l.to = 0; l.to < c->size; l.to++)
        if (l.to != c->rank) send_letter(c, l, mine);
    for (l.from = 0; l.from < c->size; l.from++)
        if (l.from != c->rank) TRY(receive_letter(c, l, part(g->gathered, l.from, bytes)));
    *all = g->gathered;
    return STATUS_OK;
}

static struct comm group_of(struct post_office *post, uint64_t id, int rank, int size);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct group *g = c->group;
    uint64_t id = (g->id * 1000003 + g->number) * 1000003 + (uint64_t)color + 1;
    const int mine[2] = {color, key};
    int rank = 0, size = 0;
    const void *all;
    TRY(gather(c, mine, sizeof mine, &all));
    for (int r = 0; r < c->size; r++) {
        const int *theirs = (const int *)all + 2 * r;
        if (theirs[0] != color) continue;
        size++;
        rank += theirs[1] < key || (theirs[1] == key && r < c->rank);
    }
    *out = group_of(g->post, id, rank, size);
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = c->group;
    free(g->gathered);
    free(g);
}

static struct comm group_of(struct post_office *post, uint64_t id, int rank, int size)
{
    static const struct transport threads = {.name = "threads",
                                             .split = split,
                                             .release = release,
                                             .start = start,
                                             .wait = wait,
                                             .gather = gather};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.post = post, .id = id};
    return (struct comm){rank, size, &threads, g, &g->counts};
}

struct rank {
    pthread_t thread;
    struct comm world;
    struct post_office *post;
    enum status (*body)(const struct comm *world, void *context);
    void *context;
    struct failure failure;
};

static void *run_rank(void *context)
{
    struct rank *r = context;
    if (status_save(&r->failure, r->body(&r->world, r->context)) == STATUS_OK) return NULL;
    pthread_mutex_lock(&r->post->lock);
    struct receiver *waiting = r->post->receivers;
    r->post->receivers = NULL, r->post->failed = true;
    pthread_mutex_unlock(&r->post->lock);
    for (struct receiver *next; waiting; waiting = next) {
        next = waiting->next;
        sem_post(&waiting->arrived);
    }
    return NULL;
}

enum status ranks_run(int size, enum status (*body)(const struct comm *world, void *context),
                      void *context)
{
    struct post_office post = {.letters = NULL};
    struct rank *ranks = heap((size_t)size * sizeof *ranks);
    struct failure first = {0};
    pthread_mutex_init(&post.lock, NULL);
    for (int r = 0; r < size; r++) {
        ranks[r] = (struct rank){
            .world = group_of(&post, 1, r, size), .post = &post, .body = body, .context = context};
        BUG_IF(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]));
    }
    for (int r = 0; r < size; r++) pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < size; r++) { /* COMM only follows from another failure */
        bool cause = ranks[r].failure.status && ranks[r].failure.status != STATUS_COMM;
        if (cause && !first.status) first = ranks[r].failure;
        comm_release(&ranks[r].world);
    }
    for (int r = 0; r < size && !first.status; r++) first = ranks[r].failure;
    for (struct letter *l = post.letters, *next; l; l = next) {
        next = l->next;
        free(l->bytes), free(l);
    }
    pthread_mutex_destroy(&post.lock);
    free(ranks);
    return status_restore(&first);
}
