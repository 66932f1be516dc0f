// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi.h"

#include "base/clock.h"
#include "base/text.h"
#include "comm/mpi/progress.h"
#include "comm/mpi/watch.h"

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

/* Bytes that one message holds at most: MPI counts in int. */
enum { MOST_BYTES = 1 << 30, BLOCK_BYTES = 1 << 20 };
/* Tags above those of send and receive tell the pieces of different sums apart. */
enum { FIRST_OWN_TAG = 1 << 15, OWN_TAGS = 1 << 15 };

struct engine {
    struct progress *progress;
    struct watch *watch;
    pthread_mutex_t lock; /* of spare */
    struct move *spare;
};

struct group {
    struct engine *engine;
    MPI_Comm comm;
    unsigned number; /* of the next transfer that is a sum: the same on all ranks */
    char *gathered;  /* of gather; gathered_bytes */
    size_t gathered_bytes;
    struct comm_counts counts;
};

/* A transfer, or something else that the thread does; kept for the next when it is over. */
struct move {
    struct job job; /* first: a step is given this */
    /* Called when all that was posted has arrived: ends that stage and posts the next. */
    enum status (*next)(struct move *m, bool *is_over);
    const char *what;
    struct comm comm; /* the group it is on */
    struct transfer *t;
    int tag;
    size_t stage; /* that is to be posted next */
    MPI_Request *requests;
    MPI_Status *statuses;
    const void **parts;
    int num_requests, num_tested, room, parts_room;
    /* Of a split. */
    int color, key;
    MPI_Comm out;
    struct move *spare;
};

static struct group *group_of(const struct move *m) { return m->comm.group; }

static enum status check(const struct move *m, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "%s on rank %d of a group of %d: %s says: %s", m->what, m->comm.rank, m->comm.size,
         mpi_library, text);
}

/* Whether all that was posted has arrived. */
static enum status test(struct move *m, int *all)
{
    int code = MPI_Testall(m->num_requests, m->requests, all, m->statuses);
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < m->num_requests; i++) {
        int own = m->statuses[i].MPI_ERROR;
        if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) code = own;
    }
    TRY(check(m, code));
    return STATUS_OK;
}

static enum status step(struct job *job, bool *is_over)
{
    struct move *m = (struct move *)job;
    int all = 1;
    if (m->num_requests) TRY(test(m, &all));
    if (!all) return STATUS_OK;
    do { /* a stage may have nothing to move */
        m->num_tested = m->num_requests, m->num_requests = 0;
        TRY(m->next(m, is_over));
    } while (!*is_over && !m->num_requests);
    if (*is_over && m->t && m->t->began_s > 0) m->t->over_s = clock_monotonic_s();
    return STATUS_OK;
}

static MPI_Request *request(struct move *m)
{
    if (m->num_requests == m->room) {
        m->room = 2 * m->room + 4;
        m->requests = heap_grow(m->requests, (size_t)m->room, sizeof *m->requests);
        m->statuses = heap_grow(m->statuses, (size_t)m->room, sizeof *m->statuses);
    }
    m->requests[m->num_requests] = MPI_REQUEST_NULL;
    return &m->requests[m->num_requests++];
}

/* As several messages, if there is too much for one; both ends cut alike. */
static enum status post(struct move *m, bool sends, int peer, int tag, char *x, size_t bytes)
{
    MPI_Comm comm = group_of(m)->comm;
    for (size_t at = 0; at < bytes || !at; at += MOST_BYTES) {
        int n = (int)(bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES);
        MPI_Request *r = request(m);
        if (sends)
            TRY(check(m, MPI_Isend(x + at, n, MPI_BYTE, peer, tag, comm, r)));
        else
            TRY(check(m, MPI_Irecv(x + at, n, MPI_BYTE, peer, tag, comm, r)));
    }
    return STATUS_OK;
}

static enum status send_next(struct move *m, bool *is_over)
{
    const struct transfer *t = m->t;
    *is_over = m->stage++ > 0;
    if (!*is_over) TRY(post(m, true, t->peer, t->tag, t->x, t->count * transfer_element_bytes(t)));
    return STATUS_OK;
}

static enum status receive_next(struct move *m, bool *is_over)
{
    const struct transfer *t = m->t;
    size_t bytes = t->count * transfer_element_bytes(t), got = 0;
    if (!m->stage++) {
        TRY(post(m, false, t->peer, t->tag, t->x, bytes));
        return STATUS_OK;
    }
    *is_over = true;
    for (int i = 0; i < m->num_tested; i++) {
        int n;
        TRY(check(m, MPI_Get_count(&m->statuses[i], MPI_BYTE, &n)));
        got += (size_t)n;
    }
    if (got != bytes)
        FAIL(COMM, "rank %d of a group of %d sent %zu bytes with tag %d, not %zu", t->peer,
             m->comm.size, got, t->tag, bytes);
    return STATUS_OK;
}

