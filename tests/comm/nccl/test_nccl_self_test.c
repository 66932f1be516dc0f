// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include "backends/cpu/cpu.h"
#include "comm/nccl/stub.h"
#include "tensor/strict_device.h"
#include "test.h"

TEST(nccl_self_test_makes_every_transfer_on_a_device_and_closes_everything)
{
    struct queue *queue;
    struct stub_counts before = stub_counts();
    CHECK_STATUS(OK, cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, false);
    CHECK_STATUS(OK, nccl_self_test(queue));
    strict_close(queue), cpu_queue_close(queue);
    struct stub_counts after = stub_counts();
    CHECK(after.comms == before.comms && after.streams == before.streams);
    CHECK(after.events == before.events && after.aborted == before.aborted);
}

TEST(nccl_self_test_reports_an_error_of_nccl)
{
    struct queue queue = {.num_threads = 1};
    stub_break(0, "a wire is cut");
    CHECK_STATUS(COMM, nccl_self_test(&queue));
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
    stub_break(0, NULL);
    CHECK_STATUS(OK, nccl_self_test(&queue));
}

TEST(nccl_self_test_ends_its_group_when_a_transfer_cannot_be_issued)
{
    struct queue queue = {.num_threads = 1};
    stub_refuse_transfers(true);
    CHECK_STATUS(COMM, nccl_self_test(&queue));
    CHECK_MESSAGE("on rank 0 of 1 in group self-test: NCCL error");
    stub_refuse_transfers(false);
    CHECK(!stub_counts().comms && !stub_counts().streams && !stub_counts().events);
    CHECK_STATUS(OK, nccl_self_test(&queue)); /* would wait for the end of the group */
}
