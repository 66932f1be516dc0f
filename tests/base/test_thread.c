// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

static int cores_now(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return CPU_COUNT(&set);
}

TEST(pinned_thread_has_one_core_until_it_is_unpinned)
{
    CHECK(thread_cores() == cores_now());
    for (int n = 0; n < thread_cores(); n++) {
        thread_pin(n);
        CHECK(cores_now() == 1);
        CHECK(thread_cores() >= 1);
    }
    thread_pin(-1);
    CHECK(cores_now() == thread_cores());
    thread_pin(thread_cores()); /* past the last core: unpins */
    CHECK(cores_now() == thread_cores());
}

struct observation {
    int cores, priority;
};

static void *observe(void *context)
{
    struct observation *s = context;
    s->cores = cores_now(), s->priority = getpriority(PRIO_PROCESS, (id_t)gettid());
    return context;
}

TEST(background_thread_may_use_every_core_at_lower_priority)
{
    pthread_t thread;
    struct observation seen = {0};
    void *result;
    thread_pin(0);
    enum status st = thread_start_background(&thread, observe, &seen);
    thread_pin(-1);
    CHECK_STATUS(OK, st);
    CHECK(pthread_join(thread, &result) == 0 && result == &seen);
    CHECK(seen.cores == thread_cores());
    CHECK(seen.priority > getpriority(PRIO_PROCESS, 0) || seen.priority == 19);
}

TEST(foreground_thread_keeps_the_priority_of_its_creator)
{
    pthread_t thread;
    struct observation seen = {0};
    CHECK_STATUS(OK, thread_start_foreground(&thread, observe, &seen));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(seen.cores == thread_cores());
    CHECK(seen.priority == getpriority(PRIO_PROCESS, 0));
}
