/* draw_runs.h -- runs of a draw, in folders of the draw's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "system/draw.h"

#include <sys/types.h>

/* Runs the program with the words of a line.  Returns the exit code. */
int draw_run_line(const struct text *line, struct text *out, struct text *err);

/* Runs `check` or `train` into <folder>/<dump>. */
int draw_run(const struct draw *d, const char *command, const struct draw_layout *layout,
             const char *dump, struct text *err);
/* Starts `train` into <folder>/<dump>; its stderr goes to a file. */
pid_t draw_start(const struct draw *d, const char *dump, const char *err);

/* The lines of metrics.jsonl, without timings and memory. */
void draw_read_metrics(const char *dump, struct text *numbers);

const char *draw_checkpoint(const struct draw *d, const char *dump, int step);
/* Copies the first checkpoint of the run `from` into the dump folder `to`. */
void draw_copy_first_checkpoint(const struct draw *d, const char *from, const char *to);
