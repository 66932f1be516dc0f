// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi.h"

#include "base/activity.h"
#include "base/clock.h"
#include "base/text.h"
#include "comm/mpi/heartbeat.h"
#include "comm/mpi/progress.h"

#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifdef OPEN_MPI
const char mpi_library[] = "Open MPI";
const char mpi_launchers[] = "Open MPI's mpirun, or `srun --mpi=pmix`";
bool mpi_knows_launcher(void) { return getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMIX_RANK"); }
#else
const char mpi_library[] = "MPICH";
const char mpi_launchers[] = "MPICH's mpirun, or `srun --mpi=pmi2`";
bool mpi_knows_launcher(void) { return getenv("PMI_RANK") != NULL; }
#endif

void mpi_add_version(struct text *out)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;
    MPI_Get_library_version(version, &len); /* allowed before MPI_Init */
    char *line = heap_string(version, strcspn(version, ",\n"));
    for (char *at = line; *at; at++)
        if (*at == '\t') *at = ' ';
    text_adds(out, line);
    free(line);
}

/* MPI counts elements in int, so longer messages are split; see byte_type for all-gathers. */
enum { MAX_MESSAGE_BYTES = 1 << 30, BLOCK_BYTES = 1 << 20 };
/* Tags above those of send and receive keep the messages of different sums apart. */
enum { FIRST_SUM_TAG = 1 << 15, NUM_SUM_TAGS = 1 << 15 };

/* What all groups of this process share. */
struct mpi_engine {
    struct progress_thread *progress;
    struct heartbeat *heartbeat;
    pthread_mutex_t lock; /* protects spare */
    struct mpi_operation *spare;
};

struct mpi_group {
    struct mpi_engine *engine;
    MPI_Comm comm;
    unsigned num_sums; /* started so far, the same on all ranks: gives each its tag */
    char *gathered;    /* the buffer of gather; gathered_bytes */
    size_t gathered_bytes;
    struct comm_counts counts;
};

/* A job of the progress thread: a transfer, a split, ...  It runs in stages, each of which posts
 * requests and ends when all of them are complete.  Reused when it is over. */
struct mpi_operation {
    struct progress_job job; /* first: step casts its job to this */
    /* Called when all requests are complete: ends that stage and posts the next one's requests. */
    enum status (*next)(struct mpi_operation *op, bool *is_over);
    const char *what;
    struct comm comm; /* the group it is on */
    struct transfer *t;
    int tag;
    size_t stage; /* to be posted next */
    MPI_Request *requests;
    MPI_Status *statuses;
    const void **parts;
    int num_requests, num_completed, max_requests, max_parts;
    /* Of a split. */
    int color, key;
    MPI_Comm out;
    struct mpi_operation *spare;
};

static struct mpi_group *group_of(const struct mpi_operation *op) { return op->comm.group; }

static enum status check(const struct mpi_operation *op, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "%s on rank %d in a group of %d: %s error: %s", op->what, op->comm.rank,
         op->comm.size, mpi_library, text);
}

/* Whether all requests are complete. */
static enum status test_requests(struct mpi_operation *op, int *all)
{
    int code = MPI_Testall(op->num_requests, op->requests, all, op->statuses);
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < op->num_requests; i++) {
        int own = op->statuses[i].MPI_ERROR;
        if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) code = own;
    }
    TRY(check(op, code));
    return STATUS_OK;
}

static enum status step(struct progress_job *job, bool *is_over)
{
    struct mpi_operation *op = (struct mpi_operation *)job;
    int all = 1;
    if (op->num_requests) TRY(test_requests(op, &all));
    if (!all) return STATUS_OK;
    do { /* a stage may have no requests */
        op->num_completed = op->num_requests, op->num_requests = 0;
        TRY(op->next(op, is_over));
    } while (!*is_over && !op->num_requests);
    if (*is_over && op->t && op->t->started_s > 0) op->t->ended_s = clock_monotonic_s();
    return STATUS_OK;
}

static MPI_Request *new_request(struct mpi_operation *op)
{
    if (op->num_requests == op->max_requests) {
        op->max_requests = 2 * op->max_requests + 4;
        op->requests = heap_grow(op->requests, (size_t)op->max_requests, sizeof *op->requests);
        op->statuses = heap_grow(op->statuses, (size_t)op->max_requests, sizeof *op->statuses);
    }
    op->requests[op->num_requests] = MPI_REQUEST_NULL;
    return &op->requests[op->num_requests++];
}

