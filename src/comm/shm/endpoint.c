// SPDX-License-Identifier: Apache-2.0
#include "comm/shm/endpoint.h"

#include "base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* The fields of struct packet that each kind uses:
 * SHORT   group, tag, total: the whole message
 * LONG    group, tag, total, own: the sender's record; other: the address of its bytes
 * READ    other: the sender's record; the receiver has read its bytes
 * ACCEPT  other: the sender's record; own: the receiver's, which cannot read the bytes itself
 * BYTES   other: the receiver's record */
enum packet_kind { PACKET_SHORT, PACKET_LONG, PACKET_READ, PACKET_ACCEPT, PACKET_BYTES };

enum { READ_BYTES = 1 << 20 }; /* of one message, before others get their turn */

/* A message that is pending here: sent, received, or arrived without a receive. */
struct pending {
    struct endpoint_message message;
    struct endpoint_batch *batch;
    char *x;          /* the caller's; of an arrived short message, `buffer` */
    size_t moved;     /* bytes */
    size_t total;     /* bytes that the sender has; known once it has arrived */
    uint64_t other;   /* the other rank's record */
    uint64_t address; /* received: of the bytes in the sender's memory */
    bool is_read;     /* received: complete; the sender must learn of it */
    bool is_short;    /* arrived */
    char *buffer;     /* SEGMENT_FRAGMENT_BYTES; NULL: not needed yet */
    struct pending *next;
};

struct list {
    struct pending *first, **end;
};

struct peer {
    struct list unsent;   /* whose first packet is not written, and receives to be accepted */
    struct list accepted; /* sends whose bytes follow */
    struct list reading;  /* receives whose bytes are read from the sender's memory */
    struct list posted;   /* receives without a message */
    struct list arrived;  /* messages without a receive */
};

struct endpoint {
    struct segment *segment;
    int rank, size;
    bool can_read;      /* the system lets ranks read each other's memory, as far as known */
    struct peer *peers; /* by rank */
    struct pending *spare;
};

static void append(struct list *l, struct pending *p)
{
    p->next = NULL;
    *l->end = p, l->end = &p->next;
}

static struct pending *remove_at(struct list *l, struct pending **at)
{
    struct pending *p = *at;
    *at = p->next;
    if (l->end == &p->next) l->end = at;
    return p;
}

static struct pending *acquire(struct endpoint *e, struct endpoint_message m)
{
    struct pending *p = e->spare;
    if (p)
        e->spare = p->next;
    else
        p = heap(sizeof *p);
    *p = (struct pending){.message = m, .buffer = p->buffer};
    return p;
}

static void recycle(struct endpoint *e, struct pending *p) { p->next = e->spare, e->spare = p; }

/* The batch's message is complete.  The job that waits for it may have had its step already. */
static void count_complete(struct endpoint *e, const struct pending *p)
{
    p->batch->num_pending--;
    p->batch->received += p->total;
    if (p->total != p->message.bytes) p->batch->is_mismatched = true;
    progress_ring(segment_bell(e->segment, e->rank));
}

static void complete(struct endpoint *e, struct pending *p)
{
    count_complete(e, p);
    recycle(e, p);
}

struct endpoint *endpoint_make(struct segment *segment, int rank)
{
    struct endpoint *e = heap(sizeof *e);
    *e = (struct endpoint){
        .segment = segment, .rank = rank, .size = segment_size(segment), .can_read = true};
    segment_set_process(segment, rank, getpid());
    e->peers = heap((size_t)e->size * sizeof *e->peers);
    for (int r = 0; r < e->size; r++) {
        struct peer *p = &e->peers[r];
        p->unsent.end = &p->unsent.first, p->accepted.end = &p->accepted.first;
        p->posted.end = &p->posted.first, p->arrived.end = &p->arrived.first;
        p->reading.end = &p->reading.first;
    }
    return e;
}

static void free_list(struct pending *p)
{
    for (struct pending *next; p; p = next) {
        next = p->next;
        free(p->buffer), free(p);
    }
}

void endpoint_free(struct endpoint *e)
{
    if (!e) return;
    for (int r = 0; r < e->size; r++) {
        free_list(e->peers[r].unsent.first), free_list(e->peers[r].accepted.first);
        free_list(e->peers[r].posted.first), free_list(e->peers[r].arrived.first);
        free_list(e->peers[r].reading.first);
    }
    free_list(e->spare);
    free(e->peers), free(e);
}

