// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/heartbeat.h"

#include "base/clock.h"
#include "base/text.h"

#include <mpi.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Seconds between heartbeats, and between polls.  One poll adds at most max_poll_s to the silence:
 * a host that slept, or a process that was suspended, missed heartbeats because it did not poll. */
static const double beat_s = 1, poll_s = 0.2, max_poll_s = 1;

enum beat { ALIVE, LEAVING };

struct heartbeat {
    struct progress_job job; /* first: heartbeat_step casts its job to this */
    MPI_Comm world;
    int rank, size;
    char previous_host[MPI_MAX_PROCESSOR_NAME];
    int received, sent; /* enum beat: the messages' buffers */
    MPI_Request receive, send;
    double polled_s, sent_s, silent_s;
    bool has_left, previous_has_left;
    atomic_bool is_leaving;
};

static int previous_rank(const struct heartbeat *h) { return (h->rank + h->size - 1) % h->size; }
static int next_rank(const struct heartbeat *h) { return (h->rank + 1) % h->size; }

static enum status check(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "heartbeat between ranks: %s", text);
}

static enum status poll_receive(struct heartbeat *h)
{
    int has_arrived;
    if (h->previous_has_left) return STATUS_OK;
    TRY(check(MPI_Test(&h->receive, &has_arrived, MPI_STATUS_IGNORE)));
    if (!has_arrived) return STATUS_OK;
    h->silent_s = 0;
    h->previous_has_left = h->received == LEAVING;
    if (!h->previous_has_left)
        TRY(check(MPI_Irecv(&h->received, 1, MPI_INT, previous_rank(h), 0, h->world, &h->receive)));
    return STATUS_OK;
}

static enum status poll_send(struct heartbeat *h, double now_s, bool leaves)
{
    int is_done;
    TRY(check(MPI_Test(&h->send, &is_done, MPI_STATUS_IGNORE)));
    if (!is_done || h->has_left || (!leaves && now_s - h->sent_s < beat_s)) return STATUS_OK;
    h->sent = leaves ? LEAVING : ALIVE, h->sent_s = now_s, h->has_left = leaves;
    TRY(check(MPI_Isend(&h->sent, 1, MPI_INT, next_rank(h), 0, h->world, &h->send)));
    return STATUS_OK;
}

static enum status heartbeat_step(struct progress_job *job, bool *is_over)
{
    struct heartbeat *h = (struct heartbeat *)job;
    double now_s = clock_monotonic_s(), since_s = now_s - h->polled_s;
    bool leaves = atomic_load(&h->is_leaving);
    if (since_s < poll_s && !leaves) return STATUS_OK;
    h->polled_s = now_s;
    h->silent_s += since_s < max_poll_s ? since_s : max_poll_s;
    TRY(poll_receive(h));
    TRY(poll_send(h, now_s, leaves));
    *is_over = h->previous_has_left && h->has_left && h->send == MPI_REQUEST_NULL;
    if (!h->previous_has_left && h->silent_s > HEARTBEAT_TIMEOUT_S)
        FAIL(COMM, "rank %d on %s is gone: no heartbeat for %d s", previous_rank(h),
             h->previous_host, HEARTBEAT_TIMEOUT_S);
    return STATUS_OK;
}

enum status heartbeat_make(int world, struct heartbeat **out)
{
    char host[MPI_MAX_PROCESSOR_NAME] = "";
    int length;
    struct heartbeat *h = *out = heap(sizeof *h);
    h->job = (struct progress_job){.step = heartbeat_step, .is_background = true};
    h->receive = h->send = MPI_REQUEST_NULL;
    h->polled_s = clock_monotonic_s();
    TRY(check(MPI_Comm_dup(MPI_Comm_f2c(world), &h->world)));
    TRY(check(MPI_Comm_rank(h->world, &h->rank)));
    TRY(check(MPI_Comm_size(h->world, &h->size)));
    TRY(check(MPI_Get_processor_name(host, &length)));
    TRY(check(MPI_Sendrecv(host, sizeof host, MPI_CHAR, next_rank(h), 0, h->previous_host,
                           sizeof h->previous_host, MPI_CHAR, previous_rank(h), 0, h->world,
                           MPI_STATUS_IGNORE)));
    TRY(check(MPI_Irecv(&h->received, 1, MPI_INT, previous_rank(h), 0, h->world, &h->receive)));
    return STATUS_OK;
}

struct progress_job *heartbeat_job(struct heartbeat *h) { return &h->job; }

void heartbeat_leave(struct heartbeat *h) { atomic_store(&h->is_leaving, true); }

void heartbeat_free(struct heartbeat *h) { free(h); }