/* One end of a message; x is read if the operation sends. */
struct mpi_message {
    bool is_send;
    int peer, tag;
    char *x;
    size_t bytes;
};

/* Posts as many requests as MAX_MESSAGE_BYTES demands; both ends split alike. */
static enum status post(struct mpi_operation *op, struct mpi_message m)
{
    MPI_Comm comm = group_of(op)->comm;
    for (size_t at = 0; at < m.bytes || !at; at += MAX_MESSAGE_BYTES) {
        size_t left = m.bytes - at;
        int n = (int)(left < MAX_MESSAGE_BYTES ? left : MAX_MESSAGE_BYTES);
        MPI_Request *r = new_request(op);
        if (m.is_send)
            TRY(check(op, MPI_Isend(m.x + at, n, MPI_BYTE, m.peer, m.tag, comm, r)));
        else
            TRY(check(op, MPI_Irecv(m.x + at, n, MPI_BYTE, m.peer, m.tag, comm, r)));
    }
    return STATUS_OK;
}

static enum status send_next(struct mpi_operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    *is_over = op->stage++ > 0;
    if (!*is_over) TRY(post(op, (struct mpi_message){true, t->peer, t->tag, t->x, bytes}));
    return STATUS_OK;
}

static enum status receive_next(struct mpi_operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t), received = 0;
    if (!op->stage++) {
        TRY(post(op, (struct mpi_message){false, t->peer, t->tag, t->x, bytes}));
        return STATUS_OK;
    }
    *is_over = true;
    for (int i = 0; i < op->num_completed; i++) {
        int n;
        TRY(check(op, MPI_Get_count(&op->statuses[i], MPI_BYTE, &n)));
        received += (size_t)n;
    }
    if (received != bytes)
        FAIL(COMM, "rank %d in a group of %d sent %zu bytes with tag %d; rank %d expects %zu",
             t->peer, op->comm.size, received, t->tag, op->comm.rank, bytes);
    return STATUS_OK;
}

static enum status broadcast_next(struct mpi_operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    *is_over = op->stage++ > 0;
    for (size_t at = 0; at < bytes && !*is_over; at += MAX_MESSAGE_BYTES) {
        int n = (int)(bytes - at < MAX_MESSAGE_BYTES ? bytes - at : MAX_MESSAGE_BYTES);
        TRY(check(op, MPI_Ibcast((char *)t->x + at, n, MPI_BYTE, t->peer, group_of(op)->comm,
                                 new_request(op))));
    }
    return STATUS_OK;
}

/* A datatype of which one element has that many bytes. */
static enum status byte_type(const struct mpi_operation *op, size_t bytes, MPI_Datatype *type)
{
    MPI_Datatype block, kinds[2];
    int lengths[2] = {(int)(bytes / BLOCK_BYTES), (int)(bytes % BLOCK_BYTES)};
    MPI_Aint starts[2] = {0, (MPI_Aint)(bytes - bytes % BLOCK_BYTES)};
    TRY(check(op, MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &block)));
    kinds[0] = block, kinds[1] = MPI_BYTE;
    TRY(check(op, MPI_Type_create_struct(2, lengths, starts, kinds, type)));
    TRY(check(op, MPI_Type_commit(type)));
    TRY(check(op, MPI_Type_free(&block)));
    return STATUS_OK;
}

static enum status all_gather_next(struct mpi_operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    MPI_Comm comm = group_of(op)->comm;
    *is_over = op->stage++ > 0;
    if (*is_over) return STATUS_OK;
    if (bytes <= INT_MAX / (size_t)op->comm.size) {
        TRY(check(op, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t->x, (int)bytes, MPI_BYTE,
                                     comm, new_request(op))));
        return STATUS_OK;
    }
    /* Libraries multiply counts by ranks in int, so each part is one element. */
    MPI_Datatype part;
    TRY(byte_type(op, bytes, &part));
    TRY(check(op, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t->x, 1, part, comm,
                                 new_request(op))));
    TRY(check(op, MPI_Type_free(&part))); /* MPI keeps it until the request is complete */
    return STATUS_OK;
}

/* The elements of x that rank r sums, and the first of them. */
static size_t shard_of(const struct mpi_operation *op, int r, size_t *begin)
{
    const struct transfer *t = op->t;
    if (t->kind == TRANSFER_all_reduce) return transfer_shard(t->count, op->comm.size, r, begin);
    *begin = (size_t)r * t->count;
    return t->count;
}

