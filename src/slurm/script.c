// SPDX-License-Identifier: Apache-2.0
#include "slurm/script.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum status script_check_word(const char *flag, const char *word)
{
    const char *bad = word;
    while (isalnum((unsigned char)*bad) || (*bad && strchr("_.,:+-@/=", *bad))) bad++;
    if (*bad) FAIL(USAGE, "--%s: \"%s\": expected only letters, digits and _.,:+-@/=", flag, word);
    return STATUS_OK;
}

/* An integer below 10^6. */
static bool parse_number(const char **at, int64_t *number)
{
    const char *begin = *at;
    *number = 0;
    while (isdigit((unsigned char)**at) && *at - begin < 6) *number = 10 * *number + *(*at)++ - '0';
    return *at > begin;
}

enum status script_parse_time(const char *time, int64_t *seconds)
{
    /* The unit of each number: after days, hours come first; without days, the last of several is
     * seconds. */
    static const int64_t after_days[] = {3600, 60, 1},
                         no_days[][3] = {{60}, {60, 1}, {3600, 60, 1}};
    int64_t numbers[3] = {0}, days = 0;
    const char *at = time;
    int n = 0;
    bool good = parse_number(&at, &numbers[n++]), has_days = good && *at == '-';
    if (has_days) at++, days = numbers[0], good = parse_number(&at, &numbers[0]);
    while (good && *at == ':' && n < 3) at++, good = parse_number(&at, &numbers[n++]);
    if (!good || *at)
        FAIL(USAGE,
             "--time: \"%s\": expected minutes, [hours:]minutes:seconds or days-hours[:minutes"
             "[:seconds]]",
             time);
    const int64_t *unit = has_days ? after_days : no_days[n - 1];
    *seconds = days * 86400;
    for (int i = 0; i < n; i++) *seconds += numbers[i] * unit[i];
    if (!*seconds) FAIL(USAGE, "--time: \"%s\": must be greater than 0", time);
    return STATUS_OK;
}

static void write_head(const struct slurm_script *b, struct text *t)
{
    text_addf(t,
              "#!/bin/sh\n"
              "#SBATCH --job-name=%s\n"
              "#SBATCH --nodes=%lld\n"
              "#SBATCH --ntasks-per-node=%lld\n",
              b->name, (long long)b->nodes, (long long)b->ranks_per_node);
    if (b->cpus_per_rank)
        text_addf(t, "#SBATCH --cpus-per-task=%lld\n", (long long)b->cpus_per_rank);
    else
        text_adds(t, "#SBATCH --exclusive\n#SBATCH --mem=0\n");
    if (b->gpus_per_node)
        text_addf(t, "#SBATCH --gpus-per-node=%lld\n", (long long)b->gpus_per_node);
    text_addf(t, "#SBATCH --time=%s\n", b->time);
    if (b->partition[0]) text_addf(t, "#SBATCH --partition=%s\n", b->partition);
    if (b->account[0]) text_addf(t, "#SBATCH --account=%s\n", b->account);
    text_addf(t,
              "#SBATCH --signal=B:USR1@%lld\n"
              "#SBATCH --requeue\n"
              "#SBATCH --open-mode=append\n"
              "#SBATCH --output=%%x-%%j.out\n"
              "# %s\n",
              (long long)b->signal_before_s, b->remark);
}

static void write_environment(const struct slurm_script *b, struct text *t)
{
    static const char *const interfaces[] = {"OMPI_MCA_btl_tcp_if_include",
                                             "OMPI_MCA_oob_tcp_if_include", "FI_TCP_IFACE",
                                             "NCCL_SOCKET_IFNAME"};
    text_adds(t, "\ncd ");
    text_add_shell(t, b->folder);
    text_adds(t, " || exit 66\n");
    if (b->cpus_per_rank)
        text_addf(t, "threads=%lld\n", (long long)b->cpus_per_rank);
    else
        text_addf(t,
                  "threads=$((SLURM_CPUS_ON_NODE / %lld))\n"
                  "test \"$threads\" -gt 0 || threads=1\n",
                  (long long)b->ranks_per_node);
    text_adds(t, "export OMP_NUM_THREADS=\"$threads\"\n");
    if (b->mpi == SLURM_MPI_pmix)
        text_adds(t,
                  "# Before Slurm 24.05 the default PMIx fence may release a rank too early, and "
                  "Open MPI\n# then crashes in a few percent of starts.\n"
                  "export SLURM_PMIX_FENCE=ring\n");
    for (size_t i = 0; b->interface[0] && i < sizeof interfaces / sizeof *interfaces; i++) {
        text_addf(t, "export %s=", interfaces[i]);
        text_add_shell(t, b->interface);
        text_adds(t, "\n");
    }
}

