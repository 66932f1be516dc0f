/* node.h -- facts about this node, read from /proc and /sys.
 *
 * Errors   None: what cannot be read is empty. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

/* The processor's name as Linux reports it: "AMD EPYC 9B45". */
void node_processor(struct text *name);
/* The first line of a small file, such as those of /proc and /sys, without its newline. */
void node_line(const char *path, struct text *line);
/* The NUMA node of a PCI device, such as "0000:3B:00.0", by `folder`/0000:3b:00.0/numa_node; -1:
 * unknown. */
int node_of_pci_device(const char *folder, const char *bus_id);
/* Such a file, up to 64 KiB of it. */
void node_file(const char *path, struct text *out);
/* The selected word in brackets: "madvise" of "always [madvise] never". */
void node_choice(const char *words, struct text *choice);
/* The value after "name   : " in text like /proc/cpuinfo's, without surrounding blanks. */
void node_value(const char *text, const char *name, struct text *value);
