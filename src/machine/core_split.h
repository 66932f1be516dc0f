/* core_split.h (machine) -- divides the NUMA nodes of this host among ranks that the program starts
 * itself.
 *
 * A rank is bound to whole nodes, so that its memory is on them, but not to cores: where other
 * programs run, the kernel can move its threads. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/thread.h"

#include <stdbool.h>

/* The NUMA node of a core, as Linux numbers both. */
struct core_place {
    int core, node;
};

/* Sets `set` to the cores of the rank-th of `ranks`: its own nodes, or a node that it shares with
 * its neighbors.  False: there is one node, nodes differ in size, or neither the number of ranks
 * nor that of nodes is a multiple of the other. */
bool core_split(const struct core_place *places, int count, int rank, int ranks,
                unsigned char set[THREAD_CORE_BYTES]);
/* Sets `set` to the cores of that NUMA node; false: it has none. */
bool core_split_node(const struct core_place *places, int count, int node,
                     unsigned char set[THREAD_CORE_BYTES]);
/* Whether every rank that is bound to nodes[rank], the node of its GPU, has at least half an equal
 * part of the cores.  So they have if all GPUs are on one of two nodes, but not if the process may
 * use only few cores of a node.  False, too, if a node is -1 (unknown). */
bool core_split_suits(const struct core_place *places, int count, const int *nodes, int ranks);
/* Binds this process to cores among those that it may use: those of nodes[rank] if they suit all
 * ranks, else, or if `nodes` is NULL, its rank's (core_split).  If it cannot, the process stays as
 * it is.  Call it before the process starts threads. */
void core_split_bind(int rank, int ranks, const int *nodes);
