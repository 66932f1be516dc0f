// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
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

/* The path of this program, the current folder, and a job name made from the configuration's. */
static enum status find_paths(struct paths *p, const char *config)
{
    ssize_t n = readlink("/proc/self/exe", p->program, sizeof p->program - 1);
    if (n < 0) FAIL(IO, "/proc/self/exe: %s", strerror(errno));
    p->program[n] = 0;
    if (!getcwd(p->folder, sizeof p->folder))
        FAIL(IO, "cannot get the current folder: %s", strerror(errno));
    const char *base = file_name(config);
    size_t len = strlen(base), end = file_has_suffix(base, ".toml") ? len - 5 : len;
    snprintf(p->name, sizeof p->name, "%.*s", (int)(end < sizeof p->name ? end : sizeof p->name),
             base);
    for (char *c = p->name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-", *c)) *c = '-';
    return STATUS_OK;
}

/* Uses a file, not a pipe: sbatch may exit before it has read everything. */
static enum status submit(const struct text *script)
{
    const char *const argv[] = {"sbatch", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int code;
    FILE *f = tmpfile();
    if (!f) FAIL(IO, "cannot create a temporary file: %s", strerror(errno));
    if (fwrite(script->data, 1, script->len, f) != script->len || fflush(f)) {
        enum status st = FAILURE(IO, "cannot write a temporary file: %s", strerror(errno));
        fclose(f);
        return st;
    }
    rewind(f);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fileno(f), 0);
    int error =
        posix_spawnp(&child, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    fclose(f);
    if (error) FAIL(MISSING, "cannot run sbatch: %s", strerror(error));
    if (waitpid(child, &code, 0) != child || !WIFEXITED(code) || WEXITSTATUS(code))
        FAIL(IO, "sbatch rejected the job");
    return STATUS_OK;
}

enum { UNSET = INT64_MIN };

static enum status check_flags(struct slurm_script *b)
{
    int64_t seconds;
    bool has_nodes = b->nodes != UNSET;
    if (!has_nodes || !b->time[0])
        FAIL(USAGE,
             "slurm: %s%s%s required: llamero slurm CONFIG --nodes N --time T, such as "
             "--nodes 2 --time 12:00:00",
             has_nodes ? "" : "--nodes", has_nodes || b->time[0] ? "" : " and ",
             b->time[0]  ? " is"
             : has_nodes ? "--time is"
                         : "--time are");
    if (b->ranks_per_node > PREFLIGHT_MAX_RANKS / b->nodes)
        FAIL(USAGE, "--ranks-per-node: must be at most %lld, %d ranks in total; is %lld",
             (long long)(PREFLIGHT_MAX_RANKS / b->nodes), PREFLIGHT_MAX_RANKS,
             (long long)b->ranks_per_node);
    TRY(script_parse_time(b->time, &seconds));
    if (b->signal_before_s == UNSET)
        b->signal_before_s = seconds < 4 ? 1 : seconds / 4 < 300 ? seconds / 4 : 300;
    if (b->signal_before_s >= seconds)
        FAIL(USAGE, "--signal-before: must be less than the time limit of %lld s, is %lld s",
             (long long)seconds, (long long)b->signal_before_s);
    TRY(script_check_word("partition", b->partition));
    TRY(script_check_word("account", b->account));
    return script_check_word("interface", b->interface);
}

static void format_remark(const struct mesh *m, int64_t ranks, struct text *remark)
{
    text_addf(remark, "llamero slurm: %lld rank%s,", (long long)ranks, ranks == 1 ? "" : "s");
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        text_addf(remark, "%s %s %d", a ? " x" : "", mesh_axis_name(a), m->degree[a]);
}

/* Writes the script after the configuration has passed all checks. */
static enum status make_script(struct slurm_script *b, const struct config *c, struct text *script)
{
    struct preflight p = {0};
    struct paths paths;
    struct text remark = {0};
    int64_t ranks = b->nodes * b->ranks_per_node;
    bool gpu;
    TRY(machine_uses_gpu(&c->device, &gpu));
    if (b->gpus_per_node == UNSET) b->gpus_per_node = gpu ? b->ranks_per_node : 0;
    if (b->gpus_per_node && !gpu)
        log_line(LOG_WARN, "--gpus-per-node: ranks will compute on the CPU, because %s",
                 c->device.kind == DEVICE_KIND_cpu
                     ? "device.kind = \"cpu\""
                     : "this program was built without a GPU backend");
    const struct preflight_options o = {.num_ranks = (int)ranks, .place = PREFLIGHT_JOB};
    enum status st = preflight(&p, c, &o);
    preflight_release(&p);
    TRY(st);
    TRY(find_paths(&paths, b->config));
    if (b->cpus_per_rank == UNSET) b->cpus_per_rank = c->device.threads;
    format_remark(&p.mesh, ranks, &remark);
    char *checkpoints = file_join(c->job.dump_folder, c->checkpoint.folder);
    b->name = paths.name, b->program = paths.program, b->folder = paths.folder;
    b->checkpoints = checkpoints, b->remark = remark.data;
    script_write(b, script);
    free(checkpoints);
    text_release(&remark);
    return STATUS_OK;
}

static const struct usage usage = {
    "slurm",
    {{NULL,
      {USAGE_ONE(FILE, "CONFIG"), USAGE_FLAGS("--nodes N --time T [--submit]"), USAGE_SETTINGS}}},
    "Checks CONFIG as `check --ranks` does (but neither device, memory nor initial weights, which\n"
    "may differ in the job) and prints a batch script that trains it in the current folder.\n"
    "Before the time limit the run saves a checkpoint and the job is requeued; also after a\n"
    "rank or a node dies, as long as new checkpoints are saved in between.",
};

enum status command_slurm(int argc, char **argv)
{
    bool send = false;
    int mpi = SLURM_MPI_pmix;
    struct slurm_script b = {.nodes = UNSET,
                             .time = "",
                             .partition = "",
                             .account = "",
                             .ranks_per_node = 1,
                             .cpus_per_rank = UNSET,
                             .gpus_per_node = UNSET,
                             .signal_before_s = UNSET,
                             .interface = ""};
    const struct flag flags[] = {
        {"nodes", FLAG_INT(1, 1 << 20), &b.nodes, "number of nodes"},
        {"time", FLAG_TEXT, &b.time, "time limit in Slurm's format: 90, 12:00:00, 1-12"},
        {"ranks-per-node", FLAG_INT(1, PREFLIGHT_MAX_RANKS), &b.ranks_per_node,
         "ranks on each node"},
        {"cpus-per-rank", FLAG_INT(0, 4096), &b.cpus_per_rank,
         "cores of each rank (default device.threads; 0: divide whole nodes among their ranks)"},
        {"gpus-per-node", FLAG_INT(0, 4096), &b.gpus_per_node,
         "GPUs on each node (default: one per rank, if the run uses GPUs)"},
        {"partition", FLAG_TEXT, &b.partition, "Slurm partition (default: the site's)"},
        {"account", FLAG_TEXT, &b.account, "account to charge (default: the site's)"},
        {"signal-before", FLAG_INT(1, 65535), &b.signal_before_s,
         "seconds before the time limit at which the run saves a checkpoint and exits (default "
         "300, at most a quarter of the limit)"},
        {"interface", FLAG_TEXT, &b.interface, "network interface between nodes, e.g. hsn0, ib0"},
        {"mpi", FLAG_CHOICE(OPT_UNIT_ENUM(SLURM_MPI)), &mpi,
         "how ranks start: pmix for Open MPI, pmi2 for MPICH, cray_shasta for Cray MPICH where "
         "Slurm has that plugin"},
        {"submit", FLAG_SWITCH, &send, "submit the script with sbatch instead of printing it"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    TRY(check_flags(&b));
    b.mpi = (enum slurm_mpi)mpi;
    b.config = a.words[0], b.settings = a.settings, b.num_settings = a.num_settings;
    struct config c;
    struct text script = {0};
    enum status st = STATUS_OK;
    TRY_OUT(config_load(&c, a.words[0], a.settings, a.num_settings));
    TRY_OUT(make_script(&b, &c, &script));
    if (send)
        TRY_OUT(submit(&script));
    else
        printf("%s", script.data);
out:
    text_release(&script);
    config_release(&c);
    return st;
}
