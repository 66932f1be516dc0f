// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "machine/gpu.h"
#include "machine/launch.h"

static const char *const variables[] = {
#define X(name, rank, size) rank, size,
    LAUNCHER_LIST(X)
#undef X
};

static void unset_all(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
}

TEST(launch_reads_the_variables_of_each_launcher)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i += 2) {
        unset_all();
        setenv(variables[i], "2", 1), setenv(variables[i + 1], "6", 1);
        struct launch l = launch_find();
        CHECK(l.launcher && l.rank == 2 && l.size == 6);
    }
    unset_all();
}

TEST(launch_sets_variables_of_gpu_drivers_unless_the_user_has)
{
    struct comm world;
    if (!gpu_backend) skip();
    unset_all();
    unsetenv("GPU_MAX_HW_QUEUES"), unsetenv("GPU_SINGLE_ALLOC_PERCENT");
    unsetenv("DEBUG_HIP_DYNAMIC_QUEUES");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "7", 1);
    CHECK_STATUS(OK, launch_open(&world));
    launch_close(&world, STATUS_OK);
    CHECK(!strcmp(getenv("GPU_MAX_HW_QUEUES"), "48"));
    CHECK(!strcmp(getenv("DEBUG_HIP_DYNAMIC_QUEUES"), "0"));
    CHECK(!strcmp(getenv("GPU_SINGLE_ALLOC_PERCENT"), "100"));
    CHECK(!strcmp(getenv("CUDA_DEVICE_MAX_CONNECTIONS"), "7"));
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS"), unsetenv("GPU_MAX_HW_QUEUES");
    unsetenv("GPU_SINGLE_ALLOC_PERCENT"), unsetenv("DEBUG_HIP_DYNAMIC_QUEUES");
}

TEST(launch_prefers_mpirun_to_the_slurm_step_around_it)
{
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    setenv("OMPI_COMM_WORLD_RANK", "5", 1), setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
    struct launch l = launch_find();
    CHECK(l.rank == 5 && l.size == 8);
    unset_all();
}

TEST(launch_ignores_malformed_variables)
{
    static const char *const malformed[][2] = {
        {"0", ""}, {"0", "x"}, {"4", "4"}, {"-1", "4"}, {"0", "99999999999999999999"}, {"1 ", "4"}};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        setenv("PMI_RANK", malformed[i][0], 1), setenv("PMI_SIZE", malformed[i][1], 1);
        CHECK(!launch_find().launcher);
    }
    unset_all();
}

TEST(launch_refuses_the_ranks_of_torchrun)
{
    struct comm world;
    unset_all();
    setenv("RANK", "1", 1), setenv("WORLD_SIZE", "4", 1);
    CHECK_STATUS(UNSUPPORTED, launch_open(&world));
    CHECK_MESSAGE("RANK=1 and WORLD_SIZE=4, as torchrun sets them: each of the 4 processes would");
    setenv("WORLD_SIZE", "1", 1);
    CHECK_STATUS(OK, launch_open(&world));
    launch_close(&world, STATUS_OK);
    unsetenv("RANK"), unsetenv("WORLD_SIZE");
}

TEST(launch_of_one_rank_opens_no_library)
{
    struct comm world;
    unset_all();
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_NTASKS", "8", 1); /* set inside a batch script */
    CHECK_STATUS(OK, launch_open(&world));
    CHECK(world.size == 1 && !strcmp(world.transport->name, "self"));
    launch_close(&world, STATUS_OK);
    launch_abort(70);
    unsetenv("SLURM_NTASKS");
    unset_all();
}

TEST(launch_without_mpi_reports_how_to_start_ranks)
{
    struct comm world;
    setenv("SLURM_PROCID", "0", 1), setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    CHECK_STATUS(UNSUPPORTED, launch_open(&world));
    CHECK_MESSAGE("srun started 2 ranks");
    CHECK_MESSAGE("MPI");
    unset_all();
}

TEST(launch_finds_gpus_only_in_a_program_for_them)
{
    struct launch_gpus gpus;
    if (gpu_backend) skip();
    CHECK_STATUS(UNSUPPORTED, launch_find_gpus("all", &gpus));
    CHECK_MESSAGE("device.gpus = \"all\": this program was built without a GPU backend");
}

TEST(launch_knows_the_node_of_each_selected_gpu)
{
    struct launch_gpus installed = {.count = GPU_LIST_MAX + 2}, gpus;
    struct gpu_list list;
    for (int i = 0; i < GPU_LIST_MAX; i++) installed.nodes[i] = 3 - i / 2;
    CHECK_STATUS(OK, gpu_list_read("4,5,1", installed.count, &list));
    launch_select_gpus(&installed, &list, &gpus);
    CHECK(gpus.count == 3);
    CHECK(gpus.nodes[0] == 1 && gpus.nodes[1] == 1 && gpus.nodes[2] == 3);
    CHECK_STATUS(OK, gpu_list_read("65,0", installed.count, &list));
    launch_select_gpus(&installed, &list, &gpus);
    CHECK(gpus.count == 2 && gpus.nodes[0] == -1 && gpus.nodes[1] == 3);
}

TEST(launch_of_one_own_rank_is_this_process)
{
    bool is_rank = false;
    unset_all();
    CHECK_STATUS(OK, launch_ranks(1, NULL, &is_rank));
    CHECK(is_rank);
    setenv("PMI_RANK", "0", 1), setenv("PMI_SIZE", "3", 1);
    CHECK_STATUS(CONFIG, launch_ranks(2, NULL, &is_rank));
    CHECK_MESSAGE("has started 3 ranks already, and each would start 2");
    unset_all();
}