static enum status broadcast_next(struct move *m, bool *is_over)
{
    const struct transfer *t = m->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    *is_over = m->stage++ > 0;
    for (size_t at = 0; at < bytes && !*is_over; at += MOST_BYTES) {
        int n = (int)(bytes - at < MOST_BYTES ? bytes - at : MOST_BYTES);
        TRY(check(
            m, MPI_Ibcast((char *)t->x + at, n, MPI_BYTE, t->peer, group_of(m)->comm, request(m))));
    }
    return STATUS_OK;
}

/* One element of that many bytes. */
static enum status make_type(const struct move *m, size_t bytes, MPI_Datatype *type)
{
    MPI_Datatype block, kinds[2];
    int lengths[2] = {(int)(bytes / BLOCK_BYTES), (int)(bytes % BLOCK_BYTES)};
    MPI_Aint starts[2] = {0, (MPI_Aint)(bytes - bytes % BLOCK_BYTES)};
    TRY(check(m, MPI_Type_contiguous(BLOCK_BYTES, MPI_BYTE, &block)));
    kinds[0] = block, kinds[1] = MPI_BYTE;
    TRY(check(m, MPI_Type_create_struct(2, lengths, starts, kinds, type)));
    TRY(check(m, MPI_Type_commit(type)));
    TRY(check(m, MPI_Type_free(&block)));
    return STATUS_OK;
}

static enum status all_gather_next(struct move *m, bool *is_over)
{
    const struct transfer *t = m->t;
    size_t bytes = t->count * transfer_element_bytes(t);
    MPI_Comm comm = group_of(m)->comm;
    *is_over = m->stage++ > 0;
    if (*is_over) return STATUS_OK;
    if (bytes <= INT_MAX / (size_t)m->comm.size) {
        TRY(check(m, MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t->x, (int)bytes, MPI_BYTE,
                                    comm, request(m))));
        return STATUS_OK;
    }
    /* Libraries multiply counts by ranks in int, so a part becomes one element. */
    MPI_Datatype part;
    TRY(make_type(m, bytes, &part));
    TRY(check(m,
              MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, t->x, 1, part, comm, request(m))));
    TRY(check(m, MPI_Type_free(&part))); /* when it is no longer in use */
    return STATUS_OK;
}

/* Elements of x whose sum rank r gets, and where they begin. */
static size_t region(const struct move *m, int r, size_t *begin)
{
    const struct transfer *t = m->t;
    if (t->kind == TRANSFER_all_reduce) return transfer_shard(t->count, m->comm.size, r, begin);
    *begin = (size_t)r * t->count;
    return t->count;
}

/* Piece `stage` of what rank r gets: its elements, and where in x they begin. */
static size_t piece_of(const struct move *m, int r, size_t stage, size_t *begin)
{
    size_t count = region(m, r, begin), piece = transfer_chunk(count, m->comm.size);
    size_t at = stage * piece < count ? stage * piece : count;
    *begin += at;
    return count - at < piece ? count - at : piece;
}

/* Everybody's numbers for this rank go into work, a piece at a time. */
static enum status post_piece(struct move *m)
{
    const struct transfer *t = m->t;
    int rank = m->comm.rank, size = m->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, mine = piece_of(m, rank, m->stage, &begin);
    for (int i = 1; i < size; i++) { /* everybody begins with another peer */
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = piece_of(m, to, m->stage, &begin);
        char *into = (char *)t->work + (size_t)from * mine * each;
        if (mine) TRY(post(m, false, from, m->tag, into, mine * each));
        if (theirs) TRY(post(m, true, to, m->tag, (char *)t->x + begin * each, theirs * each));
    }
    m->stage++;
    return STATUS_OK;
}

static void sum_piece(struct move *m)
{
    const struct transfer *t = m->t;
    size_t each = dtype_bytes(t->dtype), begin, first;
    size_t n = piece_of(m, m->comm.rank, m->stage - 1, &begin);
    region(m, m->comm.rank, &first);
    char *own = t->kind == TRANSFER_all_reduce ? (char *)t->x + first * each : t->own;
    if (m->parts_room < m->comm.size) {
        m->parts_room = m->comm.size;
        m->parts = heap_grow(m->parts, (size_t)m->parts_room, sizeof *m->parts);
    }
    for (int r = 0; r < m->comm.size; r++) m->parts[r] = (char *)t->work + (size_t)r * n * each;
    m->parts[m->comm.rank] = (char *)t->x + begin * each;
    comm_sum(t->dtype, m->parts, m->comm.size, n, own + (begin - first) * each);
}

