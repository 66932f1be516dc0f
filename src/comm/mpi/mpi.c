// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi.h"

#include "base/activity.h"
#include "base/text.h"
#include "comm/mpi/mpi_heartbeat.h"
#include "comm/operation.h"

#include <limits.h>
#include <mpi.h>
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
const char mpi_launchers[] = "MPICH's mpirun, or `srun` with --mpi=pmi2 or --mpi=cray_shasta";
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

struct mpi_group {
    struct operation_group base; /* first */
    MPI_Comm comm;
};

struct mpi_operation {
    struct operation base; /* first */
    MPI_Request *requests;
    MPI_Status *statuses;
    int max_requests, num_completed;
    /* Arguments and result of a split. */
    int color, key;
    MPI_Comm out;
};

/* The engine, which exists until MPI no longer writes to the link's buffers. */
struct mpi_engine {
    struct operation_engine base; /* first */
    struct heartbeat_link *link;
};

static struct mpi_operation *mpi_of(struct operation *op) { return (struct mpi_operation *)op; }
static struct mpi_group *group_of(const struct operation *op) { return op->comm.group; }

static enum status check(const struct operation *op, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "%s on rank %d in a group of %d: %s error: %s", op->what, op->comm.rank,
         op->comm.size, mpi_library, text);
}

static enum status test(struct operation *op, bool *all)
{
    struct mpi_operation *m = mpi_of(op);
    int is_complete;
    int code = MPI_Testall(op->num_posted, m->requests, &is_complete, m->statuses);
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < op->num_posted; i++) {
        int own = m->statuses[i].MPI_ERROR;
        if (own != MPI_SUCCESS && own != MPI_ERR_PENDING) code = own;
    }
    TRY(check(op, code));
    *all = is_complete;
    m->num_completed = op->num_posted;
    return STATUS_OK;
}

static MPI_Request *new_request(struct operation *op)
{
    struct mpi_operation *m = mpi_of(op);
    if (op->num_posted == m->max_requests) {
        m->max_requests = 2 * m->max_requests + 4;
        m->requests = heap_grow(m->requests, (size_t)m->max_requests, sizeof *m->requests);
        m->statuses = heap_grow(m->statuses, (size_t)m->max_requests, sizeof *m->statuses);
    }
    m->requests[op->num_posted] = MPI_REQUEST_NULL;
    return &m->requests[op->num_posted++];
}

static void release_operation(struct operation *op)
{
    free(mpi_of(op)->requests), free(mpi_of(op)->statuses);
}

/* Posts as many requests as MAX_MESSAGE_BYTES demands; both ends split alike. */
static enum status post(struct operation *op, struct message m)
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

static enum status count_received(struct operation *op, size_t *bytes)
{
    struct mpi_operation *m = mpi_of(op);
    *bytes = 0;
    for (int i = 0; i < m->num_completed; i++) {
        int n;
        TRY(check(op, MPI_Get_count(&m->statuses[i], MPI_BYTE, &n)));
        *bytes += (size_t)n;
    }
    return STATUS_OK;
}

static enum status broadcast_next(struct operation *op, bool *is_over)
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
static enum status byte_type(const struct operation *op, size_t bytes, MPI_Datatype *type)
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

static enum status all_gather_next(struct operation *op, bool *is_over)
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

static const struct message_library messages = {
    .operation_bytes = sizeof(struct mpi_operation),
    .release_operation = release_operation,
    .post = post,
    .test = test,
    .count_received = count_received,
    .broadcast = broadcast_next,
    .all_gather = all_gather_next,
};

/* MPI_Comm_split blocks the progress thread, and so all other operations of this rank.  Therefore a
 * nonblocking barrier comes first: when that completes, every rank of the group is at the split. */
static enum status split_next(struct operation *op, bool *is_over)
{
    MPI_Comm comm = group_of(op)->comm;
    struct mpi_operation *m = mpi_of(op);
    *is_over = op->stage++ > 0;
    if (!*is_over) {
        TRY(check(op, MPI_Ibarrier(comm, new_request(op))));
        return STATUS_OK;
    }
    TRY(check(op, MPI_Comm_split(comm, m->color, m->key, &m->out)));
    TRY(check(op, MPI_Comm_set_errhandler(m->out, MPI_ERRORS_RETURN)));
    TRY(check(op, MPI_Comm_rank(m->out, &op->comm.rank)));
    TRY(check(op, MPI_Comm_size(m->out, &op->comm.size)));
    return STATUS_OK;
}

