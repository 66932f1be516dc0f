/* cores.h -- the hosts that ranks run on, and how ranks divide the cores of a host. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"

/* Cores for this rank's threads, at least one: all that a launcher bound it to, divided evenly
 * among the ranks of the host that may use them, too.  Collective.  COMM: a rank failed. */
enum status cores_per_rank(const struct comm *world, int *cores);
/* This rank's index among the ranks of its host.  Collective.  COMM: a rank failed. */
enum status cores_local_rank(const struct comm *world, int *local);
/* How many ranks run on this rank's host.  Collective.  COMM: a rank failed. */
enum status cores_host_ranks(const struct comm *world, int *count);
/* Appends where the ranks run: "8 on 4 hosts (n1 n2 n3 n4)".  Collective.  COMM: a rank failed. */
enum status cores_describe_hosts(const struct comm *world, struct text *line);
