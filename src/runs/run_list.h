/* run_list.h -- the runs in and below some folders. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "runs/run_folder.h"

#include <stddef.h>

enum { RUN_LIST_DEPTH = 5, RUN_LIST_MOST = 100000 };

struct run_list {
    struct run_folder *runs; /* summaries, by path */
    size_t count;
};

/* Finds the runs that the folders are or have, up to RUN_LIST_DEPTH levels below, and reads their
 * summaries.  Does not look into runs, into hidden folders, or through links; a run that several
 * folders lead to is listed once.  A folder below that cannot be read is a warning.  MISSING: one
 * of the folders does not exist, or there is no run in any of them. */
enum status run_list_open(struct run_list *l, const char *const *folders, size_t num_folders);
void run_list_close(struct run_list *l);
