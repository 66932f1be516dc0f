// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "machine/launch.h"

static const char *const variables[] = {
#define X(name, rank, size) rank, size,
    LAUNCHER_LIST(X)
#undef X
};

static void forget(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
}

TEST(launch_reads_what_each_launcher_sets)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i += 2) {
        forget();
        setenv(variables[i], "2", 1), setenv(variables[i + 1], "6", 1);
        struct launch l = launch_find();
        CHECK(l.launcher && l.rank == 2 && l.size == 6);
    }
    forget();
}

TEST(launch_prefers_mpirun_to_the_slurm_step_it_runs_in)
{
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1), setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    struct launch l = launch_find();
    CHECK(l.rank == 5 && l.size == 8);
    forget();
}

TEST(launch_takes_no_rubbish_for_a_launcher)
{
    static const char *const rubbish[][2] = {
        {"0", ""}, {"0", "x"}, {"4", "4"}, {"-1", "4"}, {"0", "99999999999999999999"}, {"1 ", "4"}};
    for (size_t i = 0; i < sizeof rubbish / sizeof *rubbish; i++) {
        setenv("PMI_RANK", rubbish[i][0], 1), setenv("PMI_SIZE", rubbish[i][1], 1);
        CHECK(!launch_find().launcher);
    }
    forget();
}

TEST(launch_of_one_rank_opens_no_library)
{
    struct comm world;
    forget();
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_NTASKS", "8", 1); /* a batch script's */
    CHECK_STATUS(OK, launch_open(&world));
    CHECK(world.size == 1 && !strcmp(world.transport->name, "self"));
    launch_close(&world, STATUS_OK);
    launch_abort(70);
    unsetenv("SLURM_NTASKS");
    forget();
}

TEST(launch_without_mpi_says_how_to_start_the_ranks)
{
    struct comm world;
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    CHECK_STATUS(UNSUPPORTED, launch_open(&world));
    CHECK_MESSAGE("srun started 2 ranks");
    CHECK_MESSAGE("MPI");
    forget();
}