/* Ends a stage; true: there is another.  Rank 0 gets as many pieces as any. */
static bool sums_on(struct move *m)
{
    size_t begin;
    if (m->stage > 0) sum_piece(m);
    return piece_of(m, 0, m->stage, &begin) > 0;
}

static enum status reduce_scatter_next(struct move *m, bool *is_over)
{
    *is_over = !sums_on(m);
    if (!*is_over) TRY(post_piece(m));
    return STATUS_OK;
}

static enum status shares_next(struct move *m, bool *is_over)
{
    (void)m;
    *is_over = true;
    return STATUS_OK;
}

static enum status all_reduce_next(struct move *m, bool *is_over)
{
    const struct transfer *t = m->t;
    int rank = m->comm.rank, size = m->comm.size;
    size_t each = dtype_bytes(t->dtype), begin, begin_mine;
    (void)is_over;
    if (sums_on(m)) {
        TRY(post_piece(m));
        return STATUS_OK;
    }
    /* Its own sum to everybody; shares differ in size, and the last may be empty. */
    size_t mine = region(m, rank, &begin_mine);
    for (int i = 1; i < size; i++) {
        int from = (rank + size - i) % size, to = (rank + i) % size;
        size_t theirs = region(m, from, &begin);
        if (theirs) TRY(post(m, false, from, m->tag, (char *)t->x + begin * each, theirs * each));
        if (mine) TRY(post(m, true, to, m->tag, (char *)t->x + begin_mine * each, mine * each));
    }
    m->next = shares_next;
    return STATUS_OK;
}

static struct move *take(const struct comm *c, const char *what,
                         enum status (*next)(struct move *, bool *))
{
    struct engine *e = ((struct group *)c->group)->engine;
    pthread_mutex_lock(&e->lock);
    struct move *m = e->spare;
    if (m) e->spare = m->spare;
    pthread_mutex_unlock(&e->lock);
    if (!m) m = heap(sizeof *m);
    m->job.step = step;
    m->next = next, m->what = what, m->comm = *c, m->t = NULL;
    m->stage = 0, m->num_requests = 0;
    return m;
}

static void put_back(struct move *m)
{
    struct engine *e = group_of(m)->engine;
    pthread_mutex_lock(&e->lock);
    m->spare = e->spare, e->spare = m;
    pthread_mutex_unlock(&e->lock);
}

/* Of what is no transfer; the failure is not told. */
static const struct failure *run(struct move *m)
{
    struct progress *p = group_of(m)->engine->progress;
    progress_start(p, &m->job);
    return progress_wait(p, &m->job);
}

static enum status start(const struct comm *c, struct transfer *t)
{
    static enum status (*const next[TRANSFER_COUNT])(struct move *, bool *) = {
#define X(name, text) [TRANSFER_##name] = name##_next,
        TRANSFER_LIST(X)
#undef X
    };
    struct group *g = c->group;
    t->comm = c;
    if (c->size == 1) {
        BUG_IF(t->kind == TRANSFER_send || t->kind == TRANSFER_receive); /* there is nobody */
        if (t->kind == TRANSFER_reduce_scatter && t->own != t->x)
            memcpy(t->own, t->x, t->count * transfer_element_bytes(t));
        t->under_way = NULL;
        return STATUS_OK;
    }
    struct move *m = take(c, transfer_name(t->kind), next[t->kind]);
    m->t = t;
    if (t->kind == TRANSFER_reduce_scatter || t->kind == TRANSFER_all_reduce)
        m->tag = FIRST_OWN_TAG + (int)(g->number++ % OWN_TAGS);
    t->under_way = m;
    progress_start(g->engine->progress, &m->job);
    return STATUS_OK;
}

static enum status wait(struct transfer *t)
{
    struct move *m = t->under_way;
    if (!m) return STATUS_OK;
    const struct failure *f = progress_wait(group_of(m)->engine->progress, &m->job);
    put_back(m);
    return f ? failure_tell(f) : STATUS_OK;
}

static enum status gather(const struct comm *c, const void *mine, size_t bytes, const void **all)
{
    struct group *g = c->group;
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

/* MPI_Comm_split waits, and so holds up all else on this rank.  Therefore it is called when every
 * rank of the group has come to it, and waits for nothing but the message that says so. */
static enum status split_next(struct move *m, bool *is_over)
{
    MPI_Comm comm = group_of(m)->comm;
    *is_over = m->stage++ > 0;
    if (!*is_over) {
        TRY(check(m, MPI_Ibarrier(comm, request(m))));
        return STATUS_OK;
    }
    TRY(check(m, MPI_Comm_split(comm, m->color, m->key, &m->out)));
    TRY(check(m, MPI_Comm_set_errhandler(m->out, MPI_ERRORS_RETURN)));
    TRY(check(m, MPI_Comm_rank(m->out, &m->comm.rank)));
    TRY(check(m, MPI_Comm_size(m->out, &m->comm.size)));
    return STATUS_OK;
}

static struct comm group_new(const struct move *m, MPI_Comm comm);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct move *m = take(c, "split", split_next);
    m->color = color, m->key = key;
    const struct failure *f = run(m);
    if (!f) *out = group_new(m, m->out);
    put_back(m);
    return f ? failure_tell(f) : STATUS_OK;
}

