// SPDX-License-Identifier: Apache-2.0
#include "machine/core_split.h"
#include "test.h"

enum { CORES = 16 };

/* Four nodes of four cores: node n has cores 2 n, 2 n + 1 and their second threads, 8 more. */
static void make(struct core_place places[CORES])
{
    for (int i = 0; i < CORES; i++)
        places[i] = (struct core_place){.core = i, .node = 3 * (i % 8 / 2)};
}

/* The cores of a rank as bits; 0: not split. */
static unsigned split(int count, int rank, int ranks)
{
    struct core_place places[CORES];
    unsigned char set[THREAD_CORE_BYTES];
    make(places);
    if (!core_split(places, count, rank, ranks, set)) return 0;
    return set[0] | (unsigned)set[1] << 8;
}

TEST(core_split_gives_each_rank_nodes_of_its_own)
{
    CHECK(split(CORES, 0, 2) == 0x0F0F && split(CORES, 1, 2) == 0xF0F0);
    CHECK(split(CORES, 0, 4) == 0x0303 && split(CORES, 3, 4) == 0xC0C0);
}

TEST(core_split_lets_neighbors_share_a_node)
{
    for (int rank = 0; rank < 8; rank++) CHECK(split(CORES, rank, 8) == 0x0303u << rank / 2 * 2);
    CHECK(split(CORES, 11, 12) == 0xC0C0);
}

TEST(core_split_leaves_ranks_unbound_that_do_not_fit_the_nodes)
{
    CHECK(!split(CORES, 0, 3) && !split(CORES, 0, 6));
    CHECK(!split(CORES - 1, 0, 4)); /* a node has fewer cores than the others */
    CHECK(!split(1, 0, 2) && !split(0, 0, 2));
}

TEST(core_split_finds_the_cores_of_the_gpus_node)
{
    struct core_place places[CORES];
    unsigned char set[THREAD_CORE_BYTES];
    make(places);
    CHECK(core_split_node(places, CORES, 6, set) && set[0] == 0x30 && set[1] == 0x30);
    CHECK(!core_split_node(places, CORES, 1, set) && !core_split_node(places, CORES, -1, set));
}

TEST(ranks_are_bound_to_their_gpus_nodes_unless_one_would_have_few_cores)
{
    struct core_place places[CORES];
    make(places);
    CHECK(core_split_suits(places, CORES, (const int[]){9, 9, 3, 3, 0, 0, 6, 6}, 8));
    CHECK(
        core_split_suits(places, CORES, (const int[]){0, 0, 3, 3}, 4)); /* half of an equal part */
    CHECK(!core_split_suits(places, CORES, (const int[]){0, 0, 0, 3}, 4));
    CHECK(!core_split_suits(places, CORES, (const int[]){0, -1}, 2)); /* unknown */
    CHECK(!core_split_suits(places, CORES, (const int[]){0, 1}, 2));  /* no cores */
    CHECK(!core_split_suits(places, 5, (const int[]){0, 6}, 2));      /* one of 5 cores */
    CHECK(!core_split_suits(places, 0, (const int[]){0}, 1));
}

/* In a child: binding lasts as long as the process. */
static enum status bind_to_first_core(int unused)
{
    unsigned char all[THREAD_CORE_BYTES], one[THREAD_CORE_BYTES] = {0};
    int at = 0;
    (void)unused;
    thread_core_mask(all);
    while (!(all[at / 8] >> at % 8 & 1)) at++;
    one[at / 8] = (unsigned char)(1u << at % 8);
    thread_bind(one);
    if (thread_cores() != 1) FAIL(DATA, "%d cores", thread_cores());
    thread_core_mask(all);
    if (memcmp(all, one, sizeof all) != 0) FAIL(DATA, "another core");
    core_split_bind(0, 1, NULL); /* one node: changes nothing */
    if (thread_cores() != 1) FAIL(DATA, "%d cores", thread_cores());
    return STATUS_OK;
}

TEST(core_split_keeps_the_cores_that_the_process_is_bound_to)
{
    CHECK(test_in_child(bind_to_first_core, 0) == 0);
}
