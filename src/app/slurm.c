// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/preflight.h"
#include "base/file.h"
#include "base/log.h"
#include "machine/machine.h"
#include "slurm/script.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct paths {
    char program[PATH_MAX], folder[PATH_MAX], name[64];
};

/* Where this program and its files are, and a name from the configuration's. */
static enum status find_paths(struct paths *p, const char *config)
{
    ssize_t n = readlink("/proc/self/exe", p->program, sizeof p->program - 1);
    if (n < 0) FAIL(IO, "/proc/self/exe: %s", strerror(errno));
    p->program[n] = 0;
    if (!getcwd(p->folder, sizeof p->folder))
        FAIL(IO, "the folder this runs in: %s", strerror(errno));
    const char *base = strrchr(config, '/') ? strrchr(config, '/') + 1 : config;
    size_t len = strlen(base), end = len > 5 && !strcmp(base + len - 5, ".toml") ? len - 5 : len;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(end < sizeof p->name ? end : sizeof p->name),
             base);
    for (char *c = p->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c)) *c = '-';
    return STATUS_OK;
}

/* A file rather than a pipe: sbatch may end before it has read all. */
static enum status submit(const struct text *script)
{
    const char *const argv[] = {"sbatch", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int code;
    FILE *f = tmpfile();
    if (!f) FAIL(IO, "a temporary file: %s", strerror(errno));
    bool written = fwrite(script->data, 1, script->len, f) == script->len && !fflush(f);
    rewind(f);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(f), 0);
    int error = written ? posix_spawnp(&child, argv[0], &actions, NULL,
                                       (char *const *)(uintptr_t)argv, environ)
                        : EIO;
    posix_spawn_file_actions_destroy(&actions);
    fclose(f);
    if (error) FAIL(MISSING, "sbatch could not be run: %s", strerror(error));
    if (waitpid(child, &code, 0) != child || !WIFEXITED(code) || WEXITSTATUS(code))
        FAIL(IO, "sbatch refused the job");
    return STATUS_OK;
}

static enum status check_flags(struct batch *b)
{
    int64_t seconds;
    if (b->nodes < 1 || b->nodes > 1 << 20)
        FAIL(USAGE, "--nodes: %lld; 1 to %d are possible", (long long)b->nodes, 1 << 20);
    if (b->ranks_per_node < 1 || b->ranks_per_node * b->nodes > 1 << 24)
        FAIL(USAGE, "--ranks-per-node: %lld; at least 1, and up to 2^24 ranks in all",
             (long long)b->ranks_per_node);
    if (b->cpus_per_rank < 0 || b->cpus_per_rank > 4096)
        FAIL(USAGE, "--cpus-per-rank: %lld; 0 to 4096", (long long)b->cpus_per_rank);
    if (b->gpus_per_node < -1 || b->gpus_per_node > 4096)
        FAIL(USAGE, "--gpus-per-node: %lld; 0 to 4096", (long long)b->gpus_per_node);
    if (!b->time[0]) FAIL(USAGE, "--time is wanted: minutes, or hours:minutes:seconds");
    TRY(batch_seconds(b->time, &seconds));
    if (b->signal_before_s < 0) b->signal_before_s = seconds / 4 < 300 ? seconds / 4 : 300;
    if (b->signal_before_s < 1 || b->signal_before_s >= seconds || b->signal_before_s > 65535)
        FAIL(USAGE,
             "--signal-before: %lld s before the end of %lld s; 1 to 65535, and less than all",
             (long long)b->signal_before_s, (long long)seconds);
    if (strcmp(b->mpi, "pmix") && strcmp(b->mpi, "pmi2"))
        FAIL(USAGE, "--mpi: \"%s\" is neither pmix nor pmi2", b->mpi);
    TRY(batch_word("partition", b->partition));
    TRY(batch_word("account", b->account));
    return batch_word("interface", b->interface);
}

static void describe(const struct mesh *m, int64_t ranks, struct text *remark)
{
    text_addf(remark, "llamero slurm: %lld rank%s,", (long long)ranks, ranks == 1 ? "" : "s");
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        text_addf(remark, "%s %s %d", a ? " x" : "", mesh_axis_name(a), m->degree[a]);
}