/* --- writing --- */

static bool write_packet(struct endpoint *e, int to, const struct packet *p, const void *payload)
{
    return segment_write(e->segment, e->rank, to, p, payload);
}

/* Writes the first packet of a send, or the answer of a receive.  False: no space. */
static bool announce(struct endpoint *e, int to, struct pending *p)
{
    const struct endpoint_message *m = &p->message;
    struct packet first = {.kind = PACKET_LONG, .tag = m->tag, .group = m->group};
    if (p->other) { /* a receive */
        first = (struct packet){.kind = p->is_read ? PACKET_READ : PACKET_ACCEPT,
                                .own = (uint64_t)(uintptr_t)p,
                                .other = p->other};
        return write_packet(e, to, &first, NULL);
    }
    first.total = m->bytes, first.own = (uint64_t)(uintptr_t)p;
    first.other = (uint64_t)(uintptr_t)p->x;
    if (m->bytes > SEGMENT_FRAGMENT_BYTES) return write_packet(e, to, &first, NULL);
    first.kind = PACKET_SHORT, first.bytes = (uint32_t)m->bytes;
    if (!write_packet(e, to, &first, p->x)) return false;
    p->moved = m->bytes;
    return true;
}

/* Writes the bytes that follow.  False: no space. */
static bool write_bytes(struct endpoint *e, int to, struct pending *p)
{
    while (p->moved < p->message.bytes) {
        size_t left = p->message.bytes - p->moved;
        size_t n = left < SEGMENT_FRAGMENT_BYTES ? left : SEGMENT_FRAGMENT_BYTES;
        struct packet bytes = {.kind = PACKET_BYTES, .bytes = (uint32_t)n, .other = p->other};
        if (!write_packet(e, to, &bytes, p->x + p->moved)) return false;
        p->moved += n;
    }
    return true;
}

static void write_all(struct endpoint *e, int to)
{
    struct peer *peer = &e->peers[to];
    bool has_written = false, has_space = true;
    while (peer->unsent.first && has_space) {
        struct pending *p = peer->unsent.first;
        bool is_send = !p->other;
        has_space = announce(e, to, p);
        if (!has_space) break;
        has_written = true;
        remove_at(&peer->unsent, &peer->unsent.first);
        if (is_send && p->moved == p->message.bytes)
            complete(e, p);
        else if (p->is_read)
            recycle(e, p);
        /* Other records are known to the peer, which names them in its packets. */
    }
    while (peer->accepted.first && has_space) {
        struct pending *p = peer->accepted.first;
        size_t before = p->moved;
        has_space = write_bytes(e, to, p);
        has_written = has_written || p->moved > before;
        if (has_space) complete(e, remove_at(&peer->accepted, &peer->accepted.first));
    }
    if (has_written) progress_ring(segment_bell(e->segment, to));
}

/* --- reading --- */

/* The first record of the list with this group and tag, or the list's end. */
static struct pending **find(struct list *l, uint64_t group, int64_t tag)
{
    struct pending **at = &l->first;
    while (*at && ((*at)->message.group != group || (*at)->message.tag != tag)) at = &(*at)->next;
    return at;
}

/* A long message has met its receive, which takes its bytes unless the lengths differ. */
static void accept(struct endpoint *e, int from, struct pending *receive)
{
    if (receive->total != receive->message.bytes)
        complete(e, receive);
    else
        append(e->can_read ? &e->peers[from].reading : &e->peers[from].unsent, receive);
}

/* Reads the next bytes of the oldest long message from its sender's memory; whether any remain of
 * this one or another.  Where that is impossible, has the sender copy it through the ring. */
static bool read_memory(struct endpoint *e, int from)
{
    struct peer *peer = &e->peers[from];
    struct pending *p = peer->reading.first;
    if (!p) return false;
    size_t n = p->total - p->moved;
    if (n > READ_BYTES) n = READ_BYTES;
    struct iovec own = {p->x + p->moved, n}, theirs = {(char *)(uintptr_t)p->address + p->moved, n};
    ssize_t got = syscall(SYS_process_vm_readv, segment_process(e->segment, from), &own, 1UL,
                          &theirs, 1UL, 0UL);
    if (got > 0) p->moved += (size_t)got;
    if (got > 0 && p->moved < p->total) return true;
    remove_at(&peer->reading, &peer->reading.first);
    if (got > 0) {
        p->is_read = true;
        count_complete(e, p);
    } else {
        if (errno != EFAULT) e->can_read = false; /* not permitted, or no such call */
        p->moved = 0;
    }
    append(&peer->unsent, p);
    return peer->reading.first != NULL;
}

