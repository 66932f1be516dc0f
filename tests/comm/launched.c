// SPDX-License-Identifier: Apache-2.0
#include "comm/launched.h"

#include "base/log.h"
#include "machine/launch.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
    const char *name;
    enum status (*body)(const struct comm *world);
} bodies[32];
static int num_bodies;

void launched_register(const char *name, enum status (*body)(const struct comm *world))
{
    BUG_IF(num_bodies == sizeof bodies / sizeof *bodies);
    bodies[num_bodies].name = name, bodies[num_bodies++].body = body;
}

int launched_main(const char *name)
{
    struct comm world;
    int at = 0;
    while (at < num_bodies && strcmp(bodies[at].name, name) != 0) at++;
    BUG_IF(at == num_bodies);
    enum status st = launch_open(&world);
    if (!st) st = bodies[at].body(&world);
    launch_close(&world, st);
    if (!st) return 0;
    fprintf(stderr, "rank %d: %s: %s\n%s", launch_find().rank, status_name(st), status_message(),
            status_stack());
    launch_abort(status_exit_code(st));
    return status_exit_code(st);
}

int launched_start(const char *size, const char *name)
{
    bool is_rank;
    enum status st = launch_ranks(atoi(size), NULL, &is_rank);
    if (!st && is_rank) return launched_main(name);
    if (st) log_failure(st);
    return status_exit_code(st);
}

int launched_command(int size, const char *const *command, struct text *out, struct text *err)
{
    enum { MAX_WORDS = 60 };
    /* Read by Open MPI (PRTE: by version 5): tests may run as root, in a container, on fewer cores
     * than ranks.  Without -pci, hwloc in each rank reads the names of all PCI devices with many
     * reallocs, which touch 1.6 GB under ASan. */
    static const char *const settings[][2] = {
        {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
        {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
        {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
        {"OMPI_MCA_hwloc_base_binding_policy", "none"},
        {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
        {"HWLOC_COMPONENTS", "-pci"},
        {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
        {"PRTE_MCA_hwloc_default_binding_policy", "none"},
    };
    char number[16];
    const char *launcher = getenv("LLAMERO_MPIRUN");
    if (!launcher) launcher = "mpirun";
    if (test_run((const char *const[]){"which", launcher, NULL}, NULL, NULL)) {
        print_message("%s is not installed\n", launcher);
        return -1;
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        setenv(settings[i][0], settings[i][1], 1);
    snprintf(number, sizeof number, "%d", size);
    /* MPI libraries keep memory of plugins that they unload.  Leaks of ranks are checked where
     * ranks are threads. */
    const char *words[MAX_WORDS + 1] = {"timeout", "300", "env", "ASAN_OPTIONS=detect_leaks=0",
                                        launcher,  "-n",  number};
    for (int n = 7; *command; n++) {
        CHECK(n < MAX_WORDS);
        words[n] = *command++;
    }
    return test_run(words, out, err);
}

int launched_run(int size, const char *name, struct text *err)
{
    char self[4096] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    return launched_command(size, (const char *const[]){self, "--ranks", name, NULL}, NULL, err);
}

int launched_run_here(int size, const char *name, struct text *err)
{
    char self[4096] = "", number[16];
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(number, sizeof number, "%d", size);
    return test_run((const char *const[]){"timeout", "300", self, "--launch", number, name, NULL},
                    NULL, err);
}