/* Chunk `stage` of the elements that rank r sums, and the first of them in x. */
static size_t chunk_of(const struct mpi_operation *op, int r, size_t stage, size_t *begin)
{
    size_t count = shard_of(op, r, begin), chunk = transfer_chunk(count, op->comm.size);
    size_t at = stage * chunk < count ? stage * chunk : count;
    *begin += at;
    return count - at < chunk ? count - at : chunk;
}

/* Receives every rank's part of this rank's chunk into `work`, and sends the other ranks theirs. */
static enum status post_chunk(struct mpi_operation *op)
{
    const struct transfer *t = op->t;
    int rank = op->comm.rank, size = op->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, mine = chunk_of(op, rank, op->stage, &begin);
    for (int i = 1; i < size; i++) { /* each rank begins with a different peer */
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = chunk_of(op, to, op->stage, &begin);
        struct mpi_message in = {false, from, op->tag, t->work, mine * each};
        struct mpi_message out = {true, to, op->tag, t->x, theirs * each};
        in.x += (size_t)from * mine * each, out.x += begin * each;
        if (mine) TRY(post(op, in));
        if (theirs) TRY(post(op, out));
    }
    op->stage++;
    return STATUS_OK;
}

static void sum_chunk(struct mpi_operation *op)
{
    const struct transfer *t = op->t;
    size_t each = dtype_bytes(t->dtype), begin, first;
    size_t n = chunk_of(op, op->comm.rank, op->stage - 1, &begin);
    shard_of(op, op->comm.rank, &first);
    char *own = t->kind == TRANSFER_all_reduce ? (char *)t->x + first * each : t->own;
    if (op->max_parts < op->comm.size) {
        op->max_parts = op->comm.size;
        op->parts = heap_grow(op->parts, (size_t)op->max_parts, sizeof *op->parts);
    }
    for (int r = 0; r < op->comm.size; r++) op->parts[r] = (char *)t->work + (size_t)r * n * each;
    op->parts[op->comm.rank] = (char *)t->x + begin * each;
    comm_sum(t->dtype, op->parts, op->comm.size, n, own + (begin - first) * each);
}

/* Ends a stage; returns whether another follows.  No rank has more chunks than rank 0. */
static bool finish_chunk(struct mpi_operation *op)
{
    size_t begin;
    if (op->stage > 0) sum_chunk(op);
    return chunk_of(op, 0, op->stage, &begin) > 0;
}

static enum status reduce_scatter_next(struct mpi_operation *op, bool *is_over)
{
    *is_over = !finish_chunk(op);
    if (!*is_over) TRY(post_chunk(op));
    return STATUS_OK;
}

static enum status exchange_shards_next(struct mpi_operation *op, bool *is_over)
{
    (void)op;
    *is_over = true;
    return STATUS_OK;
}

static enum status all_reduce_next(struct mpi_operation *op, bool *is_over)
{
    const struct transfer *t = op->t;
    int rank = op->comm.rank, size = op->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, begin_mine;
    (void)is_over;
    if (finish_chunk(op)) {
        TRY(post_chunk(op));
        return STATUS_OK;
    }
    /* Then all ranks exchange their sums.  Shards differ in size, and the last may be empty. */
    size_t mine = shard_of(op, rank, &begin_mine);
    for (int i = 1; i < size; i++) {
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = shard_of(op, from, &begin);
        struct mpi_message in = {false, from, op->tag, t->x, theirs * each};
        struct mpi_message out = {true, to, op->tag, t->x, mine * each};
        in.x += begin * each, out.x += begin_mine * each;
        if (theirs) TRY(post(op, in));
        if (mine) TRY(post(op, out));
    }
    op->next = exchange_shards_next;
    return STATUS_OK;
}

static struct mpi_operation *operation_acquire(const struct comm *c, const char *what,
                                               enum status (*next)(struct mpi_operation *, bool *))
{
    struct mpi_engine *e = ((struct mpi_group *)c->group)->engine;
    pthread_mutex_lock(&e->lock);
    struct mpi_operation *op = e->spare;
    if (op) e->spare = op->spare;
    pthread_mutex_unlock(&e->lock);
    if (!op) op = heap(sizeof *op);
    op->job.step = step;
    op->next = next, op->what = what, op->comm = *c, op->t = NULL;
    op->stage = 0, op->num_requests = 0;
    return op;
}