static void read_first(struct endpoint *e, int from, const struct packet *packet)
{
    struct peer *peer = &e->peers[from];
    struct pending **at = find(&peer->posted, packet->group, packet->tag), *p = *at;
    bool is_short = packet->kind == PACKET_SHORT;
    if (p) {
        remove_at(&peer->posted, at);
        p->total = packet->total, p->other = is_short ? 0 : packet->own;
        p->address = packet->other;
        bool fits = p->total == p->message.bytes;
        segment_read(e->segment, from, e->rank, packet, is_short && fits ? p->x : NULL);
        if (is_short)
            complete(e, p);
        else
            accept(e, from, p);
        return;
    }
    p = acquire(e, (struct endpoint_message){from, packet->group, (int)packet->tag, packet->total});
    p->total = packet->total, p->other = packet->own, p->is_short = is_short;
    p->address = packet->other;
    if (is_short && !p->buffer) p->buffer = heap(SEGMENT_FRAGMENT_BYTES);
    segment_read(e->segment, from, e->rank, packet, p->buffer);
    append(&peer->arrived, p);
}

static void read_packet(struct endpoint *e, int from, const struct packet *packet)
{
    struct pending *p = (struct pending *)(uintptr_t)packet->other;
    switch ((enum packet_kind)packet->kind) {
    case PACKET_SHORT:
    case PACKET_LONG: read_first(e, from, packet); return;
    case PACKET_READ:
        segment_read(e->segment, from, e->rank, packet, NULL);
        complete(e, p);
        return;
    case PACKET_ACCEPT:
        segment_read(e->segment, from, e->rank, packet, NULL);
        p->other = packet->own;
        append(&e->peers[from].accepted, p);
        return;
    case PACKET_BYTES:
        segment_read(e->segment, from, e->rank, packet, p->x + p->moved);
        p->moved += packet->bytes;
        if (p->moved == p->total) complete(e, p);
        return;
    }
    BUG("unknown kind of packet");
}

/* --- the caller's functions --- */

void endpoint_send(struct endpoint *e, struct endpoint_message m, const void *x,
                   struct endpoint_batch *batch)
{
    struct pending *p = acquire(e, m);
    p->batch = batch, p->x = (char *)(uintptr_t)x, p->total = m.bytes;
    batch->num_pending++;
    append(&e->peers[m.peer].unsent, p);
    write_all(e, m.peer);
}

void endpoint_receive(struct endpoint *e, struct endpoint_message m, void *x,
                      struct endpoint_batch *batch)
{
    struct peer *peer = &e->peers[m.peer];
    struct pending **at = find(&peer->arrived, m.group, m.tag), *arrived = *at;
    struct pending *p = acquire(e, m);
    p->batch = batch, p->x = x;
    batch->num_pending++;
    if (!arrived) {
        append(&peer->posted, p);
        return;
    }
    remove_at(&peer->arrived, at);
    p->total = arrived->total, p->other = arrived->is_short ? 0 : arrived->other;
    p->address = arrived->address;
    if (arrived->is_short && p->total == m.bytes && m.bytes) memcpy(x, arrived->buffer, m.bytes);
    if (arrived->is_short)
        complete(e, p);
    else
        accept(e, m.peer, p);
    recycle(e, arrived);
    write_all(e, m.peer);
    if (peer->reading.first) progress_ring(segment_bell(e->segment, e->rank));
}

void endpoint_advance(struct endpoint *e)
{
    enum { MAX_PACKETS = 64 }; /* of one peer at a time */
    struct packet packet;
    for (int i = 1; i < e->size; i++) {
        int peer = (e->rank + i) % e->size, n = 0;
        for (; n < MAX_PACKETS && segment_peek(e->segment, peer, e->rank, &packet); n++)
            read_packet(e, peer, &packet);
        bool remains = read_memory(e, peer);
        write_all(e, peer);
        if (remains || n == MAX_PACKETS) progress_ring(segment_bell(e->segment, e->rank));
    }
}
