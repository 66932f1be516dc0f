/* script.h -- the sbatch script of `llamero slurm`: starts all ranks, makes the run save a
 * checkpoint before the time limit, and requeues the job. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

/* How ranks find each other: enum slurm_mpi and slurm_mpi_word. */
#define SLURM_MPI (slurm_mpi, SLURM_MPI, pmix, pmi2, cray_shasta)
OPT_ENUM_ENUM(SLURM_MPI)

/* Strings are borrowed.  The words for Slurm (name, time, partition, account) must pass
 * script_check_word; paths and settings may contain anything. */
struct slurm_script {
    const char *name, *time;
    const char *partition, *account; /* "": the site's default */
    int64_t nodes, ranks_per_node;
    int64_t cpus_per_rank;   /* 0: whole nodes, divided among their ranks */
    int64_t gpus_per_node;   /* 0: request none */
    int64_t signal_before_s; /* seconds before the time limit at which the run gets SIGUSR1 */
    enum slurm_mpi mpi;
    const char *interface; /* network interface between nodes; "": the library's choice */
    const char *program, *folder, *config;
    const char *const *settings; /* section.key=value */
    int num_settings;
    const char *checkpoints; /* their folder; a new one counts as progress */
    const char *remark;      /* one line of plain text, written as a comment */
};

void script_write(const struct slurm_script *b, struct text *script);

/* USAGE: `word`, the value of --flag, has characters other than letters, digits and _.,:+-@/= */
enum status script_check_word(const char *flag, const char *word);
/* Parses a time limit in Slurm's formats into seconds: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.  USAGE:
 * any other text, or zero. */
enum status script_parse_time(const char *time, int64_t *seconds);
