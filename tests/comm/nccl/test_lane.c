/* What lane.h says, of the lanes that tests of this room have. */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/lane.h"

#include "comm/nccl/stub.h"
#include "test.h"

#include <pthread.h>

struct gate {
    pthread_mutex_t shut;
    int passed;
};

static void pass(void *what)
{
    struct gate *g = what;
    pthread_mutex_lock(&g->shut);
    g->passed++;
    pthread_mutex_unlock(&g->shut);
}

TEST(lane_marks_are_reached_when_what_came_before_them_is_done)
{
    struct queue on = {.num_threads = 1};
    struct gate gate = {.shut = PTHREAD_MUTEX_INITIALIZER};
    struct lane lane;
    struct lane_mark mark;
    bool reached;
    CHECK_STATUS(OK, lane_open(&lane, &on));
    CHECK_STATUS(OK, lane_mark_open(&mark));
    for (int round = 1; round <= 2; round++) {
        pthread_mutex_lock(&gate.shut);
        CHECK_STATUS(OK, lane_follow(&lane));
        stub_push(lane.stream, pass, &gate);
        CHECK_STATUS(OK, lane_set(&lane, &mark));
        CHECK_STATUS(OK, lane_reached(&mark, &reached));
        CHECK(!reached);
        pthread_mutex_unlock(&gate.shut);
        CHECK_STATUS(OK, round == 1 ? lane_wait(&mark) : lane_join(&lane, &mark));
        CHECK(gate.passed == round);
        CHECK_STATUS(OK, lane_reached(&mark, &reached));
        CHECK(reached);
    }
    lane_mark_close(&mark);
    lane_close(&lane);
}

TEST(lanes_tell_devices_apart_by_name)
{
    char name[LANE_DEVICE_NAME];
    stub_device("0000:41:00.0");
    CHECK_STATUS(OK, lane_device(NULL, name));
    CHECK(!strcmp(name, "0000:41:00.0"));
    CHECK_STATUS(OK, lane_enter(NULL));
}
