// SPDX-License-Identifier: Apache-2.0
#include "doctor/check.h"
#include "machine/launch.h"
#include "test.h"

#include <sys/resource.h>

static const struct finding *find(const struct findings *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->items[i].name, name)) return &f->items[i];
    return NULL;
}

TEST(check_program_prints_versions)
{
    struct findings f = {0};
    check_program(&f);
    CHECK(strstr(find(&f, "program")->text, "llamero " LLAMERO_VERSION));
    CHECK(strstr(find(&f, "libraries")->text, "oneDNN") &&
          strstr(find(&f, "libraries")->text, "PCRE2 10."));
    findings_release(&f);
}

TEST(check_ranks_warns_if_ranks_cannot_be_joined)
{
    static const char *const variables[] = {
#define X(name, rank, size) rank, size,
        LAUNCHER_LIST(X)
#undef X
    };
    struct findings f = {0}, unknown = {0};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    check_ranks(&f);
    CHECK(find(&f, "ranks")->level == LEVEL_OK);
    CHECK(strstr(find(&f, "ranks")->text, launch_library() ? launch_library() : "without MPI"));
    setenv("SLURM_PROCID", "3", 1), setenv("SLURM_STEP_NUM_TASKS", "8", 1); /* and no PMI */
    check_ranks(&unknown);
    unsetenv("SLURM_PROCID"), unsetenv("SLURM_STEP_NUM_TASKS");
    CHECK(find(&unknown, "ranks")->level == LEVEL_WARN);
    CHECK(strstr(find(&unknown, "ranks")->text, "rank 3 of 8, started by srun"));
    findings_release(&f);
    findings_release(&unknown);
}

TEST(check_limits_warns_about_a_low_limit)
{
    struct findings f = {0}, low = {0};
    struct rlimit old, few;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    few = old;
    few.rlim_cur = 100;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    check_limits(&low);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(find(&low, "open files")->level == LEVEL_WARN);
    CHECK(!strcmp(find(&low, "open files")->text, "100"));
    check_limits(&f);
    CHECK(f.count == low.count && !f.first.status);
    findings_release(&f);
    findings_release(&low);
}

TEST(processor_clock_memory_and_load_are_reported)
{
    struct findings f = {0};
    check_processor(&f);
    check_clock(&f);
    check_memory(&f);
    check_load(&f);
    CHECK(!f.first.status);
    CHECK(strstr(find(&f, "kernels")->text, "device.cpu"));
    CHECK(strstr(find(&f, "clock")->text, "ns per reading"));
    CHECK(strstr(find(&f, "memory")->text, "GiB"));
    CHECK(find(&f, "cores") && find(&f, "processor") && find(&f, "huge pages"));
    findings_release(&f);
}
