/* node.h -- what the system says of this machine.  Nothing here fails: what is not known is empty
 * or 0. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* "AMD EPYC 9B45": the processor's name as Linux has it. */
void node_processor(struct text *name);
/* The first line of a small file, such as those of /proc and /sys, without its end. */
void node_line(const char *path, struct text *line);
/* All of such a file, up to 64 KiB. */
void node_file(const char *path, struct text *out);
/* The chosen word of "always [madvise] never". */
void node_choice(const char *words, struct text *choice);
/* The value behind "name   : " in text like /proc/cpuinfo's; without blanks around it. */
void node_value(const char *text, const char *name, struct text *value);