static void operation_recycle(struct mpi_operation *op)
{
    struct mpi_engine *e = group_of(op)->engine;
    pthread_mutex_lock(&e->lock);
    op->spare = e->spare, e->spare = op;
    pthread_mutex_unlock(&e->lock);
}

/* Runs an operation that is not a transfer; NULL: it succeeded. */
static const struct failure *operation_run(struct mpi_operation *op)
{
    struct progress_thread *p = group_of(op)->engine->progress;
    progress_start(p, &op->job);
    return progress_wait(p, &op->job);
}

static enum status start(const struct comm *c, struct transfer *t)
{
    static enum status (*const next[TRANSFER_COUNT])(struct mpi_operation *, bool *) = {
#define X(name, text) [TRANSFER_##name] = name##_next,
        TRANSFER_LIST(X)
#undef X
    };
    struct mpi_group *g = c->group;
    t->comm = c;
    if (c->size == 1) {
        BUG_IF(t->kind == TRANSFER_send ||
               t->kind == TRANSFER_receive); /* there is no other rank */
        if (t->kind == TRANSFER_reduce_scatter && t->own != t->x)
            memcpy(t->own, t->x, t->count * transfer_element_bytes(t));
        t->in_flight = NULL;
        return STATUS_OK;
    }
    struct mpi_operation *op = operation_acquire(c, transfer_name(t->kind), next[t->kind]);
    op->t = t;
    if (t->kind == TRANSFER_reduce_scatter || t->kind == TRANSFER_all_reduce)
        op->tag = FIRST_SUM_TAG + (int)(g->num_sums++ % NUM_SUM_TAGS);
    t->in_flight = op;
    progress_start(g->engine->progress, &op->job);
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct mpi_operation *op = t->in_flight;
    if (!op) return STATUS_OK;
    const struct failure *f = progress_wait(group_of(op)->engine->progress, &op->job);
    operation_recycle(op);
    return f ? status_restore(f) : STATUS_OK;
}

static enum status gather(const struct comm *c, const void *mine, size_t bytes, const void **all)
{
    struct mpi_group *g = c->group;
    size_t all_bytes = (size_t)c->size * bytes;
    if (all_bytes >= g->gathered_bytes) {
        g->gathered_bytes = all_bytes + 1;
        g->gathered = heap_grow(g->gathered, g->gathered_bytes, 1);
    }
    if (bytes) memcpy(g->gathered + (size_t)c->rank * bytes, mine, bytes);
    struct transfer t = {TRANSFER_all_gather, .count = bytes, .x = g->gathered, .is_bytes = true};
    TRY(start(c, &t));
    TRY(wait(&t));
    *all = g->gathered;
    return STATUS_OK;
}

/* MPI_Comm_split blocks the progress thread, and so all other operations of this rank.  Therefore a
 * nonblocking barrier comes first: when that completes, every rank of the group is at the split. */
static enum status split_next(struct mpi_operation *op, bool *is_over)
{
    MPI_Comm comm = group_of(op)->comm;
    *is_over = op->stage++ > 0;
    if (!*is_over) {
        TRY(check(op, MPI_Ibarrier(comm, new_request(op))));
        return STATUS_OK;
    }
    TRY(check(op, MPI_Comm_split(comm, op->color, op->key, &op->out)));
    TRY(check(op, MPI_Comm_set_errhandler(op->out, MPI_ERRORS_RETURN)));
    TRY(check(op, MPI_Comm_rank(op->out, &op->comm.rank)));
    TRY(check(op, MPI_Comm_size(op->out, &op->comm.size)));
    return STATUS_OK;
}

static struct comm group_new(const struct mpi_operation *op, MPI_Comm comm);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct mpi_operation *op = operation_acquire(c, "split", split_next);
    op->color = color, op->key = key;
    const struct failure *f = operation_run(op);
    if (!f) *out = group_new(op, op->out);
    operation_recycle(op);
    return f ? status_restore(f) : STATUS_OK;
}

static enum status free_next(struct mpi_operation *op, bool *is_over)
{
    *is_over = true;
    TRY(check(op, MPI_Comm_free(&group_of(op)->comm)));
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct mpi_group *g = c->group;
    struct mpi_operation *op = operation_acquire(c, "release", free_next);
    operation_run(op); /* the next transfer reports a failure */
    operation_recycle(op);
    free(g->gathered);
    free(g);
}