/* Writes the script, once the configuration is known to be right. */
static enum status make(struct batch *b, const struct config *c, struct text *script)
{
    struct preflight p;
    struct paths paths;
    struct text remark = {0};
    int64_t ranks = b->nodes * b->ranks_per_node;
    bool gpu;
    TRY(machine_uses_gpu(&c->device, &gpu));
    if (b->gpus_per_node < 0) b->gpus_per_node = gpu ? b->ranks_per_node : 0;
    if (b->gpus_per_node && !gpu)
        log_line(LOG_WARN, "--gpus-per-node: ranks will compute on the cores, as %s",
                 c->device.kind == DEVICE_KIND_cpu
                     ? "device.kind = \"cpu\" asks"
                     : "this program was built without a GPU backend");
    TRY(preflight(&p, c, (int)ranks));
    TRY(find_paths(&paths, b->config));
    if (!b->cpus_per_rank) b->cpus_per_rank = c->device.threads;
    describe(&p.mesh, ranks, &remark);
    char *checkpoints = file_join(c->job.dump_folder, c->checkpoint.folder);
    b->name = paths.name, b->program = paths.program, b->folder = paths.folder;
    b->checkpoints = checkpoints, b->remark = remark.data;
    batch_write(b, script);
    free(checkpoints);
    text_release(&remark);
    return STATUS_OK;
}

enum status command_slurm(int argc, char **argv)
{
    bool send = false;
    struct batch b = {.time = "",
                      .partition = "",
                      .account = "",
                      .ranks_per_node = 1,
                      .gpus_per_node = -1,
                      .signal_before_s = -1,
                      .mpi = "pmix",
                      .interface = ""};
    const struct flag flags[] = {
        {"nodes", FLAG_INT, &b.nodes, "nodes of the job"},
        {"time", FLAG_TEXT, &b.time, "limit, as Slurm takes it: 90, 12:00:00, 1-12"},
        {"ranks-per-node", FLAG_INT, &b.ranks_per_node, "ranks on each node (default 1)"},
        {"cpus-per-rank", FLAG_INT, &b.cpus_per_rank,
         "default device.threads; 0: whole nodes, shared out by their ranks"},
        {"gpus-per-node", FLAG_INT, &b.gpus_per_node,
         "default: one for each rank, where this program computes on GPUs"},
        {"partition", FLAG_TEXT, &b.partition, "Slurm's partition (default: the site's)"},
        {"account", FLAG_TEXT, &b.account, "whose time it is (default: the site's)"},
        {"signal-before", FLAG_INT, &b.signal_before_s,
         "seconds before the limit when the run writes a checkpoint and ends (default 300, or a "
         "quarter of the time)"},
        {"interface", FLAG_TEXT, &b.interface, "network between nodes, as hsn0 or ib0"},
        {"mpi", FLAG_TEXT, &b.mpi, "pmix (Open MPI, the default) or pmi2 (MPICH)"},
        {"submit", FLAG_SWITCH, &send, "give the script to sbatch instead of printing it"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(
        &a, flags,
        "slurm CONFIG --nodes N --time T [--submit] [section.key=value ...]\n\n"
        "Prints a batch script that trains what CONFIG describes, once that is checked as\n"
        "`check --ranks` does.  Before its time is over the run writes a checkpoint, and the\n"
        "job is queued again; so it is when a rank or a node dies, while checkpoints are\n"
        "written in between.  It runs in the folder this command is run in.",
        1, 1, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(check_flags(&b));
    b.config = a.words[0], b.settings = a.settings, b.num_settings = a.num_settings;
    struct config c;
    struct text script = {0};
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&c, a.words[0], a.settings, a.num_settings));
    TRY_OUT(make(&b, &c, &script));
    if (send)
        TRY_OUT(submit(&script));
    else
        printf("%s", script.data);
out:
    text_release(&script);
    config_release(&c);
    return st;
}
