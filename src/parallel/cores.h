/* cores.h -- the hosts that ranks are on, whose cores they share out. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "comm/comm.h"

/* Cores that this rank computes on, at least one: all that a launcher bound it to; where others of
 * its host may use them too, an even share.  Collective.  COMM: a rank is gone. */
enum status cores_share(const struct comm *world, int *cores);
/* How many ranks before this one are on its host.  Collective.  COMM: a rank is gone. */
enum status cores_local(const struct comm *world, int *local);
/* Adds where the ranks are: "8 on 4 hosts (n1 n2 n3 n4)".  Collective.  COMM: a rank is gone. */
enum status cores_hosts(const struct comm *world, struct text *line);
