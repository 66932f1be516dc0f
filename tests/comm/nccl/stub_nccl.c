// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"
#include "base/text.h"
#include "comm/comm.h"
#include "comm/nccl/stub.h"
#include "tensor/strict_device.h"

#include <nccl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What ranks bring to their nth collective; freed by the last that leaves. */
struct meeting {
    uint64_t number;
    int kind, arrived, left;
    size_t count;
    void **brought; /* by rank; owned */
    struct meeting *next;
};

struct letter {
    int from, to;
    size_t size;
    bool is_taken;
    void *bytes;
    struct letter *next;
};

/* What the ranks of a communicator have in common. */
struct shared {
    uint64_t id;
    int size, joined, connected, users;
    struct meeting *meetings;
    struct letter *letters; /* oldest first */
    struct shared *next;
};

struct ncclComm {
    struct shared *s;
    int rank, pending; /* tasks that lanes have */
    uint64_t number;   /* of the next collective */
    bool is_connected, is_aborted;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct shared *all_shared;
static uint64_t last_id;
static struct stub_counts counts;
static int broken_rank = -1;
static const char *broken = "";

static void begin(void) { pthread_mutex_lock(&lock); }

static void end(void)
{
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void await(void) { pthread_cond_wait(&changed, &lock); }

struct stub_counts stub_counts(void)
{
    begin();
    struct stub_counts now = counts;
    end();
    return now;
}

void stub_count_lane(int by)
{
    begin();
    counts.lanes += by;
    end();
}

void stub_count_mark(int by)
{
    begin();
    counts.marks += by;
    end();
}

void stub_break(int rank, const char *error)
{
    begin();
    broken_rank = error ? rank : -1, broken = error ? error : "";
    end();
}

/* --- collectives, on a lane's thread ------------------------------------------------------- */

enum { GATHER, SCATTER, REDUCE, BROADCAST, SEND, RECEIVE, SPLIT };

struct op {
    int kind, peer;
    const void *from;
    void *to;
    size_t count;
    ncclDataType_t type;
    uint64_t number;
    struct op *next;
};

static size_t type_bytes(ncclDataType_t type)
{
    return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 2;
}

/* Of one communicator, on one stream, that were issued at once. */
struct task {
    ncclComm_t comm;
    void *stream;
    struct op *ops; /* owned */
    struct task *next;
};

static void *copy_of(const void *from, size_t bytes)
{
    void *x = heap(bytes + 1);
    strict_reach(from, 1);
    memcpy(x, from, bytes);
    strict_reach(from, -1);
    return x;
}

static void store(void *to, const void *from, size_t bytes)
{
    strict_reach(to, 1);
    memcpy(to, from, bytes);
    strict_reach(to, -1);
}

/* The meeting with everybody there; NULL: this rank was called off. */
static struct meeting *meet(ncclComm_t c, const struct op *op, void *brings)
{
    struct meeting **at = &c->s->meetings, *m;
    while (*at && (*at)->number != op->number) at = &(*at)->next;
    if (!*at) {
        m = *at = heap(sizeof *m);
        *m = (struct meeting){.number = op->number, .kind = op->kind, .count = op->count};
        m->brought = heap((size_t)c->s->size * sizeof *m->brought);
    }
    m = *at;
    BUG_IF(m->kind != op->kind || m->count != op->count); /* the real one would hang, or worse */
    m->brought[c->rank] = brings, m->arrived++;
    pthread_cond_broadcast(&changed);
    while (m->arrived < c->s->size && !c->is_aborted) await();
    return m->arrived < c->s->size ? NULL : m;
}

static void free_meeting(const struct shared *s, struct meeting *m)
{
    for (int r = 0; r < s->size; r++) free(m->brought[r]);
    free(m->brought), free(m);
}

static void leave(ncclComm_t c, struct meeting *m)
{
    struct meeting **at = &c->s->meetings;
    if (++m->left < c->s->size) return;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    free_meeting(c->s, m);
}

/* In the order of comm.h, which the real one does not promise: so trainings can be compared. */
static void sum(const struct meeting *m, int size, ncclDataType_t type, size_t first, size_t n,
                void *to)
{
    enum dtype dtype = type == ncclFloat32 ? F32 : BF16;
    const void **parts = heap((size_t)size * sizeof *parts);
    for (int r = 0; r < size; r++)
        parts[r] = (const char *)m->brought[r] + first * dtype_bytes(dtype);
    strict_reach(to, 1);
    comm_sum(dtype, parts, size, n, to);
    strict_reach(to, -1);
    free(parts);
}

static void collect(ncclComm_t c, const struct op *op)
{
    size_t size = (size_t)c->s->size, bytes = op->count * type_bytes(op->type);
    bool gives = op->kind != BROADCAST || op->peer == c->rank;
    void *brings = gives ? copy_of(op->from, bytes * (op->kind == SCATTER ? size : 1)) : NULL;
    begin();
    struct meeting *m = meet(c, op, brings);
    pthread_mutex_unlock(&lock);
    if (!m) return;
    for (size_t r = 0; r < size && op->kind == GATHER; r++)
        store((char *)op->to + r * bytes, m->brought[r], bytes);
    if (op->kind == REDUCE) sum(m, c->s->size, op->type, 0, op->count, op->to);
    if (op->kind == SCATTER)
        sum(m, c->s->size, op->type, (size_t)c->rank * op->count, op->count, op->to);
    if (op->kind == BROADCAST) store(op->to, m->brought[op->peer], bytes);
    begin();
    leave(c, m);
    end();
}

static struct letter *post(ncclComm_t c, const struct op *op)
{
    struct letter *l = heap(sizeof *l), **at = &c->s->letters;
    *l = (struct letter){.from = c->rank, .to = op->peer};
    l->size = op->count * type_bytes(op->type);
    l->bytes = copy_of(op->from, l->size);
    begin();
    while (*at) at = &(*at)->next;
    *at = l;
    end();
    return l;
}

static void receive(ncclComm_t c, const struct op *op)
{
    struct letter *l;
    begin();
    do {
        for (l = c->s->letters; l; l = l->next)
            if (l->from == op->peer && l->to == c->rank && !l->is_taken) break;
        if (!l && !c->is_aborted) await();
    } while (!l && !c->is_aborted);
    if (l) {
        BUG_IF(l->size != op->count * type_bytes(op->type));
        store(op->to, l->bytes, l->size);
        l->is_taken = true, counts.messages++;
    }
    end();
}

/* A letter is its sender's again when it has been taken. */
static void await_taken(ncclComm_t c, struct letter *l)
{
    begin();
    while (!l->is_taken && !c->is_aborted) await();
    struct letter **at = &c->s->letters;
    while (*at != l) at = &(*at)->next;
    *at = l->next;
    end();
    free(l->bytes), free(l);
}

static void run_task(void *what)
{
    enum { MOST = 64 };
    struct task *t = what;
    ncclComm_t c = t->comm;
    struct letter *sent[MOST];
    int num_sent = 0;
    for (struct op *op = t->ops; op; op = op->next) {
        BUG_IF(num_sent == MOST);
        if (op->kind == SEND) sent[num_sent++] = post(c, op);
    }
    for (struct op *op = t->ops, *next; op; op = next) {
        next = op->next;
        if (op->kind == RECEIVE) receive(c, op);
        if (op->kind != SEND && op->kind != RECEIVE) collect(c, op);
        free(op);
    }
    for (int i = 0; i < num_sent; i++) await_taken(c, sent[i]);
    free(t);
    begin();
    c->pending--;
    end();
}

/* --- calls --------------------------------------------------------------------------------- */

struct joining {
    ncclComm_t *out;
    uint64_t id;
    int rank, size;
    struct joining *next;
};

/* What the calling thread has put off till ncclGroupEnd. */
static __thread struct {
    int depth;
    struct task *tasks;
    struct joining *joinings;
} group;

static struct shared *find_shared(uint64_t id, int size)
{
    struct shared *s = all_shared;
    while (s && s->id != id) s = s->next;
    if (!s) {
        s = heap(sizeof *s);
        *s = (struct shared){.id = id, .size = size, .next = all_shared};
        all_shared = s;
    }
    BUG_IF(s->size != size);
    return s;
}

static ncclComm_t join(uint64_t id, int rank, int size)
{
    ncclComm_t c = heap(sizeof *c);
    *c = (struct ncclComm){.s = find_shared(id, size), .rank = rank};
    c->s->joined++, c->s->users++, counts.comms++;
    return c;
}

static void join_all(void)
{
    begin();
    for (struct joining *j = group.joinings; j; j = j->next)
        *j->out = join(j->id, j->rank, j->size);
    pthread_cond_broadcast(&changed);
    for (struct joining *j = group.joinings, *next; j; j = next) {
        next = j->next;
        while ((*j->out)->s->joined < j->size) await();
        free(j);
    }
    group.joinings = NULL;
    end();
}

static bool connect_all(void)
{
    bool fine = true;
    begin();
    for (struct task *t = group.tasks; t; t = t->next) {
        t->comm->pending++;
        if (!t->comm->is_connected) t->comm->is_connected = true, t->comm->s->connected++;
    }
    pthread_cond_broadcast(&changed);
    for (struct task *t = group.tasks; t; t = t->next) {
        while (t->comm->s->connected < t->comm->s->size && !t->comm->is_aborted) await();
        fine = fine && !t->comm->is_aborted;
    }
    end();
    return fine;
}

static ncclResult_t flush(void)
{
    if (group.depth) return ncclSuccess;
    join_all();
    bool fine = connect_all();
    for (struct task *t = group.tasks, *next; t; t = next) {
        next = t->next;
        stub_push(t->stream, run_task, t);
    }
    group.tasks = NULL;
    return fine ? ncclSuccess : ncclRemoteError;
}

static ncclResult_t issue(ncclComm_t comm, void *stream, struct op op)
{
    struct task **at = &group.tasks;
    struct op *kept = heap(sizeof *kept);
    *kept = op;
    if (op.kind != SEND && op.kind != RECEIVE) kept->number = comm->number++;
    while (*at && ((*at)->comm != comm || (*at)->stream != stream)) at = &(*at)->next;
    if (!*at) {
        *at = heap(sizeof **at);
        **at = (struct task){.comm = comm, .stream = stream};
    }
    struct op **end_of = &(*at)->ops;
    while (*end_of) end_of = &(*end_of)->next;
    *end_of = kept;
    return flush();
}

ncclResult_t ncclGroupStart(void)
{
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    group.depth--;
    return flush();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0xA5, sizeof *id); /* every byte counts */
    begin();
    uint64_t made = ++last_id;
    end();
    memcpy(id->internal + 7, &made, sizeof made);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct joining *j = heap(sizeof *j);
    if (config->maxCTAs != INT_MIN && config->maxCTAs < 1) return free(j), ncclInvalidArgument;
    *j = (struct joining){.out = comm, .rank = rank, .size = size, .next = group.joinings};
    memcpy(&j->id, id.internal + 7, sizeof j->id);
    group.joinings = j;
    return flush();
}

struct place {
    int color, key;
};

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out,
                           ncclConfig_t *config)
{
    struct op op = {.kind = SPLIT, .number = comm->number++};
    struct place *mine = heap(sizeof *mine);
    int rank = 0, size = 0;
    *mine = (struct place){color, key};
    BUG_IF(config->splitShare != 0);
    begin();
    struct meeting *m = meet(comm, &op, mine);
    for (int r = 0; m && r < comm->s->size; r++) {
        const struct place *p = m->brought[r];
        if (p->color != color) continue;
        size++;
        rank += p->key < key || (p->key == key && r < comm->rank);
    }
    *out = NULL;
    if (m && color != NCCL_SPLIT_NOCOLOR)
        *out = join((comm->s->id * 1000003 + op.number) * 1000003 + (uint64_t)color + 1000000, rank,
                    size);
    if (m) leave(comm, m);
    end();
    return m ? ncclSuccess : ncclRemoteError;
}

