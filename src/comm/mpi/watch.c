// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/watch.h"

#include "base/clock.h"
#include "base/text.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Seconds between two words, and between two looks; what a look counts for at most: a host that
 * slept, or a job that was suspended, has heard nothing because it did not listen. */
static const double word_s = 1, look_s = 0.2, most_of_a_look_s = 1;

enum word { HERE, LEAVING };

struct watch {
    struct job job; /* first: a step is given this */
    MPI_Comm world;
    int rank, size;
    char before[MPI_MAX_PROCESSOR_NAME]; /* the host of the one before */
    int heard, said;                     /* words */
    MPI_Request in, out;
    double looked_s, said_s, silent_s;
    bool has_left, before_has_left;
    atomic_bool leaves;
};

static int before(const struct watch *w) { return (w->rank + w->size - 1) % w->size; }
static int after(const struct watch *w) { return (w->rank + 1) % w->size; }

static enum status check(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "watching over the ranks: %s", text);
}

static enum status listen(struct watch *w)
{
    int is_there;
    if (w->before_has_left) return STATUS_OK;
    TRY(check(MPI_Test(&w->in, &is_there, MPI_STATUS_IGNORE)));
    if (!is_there) return STATUS_OK;
    w->silent_s = 0;
    w->before_has_left = w->heard == LEAVING;
    if (!w->before_has_left)
        TRY(check(MPI_Irecv(&w->heard, 1, MPI_INT, before(w), 0, w->world, &w->in)));
    return STATUS_OK;
}

static enum status speak(struct watch *w, double now_s, bool leaves)
{
    int is_gone;
    TRY(check(MPI_Test(&w->out, &is_gone, MPI_STATUS_IGNORE)));
    if (!is_gone || w->has_left || (!leaves && now_s - w->said_s < word_s)) return STATUS_OK;
    w->said = leaves ? LEAVING : HERE, w->said_s = now_s, w->has_left = leaves;
    TRY(check(MPI_Isend(&w->said, 1, MPI_INT, after(w), 0, w->world, &w->out)));
    return STATUS_OK;
}

static enum status step(struct job *job, bool *is_over)
{
    struct watch *w = (struct watch *)job;
    double now_s = clock_monotonic_s(), since_s = now_s - w->looked_s;
    bool leaves = atomic_load(&w->leaves);
    if (since_s < look_s && !leaves) return STATUS_OK;
    w->looked_s = now_s;
    w->silent_s += since_s < most_of_a_look_s ? since_s : most_of_a_look_s;
    TRY(listen(w));
    TRY(speak(w, now_s, leaves));
    *is_over = w->before_has_left && w->has_left && w->out == MPI_REQUEST_NULL;
    if (!w->before_has_left && w->silent_s > WATCH_SILENT_S)
        FAIL(COMM, "rank %d on %s is gone: nothing was heard of it for %d s", before(w), w->before,
             WATCH_SILENT_S);
    return STATUS_OK;
}

enum status watch_make(int world, struct watch **out)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    struct watch *w = *out = heap(sizeof *w);
    w->job = (struct job){.step = step, .is_background = true};
    w->in = w->out = MPI_REQUEST_NULL;
    w->looked_s = clock_monotonic_s();
    TRY(check(MPI_Comm_dup(MPI_Comm_f2c(world), &w->world)));
    TRY(check(MPI_Comm_rank(w->world, &w->rank)));
    TRY(check(MPI_Comm_size(w->world, &w->size)));
    TRY(check(MPI_Get_processor_name(host, &length)));
    TRY(check(MPI_Sendrecv(host, sizeof host, MPI_CHAR, after(w), 0, w->before, sizeof w->before,
                           MPI_CHAR, before(w), 0, w->world, MPI_STATUS_IGNORE)));
    TRY(check(MPI_Irecv(&w->heard, 1, MPI_INT, before(w), 0, w->world, &w->in)));
    return STATUS_OK;
}

struct job *watch_job(struct watch *w) { return &w->job; }

void watch_leave(struct watch *w) { atomic_store(&w->leaves, true); }

void watch_free(struct watch *w) { free(w); }
