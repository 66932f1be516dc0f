// SPDX-License-Identifier: Apache-2.0
#include "machine/core_split.h"

#include "base/text.h"
#include "machine/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 64 };

/* The number of nodes that have cores, if they have equally many; 0: they have not. */
static int count_nodes(const struct core_place *places, int count, int index[MAX_NODES])
{
    int cores[MAX_NODES] = {0}, nodes = 0, most = 0;
    for (int i = 0; i < count; i++) cores[places[i].node]++;
    for (int node = 0; node < MAX_NODES; node++) {
        index[node] = nodes;
        if (!cores[node]) continue;
        if (most && cores[node] != most) return 0;
        most = cores[node], nodes++;
    }
    return nodes;
}

bool core_split(const struct core_place *places, int count, int rank, int ranks,
                unsigned char set[THREAD_CORE_BYTES])
{
    int index[MAX_NODES]; /* of a node among those that have cores */
    int nodes = count_nodes(places, count, index);
    memset(set, 0, THREAD_CORE_BYTES);
    if (nodes < 2 || (ranks % nodes && nodes % ranks)) return false;
    int begin = (int)((long long)rank * nodes / ranks);
    int end = begin + (nodes > ranks ? nodes / ranks : 1);
    for (int i = 0; i < count; i++) {
        int node = index[places[i].node], core = places[i].core;
        if (node >= begin && node < end) set[core / 8] |= (unsigned char)(1u << core % 8);
    }
    return true;
}

bool core_split_node(const struct core_place *places, int count, int node,
                     unsigned char set[THREAD_CORE_BYTES])
{
    bool found = false;
    memset(set, 0, THREAD_CORE_BYTES);
    for (int i = 0; i < count; i++) {
        int core = places[i].core;
        if (places[i].node != node) continue;
        set[core / 8] |= (unsigned char)(1u << core % 8), found = true;
    }
    return found;
}

bool core_split_suits(const struct core_place *places, int count, const int *nodes, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        int cores = 0, sharing = 0;
        for (int i = 0; i < count; i++) cores += places[i].node == nodes[rank];
        for (int i = 0; i < ranks; i++) sharing += nodes[i] == nodes[rank];
        if (!cores || 2LL * cores * ranks < (long long)sharing * count) return false;
    }
    return true;
}

/* Sets the node of the cores in a list such as "0-31,64-95". */
static void set_node(struct core_place *places, int count, int node, const char *list)
{
    for (char *end; *list; list = *end == ',' ? end + 1 : end) {
        long first = strtol(list, &end, 10), last = first;
        if (end == list) return;
        if (*end == '-') last = strtol(end + 1, &end, 10);
        for (int i = 0; i < count; i++)
            if (places[i].core >= first && places[i].core <= last) places[i].node = node;
    }
}

void core_split_bind(int rank, int ranks, const int *nodes)
{
    enum { CORES = 8 * THREAD_CORE_BYTES };
    unsigned char set[THREAD_CORE_BYTES];
    struct core_place *places = heap(CORES * sizeof *places);
    struct text line = {0};
    int count = 0;
    thread_core_mask(set);
    for (int core = 0; core < CORES; core++)
        if (set[core / 8] >> core % 8 & 1) places[count++].core = core;
    for (int i = 0; i < MAX_NODES; i++) {
        char path[64];
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", i);
        node_line(path, &line);
        set_node(places, count, i, line.data);
    }
    if (nodes && core_split_suits(places, count, nodes, ranks)
            ? core_split_node(places, count, nodes[rank], set)
            : core_split(places, count, rank, ranks, set))
        thread_bind(set);
    text_release(&line);
    free(places);
}
