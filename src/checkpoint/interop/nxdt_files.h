/* nxdt_files.h -- the files of an NxD Training checkpoint.
 *
 * A tag's folder has model/dp_rank_00_tp_rank_XX_pp_rank_YY.pt for each tensor- and
 * pipeline-parallel rank (with the files it refers to), the marker `checkpoint`, and the marker
 * `done`, written last.  Older checkpoints have tp_rank_XX_pp_rank_YY, a file or a folder with
 * checkpoint.pt.  checkpoint.pt alone is a whole model, from NxD Training's converter. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

struct nxdt_file {
    char *path; /* owned */
    int tp, pp; /* ranks */
};

struct nxdt_files {
    struct nxdt_file *all; /* sorted by tp, then pp; owned */
    size_t count;
    int tp, pp; /* numbers of ranks */
};

/* `path`: a tag's folder, its model/, a folder with checkpoint.pt, or that file. */
bool nxdt_files_detect(const char *path);
/* Whether it has optimizer state. */
bool nxdt_files_have_optimizer(const char *path);

/* DATA: a rank's file is missing, or the marker `done` is.  Release `f` even after a failure. */
enum status nxdt_files_open(struct nxdt_files *f, const char *path);
void nxdt_files_release(struct nxdt_files *f);
