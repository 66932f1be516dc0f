/* nxdt_files.h -- which files a checkpoint of NxD Training is made of.
 *
 * A tag's folder has model/dp_rank_00_tp_rank_XX_pp_rank_YY.pt, a file (and what it refers to) of
 * every rank of tensor and pipeline parallelism, the marker `checkpoint`, and `done`, which is
 * written last.  Older ones have tp_rank_XX_pp_rank_YY, a file or a folder with checkpoint.pt.
 * checkpoint.pt alone is the whole model, as its converter makes it. */
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
    struct nxdt_file *all; /* by tp, then by pp; owned */
    size_t count;
    int tp, pp; /* how many ranks */
};

/* `path`: a tag's folder, its model/, a folder with checkpoint.pt, or that file. */
bool nxdt_files_detect(const char *path);
/* Are there files of its optimizer? */
bool nxdt_files_have_optimizer(const char *path);

/* DATA: a rank's file is missing, or there is a marker and no `done`.  After a failure, too,
 * release them. */
enum status nxdt_files_open(struct nxdt_files *f, const char *path);
void nxdt_files_release(struct nxdt_files *f);
