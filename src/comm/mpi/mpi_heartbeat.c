// SPDX-License-Identifier: Apache-2.0
#include "comm/mpi/mpi_heartbeat.h"

#include "base/text.h"

#include <mpi.h>

struct mpi_link {
    struct heartbeat_link link; /* first */
    MPI_Comm world;
    MPI_Request sends[HEARTBEAT_CHANNELS], receives[HEARTBEAT_CHANNELS];
};

static enum status check(int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code == MPI_SUCCESS) return STATUS_OK;
    MPI_Error_string(code, text, &length);
    FAIL(COMM, "heartbeat between ranks: %s", text);
}

static bool send(struct heartbeat_link *link, int channel, const void *x, size_t bytes)
{
    struct mpi_link *l = (struct mpi_link *)link;
    int to = (link->rank + (1 << channel)) % link->size;
    return MPI_Isend(x, (int)bytes, MPI_BYTE, to, channel, l->world, &l->sends[channel]) ==
           MPI_SUCCESS;
}

static bool receive(struct heartbeat_link *link, int channel, void *x, size_t bytes)
{
    struct mpi_link *l = (struct mpi_link *)link;
    int from = (link->rank + link->size - (1 << channel)) % link->size;
    return MPI_Irecv(x, (int)bytes, MPI_BYTE, from, channel, l->world, &l->receives[channel]) ==
           MPI_SUCCESS;
}

static bool test(MPI_Request *request, bool *is_done)
{
    int done = 0;
    if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    *is_done = done;
    return true;
}

static bool test_send(struct heartbeat_link *link, int channel, bool *is_done)
{
    return test(&((struct mpi_link *)link)->sends[channel], is_done);
}

static bool test_receive(struct heartbeat_link *link, int channel, bool *is_done)
{
    return test(&((struct mpi_link *)link)->receives[channel], is_done);
}

static enum status gather(struct heartbeat_link *link, void *x, size_t bytes)
{
    TRY(check(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, x, (int)bytes, MPI_BYTE,
                            ((struct mpi_link *)link)->world)));
    return STATUS_OK;
}

enum status mpi_heartbeat_make(int world, void (*end)(int exit_code), struct heartbeat_link **out)
{
    struct mpi_link *l = heap(sizeof *l);
    l->link = (struct heartbeat_link){.send = send,
                                      .receive = receive,
                                      .test_send = test_send,
                                      .test_receive = test_receive,
                                      .gather = gather,
                                      .end = end};
    *out = &l->link;
    for (int i = 0; i < HEARTBEAT_CHANNELS; i++) l->sends[i] = l->receives[i] = MPI_REQUEST_NULL;
    TRY(check(MPI_Comm_dup(MPI_Comm_f2c(world), &l->world)));
    TRY(check(MPI_Comm_set_errhandler(l->world, MPI_ERRORS_RETURN)));
    TRY(check(MPI_Comm_rank(l->world, &l->link.rank)));
    TRY(check(MPI_Comm_size(l->world, &l->link.size)));
    return STATUS_OK;
}
