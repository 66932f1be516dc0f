// SPDX-License-Identifier: Apache-2.0
#include "base/full_disk.h"

#include "test.h"

#include <signal.h>
#include <sys/resource.h>

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    CHECK(!getrlimit(RLIMIT_FSIZE, &limit));
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
}

void full_disk_begin(unsigned bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    limit_files(bytes);
}

void full_disk_end(void) { limit_files(RLIM_INFINITY); }