static struct comm group_new(struct operation *op);

static enum status split(const struct comm *c, int color, int key, struct comm *out)
{
    struct operation *op = operation_acquire(c, "split", split_next);
    mpi_of(op)->color = color, mpi_of(op)->key = key;
    const struct failure *f = operation_run(op);
    if (!f) *out = group_new(op);
    operation_recycle(op);
    return f ? status_restore(f) : STATUS_OK;
}

static enum status free_next(struct operation *op, bool *is_over)
{
    *is_over = true;
    TRY(check(op, MPI_Comm_free(&group_of(op)->comm)));
    return STATUS_OK;
}

static void free_group(struct comm *c)
{
    struct mpi_group *g = c->group;
    free(g->base.gathered);
    free(g);
}

static void release(struct comm *c)
{
    struct operation *op = operation_acquire(c, "release", free_next);
    operation_run(op); /* the next transfer reports a failure */
    operation_recycle(op);
    free_group(c);
}

/* The group that a split or the opening has made. */
static struct comm group_new(struct operation *op)
{
    static const struct transport mpi = {.name = "mpi",
                                         .split = split,
                                         .release = release,
                                         .start = operation_start,
                                         .wait = operation_wait,
                                         .gather = operation_gather};
    struct mpi_group *g = heap(sizeof *g);
    *g = (struct mpi_group){{.engine = group_of(op)->base.engine}, mpi_of(op)->out};
    return (struct comm){op->comm.rank, op->comm.size, &mpi, g, &g->base.counts};
}

static enum status open_next(struct operation *op, bool *is_over)
{
    struct mpi_engine *e = (struct mpi_engine *)group_of(op)->base.engine;
    MPI_Comm *out = &mpi_of(op)->out;
    int level;
    *is_over = true;
    TRY(check(op, MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level)));
    if (level < MPI_THREAD_SERIALIZED)
        FAIL(COMM,
             "this %s was built without thread support: MPI_THREAD_SERIALIZED is required, it "
             "provides level %d",
             mpi_library, level);
    TRY(check(op, MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)));
    TRY(check(op, MPI_Comm_dup(MPI_COMM_WORLD, out)));
    TRY(check(op, MPI_Comm_rank(*out, &op->comm.rank)));
    TRY(check(op, MPI_Comm_size(*out, &op->comm.size)));
    TRY(mpi_heartbeat_make(MPI_Comm_c2f(*out), mpi_abort, &e->link));
    TRY(heartbeat_make(e->link, &e->base.heartbeat));
    return STATUS_OK;
}

static enum status close_next(struct operation *op, bool *is_over)
{
    *is_over = true;
    TRY(check(op, MPI_Comm_free(&group_of(op)->comm)));
    TRY(check(op, MPI_Finalize()));
    return STATUS_OK;
}

static void engine_free(struct mpi_engine *e)
{
    operation_engine_release(&e->base);
    free(e->link);
    free(e);
}

enum status mpi_open(struct comm *world)
{
    struct mpi_engine *e = heap(sizeof *e);
    struct mpi_group no_group = {.base = {.engine = &e->base}};
    struct comm no_comm = {.size = 1, .group = &no_group};
    enum status st = STATUS_OK;
    *world = (struct comm){0};
    /* MPI sees host memory only.  Without this, Cray MPICH fails where users ask for GPU support
     * and its compiler wrapper, which links the library for that, did not link this program. */
    setenv("MPICH_GPU_SUPPORT_ENABLED", "0", 1);
    TRY_OUT(operation_engine_open(&e->base, &messages, NULL));
    struct operation *op = operation_acquire(&no_comm, "opening", open_next);
    const struct failure *f = operation_run(op);
    if (!f) *world = group_new(op);
    operation_recycle(op);
    if (!f) {
        progress_start(e->base.progress, heartbeat_job(e->base.heartbeat));
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
    struct mpi_engine *e = (struct mpi_engine *)((struct mpi_group *)world->group)->base.engine;
    bool is_good = how == STATUS_OK || how == STATUS_REQUEUE;
    operation_engine_leave(&e->base, how);
    if (is_good) {
        struct operation *op = operation_acquire(world, "closing", close_next);
        operation_run(op); /* a failure no longer matters */
        operation_recycle(op);
    }
    free_group(world);
    if (is_good)
        engine_free(e);
    else
        operation_engine_close(&e->base); /* MPI may still write to the heartbeat's buffers */
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
