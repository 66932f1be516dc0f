/* The contract of side_stream.h, as the stub fulfills it. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/side_stream.h"

#include "comm/nccl/stub.h"
#include "test.h"

#include <pthread.h>

struct gate {
    pthread_mutex_t shut;
    int passed;
};

static void pass_gate(void *what)
{
    struct gate *g = what;
    pthread_mutex_lock(&g->shut);
    g->passed++;
    pthread_mutex_unlock(&g->shut);
}

TEST(side_stream_events_are_reached_when_the_work_before_them_is_done)
{
    struct queue queue = {.num_threads = 1};
    struct gate gate = {.shut = PTHREAD_MUTEX_INITIALIZER};
    struct side_stream stream;
    struct side_stream_event event;
    bool reached;
    CHECK_STATUS(OK, side_stream_open(&stream, &queue));
    CHECK_STATUS(OK, side_stream_event_open(&event));
    for (int round = 1; round <= 2; round++) {
        pthread_mutex_lock(&gate.shut);
        CHECK_STATUS(OK, side_stream_wait_queue(&stream));
        stub_push(stream.handle, pass_gate, &gate);
        CHECK_STATUS(OK, side_stream_record(&stream, &event));
        CHECK_STATUS(OK, side_stream_query(&event, &reached));
        CHECK(!reached);
        pthread_mutex_unlock(&gate.shut);
        CHECK_STATUS(OK, round == 1 ? side_stream_synchronize(&event)
                                    : side_stream_join(&stream, &event));
        CHECK(gate.passed == round);
        CHECK_STATUS(OK, side_stream_query(&event, &reached));
        CHECK(reached);
    }
    side_stream_event_close(&event);
    side_stream_close(&stream);
}

TEST(side_streams_know_the_id_of_their_device)
{
    char name[SIDE_STREAM_DEVICE_ID_BYTES];
    stub_device("0000:41:00.0");
    CHECK_STATUS(OK, side_stream_device_id(NULL, name));
    CHECK(!strcmp(name, "0000:41:00.0"));
    CHECK_STATUS(OK, side_stream_set_device(NULL));
}