/* With the lock held. */
static void drop(ncclComm_t c)
{
    struct shared *s = c->s, **at = &all_shared;
    counts.comms--;
    free(c);
    if (--s->users || s->joined < s->size) return;
    for (struct meeting *m = s->meetings, *next; m; m = next) {
        next = m->next;
        free_meeting(s, m);
    }
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    begin();
    while (comm->pending) await(); /* as the real one */
    drop(comm);
    end();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    begin();
    comm->is_aborted = true, counts.aborted++;
    pthread_cond_broadcast(&changed);
    while (comm->pending) await();
    drop(comm);
    end();
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    begin();
    *error = comm->rank == broken_rank ? ncclRemoteError : ncclSuccess;
    end();
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "an error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    begin();
    const char *text = comm->rank == broken_rank ? broken : "";
    end();
    return text;
}

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *at, size_t bytes, void **handle)
{
    BUG_IF(!comm || !bytes);
    begin();
    counts.registered++;
    end();
    *handle = at;
    return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
    BUG_IF(!comm || !handle);
    begin();
    counts.registered--;
    end();
    return ncclSuccess;
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream, (struct op){GATHER, 0, from, to, count, type, 0, NULL});
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream)
{
    BUG_IF(how != ncclSum);
    return issue(comm, stream, (struct op){SCATTER, 0, from, to, count, type, 0, NULL});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t how, ncclComm_t comm, cudaStream_t stream)
{
    BUG_IF(how != ncclSum);
    return issue(comm, stream, (struct op){REDUCE, 0, from, to, count, type, 0, NULL});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream, (struct op){BROADCAST, root, from, to, count, type, 0, NULL});
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return issue(comm, stream, (struct op){SEND, peer, from, NULL, count, type, 0, NULL});
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return issue(comm, stream, (struct op){RECEIVE, peer, NULL, to, count, type, 0, NULL});
}