static void write_step(const struct slurm_script *b, struct text *t)
{
    text_adds(t, "\n# Lists the checkpoints.\nsaved() {\n    for folder in ");
    text_add_shell(t, b->checkpoints);
    text_adds(t, "/step-*; do\n"
                 "        case \"${folder##*/step-}\" in *[!0-9]*) ;; *) echo \"$folder\" ;; esac\n"
                 "    done\n"
                 "}\n"
                 "before=$(saved)\n\n"
                 "# Slurm signals only this shell, which forwards the signal to the ranks while it "
                 "waits for them.\n"
                 "# USR1: the time limit is near.  TERM without USR1 before it: the job was "
                 "cancelled.\n"
                 "signalled='' cancelled='' step=''\n"
                 "forward() {\n"
                 "    signalled=1\n"
                 "    test -z \"$step\" || kill -USR1 \"$step\" 2>/dev/null\n"
                 "}\n"
                 "trap forward USR1\n"
                 "trap 'test -n \"$signalled\" || cancelled=1; forward' TERM\n");
    /* All ranks end together; after one has died, the others get 15 s. */
    text_addf(t,
              "srun --mpi=%s --nodes=%lld --ntasks-per-node=%lld --cpus-per-task=\"$threads\" \\\n"
              "    --cpu-bind=cores --kill-on-bad-exit=0 --wait=15 \\\n    ",
              slurm_mpi_word(b->mpi), (long long)b->nodes, (long long)b->ranks_per_node);
    text_add_shell(t, b->program);
    text_adds(t, " train ");
    for (int i = 0; i < b->num_settings; i++) {
        text_add_shell(t, b->settings[i]);
        text_adds(t, " ");
    }
    text_adds(t, "-- ");
    text_add_shell(t, b->config);
    text_adds(t, " &\nstep=$!\n"
                 "test -z \"$signalled\" || forward\n"
                 "while :; do\n"
                 "    wait \"$step\"\n"
                 "    code=$?\n"
                 "    kill -0 \"$step\" 2>/dev/null || break\n"
                 "done\n");
}

/* Exit code 75 requeues the job unless it was cancelled.  Permanent errors end it.  Anything else
 * (a rank, a node or a device failed, or the run hung) requeues it, but after three restarts only
 * if a checkpoint was saved since. */
static void write_end(struct text *t)
{
    text_adds(t, "\nrequeue() {\n"
                 "    test -z \"$cancelled\" || return\n"
                 "    echo \"exit code $code: requeueing the job\"\n"
                 "    scontrol requeue \"$SLURM_JOB_ID\"\n"
                 "}\n"
                 "case \"$code\" in\n"
                 "0 | 64 | 65 | 66 | 70 | 74 | 78 | 80) ;;\n"
                 "75) requeue ;;\n"
                 "*) # 81, 82, 83, a lost node: requeue, but stop if restarts gain no checkpoint\n"
                 "    if [ \"$(saved)\" != \"$before\" ] || "
                 "[ \"${SLURM_RESTART_COUNT:-0}\" -lt 3 ]; then requeue; fi ;;\n"
                 "esac\n"
                 "exit \"$code\"\n");
}

void script_write(const struct slurm_script *b, struct text *script)
{
    write_head(b, script);
    write_environment(b, script);
    write_step(b, script);
    write_end(script);
}
