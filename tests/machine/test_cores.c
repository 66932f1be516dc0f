// SPDX-License-Identifier: Apache-2.0
#include "base/host.h"
#include "comm/ranks.h"
#include "test.h"

#include "base/thread.h"
#include "machine/cores.h"

static enum status check_share(const struct comm *world, void *context)
{
    int cores, want = thread_cores() / world->size;
    (void)context;
    TRY(cores_per_rank(world, &cores));
    RANK_CHECK(cores == (want ? want : 1));
    return STATUS_OK;
}

TEST(cores_are_divided_among_ranks_that_share_them)
{
    for (int size = 2; size <= 5; size++) CHECK_STATUS(OK, ranks_run(size, check_share, NULL));
}

static enum status check_hosts(const struct comm *world, void *context)
{
    char host[256];
    struct text line = {0}, want = {0};
    (void)context;
    host_name(host, sizeof host);
    text_addf(&want, "%d on 1 host (%.63s)", world->size, host);
    enum status st = cores_describe_hosts(world, &line);
    bool same = !st && !strcmp(line.data, want.data);
    text_release(&line), text_release(&want);
    TRY(st);
    RANK_CHECK(same);
    return STATUS_OK;
}

TEST(cores_names_a_host_of_several_ranks_once)
{
    CHECK_STATUS(OK, ranks_run(3, check_hosts, NULL));
}