static enum status free_next(struct move *m, bool *is_over)
{
    *is_over = true;
    TRY(check(m, MPI_Comm_free(&group_of(m)->comm)));
    return STATUS_OK;
}

static void release(struct comm *c)
{
    struct group *g = c->group;
    struct move *m = take(c, "release", free_next);
    run(m); /* a failure is told by the next transfer */
    put_back(m);
    free(g->gathered);
    free(g);
}

static struct comm group_new(const struct move *m, MPI_Comm comm)
{
    static const struct transport mpi = {.name = "mpi",
                                         .split = split,
                                         .release = release,
                                         .start = start,
                                         .wait = wait,
                                         .gather = gather};
    struct group *g = heap(sizeof *g);
    *g = (struct group){.engine = group_of(m)->engine, .comm = comm};
    return (struct comm){m->comm.rank, m->comm.size, &mpi, g, &g->counts};
}

static enum status open_next(struct move *m, bool *is_over)
{
    int level;
    *is_over = true;
    TRY(check(m, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)));
    if (level < MPI_THREAD_SERIALIZED)
        FAIL(COMM, "this %s was built without threads (it gives thread level %d)", mpi_library,
             level);
    TRY(check(m, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)));
    TRY(check(m, MPI_Comm_dup(MPI_COMM_WORLD, &m->out)));
    TRY(check(m, MPI_Comm_rank(m->out, &m->comm.rank)));
    TRY(check(m, MPI_Comm_size(m->out, &m->comm.size)));
    TRY(watch_make(MPI_Comm_c2f(m->out), &group_of(m)->engine->watch));
    return STATUS_OK;
}

static enum status close_next(struct move *m, bool *is_over)
{
    *is_over = true;
    TRY(check(m, MPI_Comm_free(&group_of(m)->comm)));
    TRY(check(m, MPI_Finalize()));
    return STATUS_OK;
}

static void engine_free(struct engine *e)
{
    progress_close(e->progress);
    watch_free(e->watch);
    for (struct move *m = e->spare, *next; m; m = next) {
        next = m->spare;
        free(m->requests), free(m->statuses), free(m->parts), free(m);
    }
    pthread_mutex_destroy(&e->lock);
    free(e);
}

enum status mpi_open(struct comm *world)
{
    struct engine *e = heap(sizeof *e);
    struct group none = {.engine = e};
    struct comm nobody = {.size = 1, .group = &none};
    enum status st = STATUS_OK;
    *world = (struct comm){0};
    pthread_mutex_init(&e->lock, NULL);
    TRY_OUT(progress_open(&e->progress));
    struct move *m = take(&nobody, "opening", open_next);
    const struct failure *f = run(m);
    if (!f) *world = group_new(m, m->out);
    put_back(m);
    if (!f) {
        progress_start(e->progress, watch_job(e->watch));
        return STATUS_OK;
    }
    st = failure_tell(f);
out:
    engine_free(e);
    return st;
}

void mpi_close(struct comm *world, enum status how)
{
    if (!world->group) return;
    struct group *g = world->group;
    struct engine *e = g->engine;
    if (how == STATUS_OK || how == STATUS_REQUEUE) {
        watch_leave(e->watch);
        progress_wait(e->progress, watch_job(e->watch));
        struct move *m = take(world, "closing", close_next);
        run(m); /* what it could say no longer matters */
        put_back(m);
    }
    free(g->gathered);
    free(g);
    engine_free(e);
    *world = (struct comm){0};
}

/* A launcher may drop what it has not read yet of the ranks it ends. */
static void wait_till_read(int fd)
{
    enum { MOST_MS = 1000 };
    const struct timespec ms = {.tv_nsec = 1000000};
    struct stat s;
    int unread = 0;
    if (fstat(fd, &s) || !S_ISFIFO(s.st_mode)) return;
    for (int n = 0; n < MOST_MS && !ioctl(fd, FIONREAD, &unread) && unread; n++)
        nanosleep(&ms, NULL);
}

void mpi_abort(int exit_code)
{
    int is_open = 0, is_closed = 0;
    wait_till_read(STDERR_FILENO);
    MPI_Initialized(&is_open);
    MPI_Finalized(&is_closed);
    if (is_open && !is_closed) MPI_Abort(MPI_COMM_WORLD, exit_code);
}
