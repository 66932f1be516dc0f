// SPDX-License-Identifier: Apache-2.0
#include "slurm/script.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

void batch_quote(struct text *out, const char *word)
{
    text_adds(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            text_adds(out, "'\\''");
        else
            text_add(out, word, 1);
    text_adds(out, "'");
}

enum status batch_word(const char *flag, const char *word)
{
    const char *bad = word;
    while (isalnum((unsigned char)*bad) || (*bad && strchr("_.,:+-@/=", *bad))) bad++;
    if (*bad) FAIL(USAGE, "--%s: \"%s\" is no word for Slurm", flag, word);
    return STATUS_OK;
}

/* A whole number below 10^6. */
static bool take_number(const char **at, int64_t *number)
{
    const char *begin = *at;
    *number = 0;
    while (isdigit((unsigned char)**at) && *at - begin < 6) *number = 10 * *number + *(*at)++ - '0';
    return *at > begin;
}

enum status batch_seconds(const char *time, int64_t *seconds)
{
    /* What each number counts: behind days hours come first, without them the last are seconds. */
    static const int64_t behind_days[] = {3600, 60, 1}, alone[][3] = {{60}, {60, 1}, {3600, 60, 1}};
    int64_t numbers[3] = {0}, days = 0;
    const char *at = time;
    int n = 0;
    bool good = take_number(&at, &numbers[n++]), has_days = good && *at == '-';
    if (has_days) at++, days = numbers[0], good = take_number(&at, &numbers[0]);
    while (good && *at == ':' && n < 3) at++, good = take_number(&at, &numbers[n++]);
    if (!good || *at)
        FAIL(USAGE,
             "--time: \"%s\" is not minutes, [hours:]minutes:seconds or days-hours[:minutes"
             "[:seconds]]",
             time);
    const int64_t *unit = has_days ? behind_days : alone[n - 1];
    *seconds = days * 86400;
    for (int i = 0; i < n; i++) *seconds += numbers[i] * unit[i];
    if (!*seconds) FAIL(USAGE, "--time: \"%s\" is no time at all", time);
    return STATUS_OK;
}

static void write_head(const struct batch *b, struct text *t)
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

static void write_environment(const struct batch *b, struct text *t)
{
    static const char *const interfaces[] = {"OMPI_MCA_btl_tcp_if_include",
                                             "OMPI_MCA_oob_tcp_if_include", "FI_TCP_IFACE",
                                             "NCCL_SOCKET_IFNAME"};
    text_adds(t, "\ncd ");
    batch_quote(t, b->folder);
    text_adds(t, " || exit 66\n");
    if (b->cpus_per_rank)
        text_addf(t, "threads=%lld\n", (long long)b->cpus_per_rank);
    else
        text_addf(t,
                  "threads=$((SLURM_CPUS_ON_NODE / %lld))\n"
                  "test \"$threads\" -gt 0 || threads=1\n",
                  (long long)b->ranks_per_node);
    text_adds(t, "export OMP_NUM_THREADS=\"$threads\"\n");
    if (!strncmp(b->mpi, "pmix", 4))
        text_adds(t, "# Before Slurm 24.05 the default fence may let a rank go too early: Open MPI "
                     "then\n# crashes in a few starts of a hundred.\n"
                     "export SLURM_PMIX_FENCE=ring\n");
    for (size_t i = 0; b->interface[0] && i < sizeof interfaces / sizeof *interfaces; i++) {
        text_addf(t, "export %s=", interfaces[i]);
        batch_quote(t, b->interface);
        text_adds(t, "\n");
    }
}

static void write_step(const struct batch *b, struct text *t)
{
    text_adds(t, "\n# The checkpoints there are.\nsaved() {\n    for folder in ");
    batch_quote(t, b->checkpoints);
    text_adds(t, "/step-*; do\n"
                 "        case \"${folder##*/step-}\" in *[!0-9]*) ;; *) echo \"$folder\" ;; esac\n"
                 "    done\n"
                 "}\n"
                 "before=$(saved)\n\n"
                 "# Slurm signals this shell, which tells the ranks; it can only do so while it "
                 "waits.\n"
                 "# USR1: time is nearly over.  TERM without it: somebody cancels the job.\n"
                 "told='' cancelled='' step=''\n"
                 "pass_on() {\n"
                 "    told=1\n"
                 "    test -z \"$step\" || kill -USR1 \"$step\" 2>/dev/null\n"
                 "}\n"
                 "trap pass_on USR1\n"
                 "trap 'test -n \"$told\" || cancelled=1; pass_on' TERM\n");
    /* Ranks end together; where one is gone, the others have 15 s. */
    text_addf(t,
              "srun --mpi=%s --nodes=%lld --ntasks-per-node=%lld --cpus-per-task=\"$threads\" \\\n"
              "    --cpu-bind=cores --kill-on-bad-exit=0 --wait=15 \\\n    ",
              b->mpi, (long long)b->nodes, (long long)b->ranks_per_node);
    batch_quote(t, b->program);
    text_adds(t, " train ");
    for (int i = 0; i < b->num_settings; i++) {
        batch_quote(t, b->settings[i]);
        text_adds(t, " ");
    }
    text_adds(t, "-- ");
    batch_quote(t, b->config);
    text_adds(t, " &\nstep=$!\n"
                 "test -z \"$told\" || pass_on\n"
                 "while :; do\n"
                 "    wait \"$step\"\n"
                 "    code=$?\n"
                 "    kill -0 \"$step\" 2>/dev/null || break\n"
                 "done\n");
}

/* 75 says that there is more to do, unless somebody cancelled the job.  What other runs of the same
 * job would fail at, too, ends it; all else (a rank or a node that died) is tried again while
 * checkpoints are written. */
static void write_end(struct text *t)
{
    text_adds(t, "\nagain() {\n"
                 "    test -z \"$cancelled\" || return\n"
                 "    echo \"exit code $code: the job is queued again\"\n"
                 "    scontrol requeue \"$SLURM_JOB_ID\"\n"
                 "}\n"
                 "case \"$code\" in\n"
                 "0 | 64 | 65 | 66 | 70 | 74 | 78 | 80) ;;\n"
                 "75) again ;;\n"
                 "*) # a rank or a node died: again, unless starting again gains no checkpoint\n"
                 "    if [ \"$(saved)\" != \"$before\" ] || "
                 "[ \"${SLURM_RESTART_COUNT:-0}\" -lt 3 ]; then again; fi ;;\n"
                 "esac\n"
                 "exit \"$code\"\n");
}

void batch_write(const struct batch *b, struct text *script)
{
    write_head(b, script);
    write_environment(b, script);
    write_step(b, script);
    write_end(script);
}
