/* launched.h (tests) -- the test program as one of several ranks, started by a launcher:
 * `run --ranks NAME`; `run --launch N NAME` is a launcher itself. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"

/* RANKS(name) { ... } defines what every rank does; it returns a status. */
#define RANKS(name)                                                                                \
    static enum status ranks_##name(const struct comm *world);                                     \
    __attribute__((constructor)) static void register_ranks_##name(void)                           \
    {                                                                                              \
        launched_register(#name, ranks_##name);                                                    \
    }                                                                                              \
    static enum status ranks_##name(const struct comm *world)
void launched_register(const char *name, enum status (*body)(const struct comm *world));

/* Runs RANKS(name) on this rank; main returns its result. */
int launched_main(const char *name);

/* Starts `size` ranks that run RANKS(name); main returns its result. */
int launched_start(const char *size, const char *name);

/* Runs RANKS(name) on `size` ranks under a launcher, for at most 300 s, and returns its exit code;
 * -1, with a message: no launcher is installed. */
int launched_run(int size, const char *name, struct text *err);
/* The same without MPI, as children of one process (comm/shm/launcher.h). */
int launched_run_here(int size, const char *name, struct text *err);
/* launched_run for any command, whose words end with NULL. */
int launched_command(int size, const char *const *command, struct text *out, struct text *err);