static struct comm group_new(const struct mpi_operation *op, MPI_Comm comm)
{
    static const struct transport mpi = {.name = "mpi",
                                         .split = split,
                                         .release = release,
                                         .start = start,
                                         .wait = wait,
                                         .gather = gather};
    struct mpi_group *g = heap(sizeof *g);
    *g = (struct mpi_group){.engine = group_of(op)->engine, .comm = comm};
    return (struct comm){op->comm.rank, op->comm.size, &mpi, g, &g->counts};
}

static enum status open_next(struct mpi_operation *op, bool *is_over)
{
    int level;
    *is_over = true;
    TRY(check(op, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)));
    if (level < MPI_THREAD_SERIALIZED)
        FAIL(COMM,
             "this %s was built without thread support: MPI_THREAD_SERIALIZED is required, it "
             "provides level %d",
             mpi_library, level);
    TRY(check(op, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)));
    TRY(check(op, MPI_Comm_dup(MPI_COMM_WORLD, &op->out)));
    TRY(check(op, MPI_Comm_rank(op->out, &op->comm.rank)));
    TRY(check(op, MPI_Comm_size(op->out, &op->comm.size)));
    TRY(heartbeat_make(MPI_Comm_c2f(op->out), mpi_abort, &group_of(op)->engine->heartbeat));
    return STATUS_OK;
}

static enum status close_next(struct mpi_operation *op, bool *is_over)
{
    *is_over = true;
    TRY(check(op, MPI_Comm_free(&group_of(op)->comm)));
    TRY(check(op, MPI_Finalize()));
    return STATUS_OK;
}

static void engine_free(struct mpi_engine *e)
{
    progress_close(e->progress);
    heartbeat_free(e->heartbeat);
    for (struct mpi_operation *op = e->spare, *next; op; op = next) {
        next = op->spare;
        free(op->requests), free(op->statuses), free(op->parts), free(op);
    }
    pthread_mutex_destroy(&e->lock);
    free(e);
}

enum status mpi_open(struct comm *world)
{
    struct mpi_engine *e = heap(sizeof *e);
    struct mpi_group no_group = {.engine = e};
    struct comm no_comm = {.size = 1, .group = &no_group};
    enum status st = STATUS_OK;
    *world = (struct comm){0};
    pthread_mutex_init(&e->lock, NULL);
    TRY_OUT(progress_open(&e->progress));
    struct mpi_operation *op = operation_acquire(&no_comm, "opening", open_next);
    const struct failure *f = operation_run(op);
    if (!f) *world = group_new(op, op->out);
    operation_recycle(op);
    if (!f) {
        progress_start(e->progress, heartbeat_job(e->heartbeat));
        return STATUS_OK;
    }
    st = status_restore(f);
out:
    engine_free(e);
    return st;
}

void mpi_close(struct comm *world, enum status how)
{
    if (!world->group) return;
    struct mpi_group *g = world->group;
    struct mpi_engine *e = g->engine;
    bool is_good = how == STATUS_OK || how == STATUS_REQUEUE;
    if (is_good)
        heartbeat_leave(e->heartbeat);
    else
        heartbeat_end(e->heartbeat, status_exit_code(how));
    progress_wait(e->progress, heartbeat_job(e->heartbeat));
    if (is_good) {
        struct mpi_operation *op = operation_acquire(world, "closing", close_next);
        operation_run(op); /* a failure no longer matters */
        operation_recycle(op);
    }
    free(g->gathered);
    free(g);
    if (is_good)
        engine_free(e);
    else
        progress_close(e->progress); /* MPI may still write to the heartbeat's buffers */
    *world = (struct comm){0};
}

/* Waits until the launcher has read this rank's output; it may drop what is left when it ends
 * ranks. */
static void wait_until_read(int fd)
{
    enum { MAX_MS = 1000 };
    const struct timespec ms = {.tv_nsec = 1000000};
    struct stat s;
    int unread = 0;
    if (fstat(fd, &s) || !S_ISFIFO(s.st_mode)) return;
    for (int n = 0; n < MAX_MS && !ioctl(fd, FIONREAD, &unread) && unread; n++)
        nanosleep(&ms, NULL);
}

void mpi_abort(int exit_code)
{
    int is_initialized = 0, is_finalized = 0;
    activity_set_ending();
    wait_until_read(STDERR_FILENO);
    MPI_Initialized(&is_initialized);
    MPI_Finalized(&is_finalized);
    if (is_initialized && !is_finalized) MPI_Abort(MPI_COMM_WORLD, exit_code);
}
