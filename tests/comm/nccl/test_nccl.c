/* The contract of comm.h, for device memory and over the stub of NCCL (stub.h). */
// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/nccl.h"

#include "backends/cpu/cpu.h"
#include "base/clock.h"
#include "comm/contract.h"
#include "comm/lifted.h"
#include "comm/nccl/stub.h"
#include "comm/ranks.h"
#include "ops/update.h"
#include "tensor/strict_device.h"
#include "test.h"

#include <time.h>

/* A rank with a device and a library: both are open while `body` runs. */
struct with_nccl {
    bool late, lifted, channels;
    double timeout_s; /* 0: a long time */
    enum status (*body)(const struct comm *c, struct queue *queue);
    enum status (*contract)(const struct comm *c, void *context);
};

enum { CONTRACT_TAGS = 100 };

/* Declares the contract's messages with tags 1 and 2, and some of the others. */
static enum status open_channels(const struct comm *c)
{
    struct p2p_message sends[] = {
        {(c->rank + 1) % c->size, 1}, {(c->rank + 1) % c->size, 2}, {(c->rank + 1) % c->size, 7}};
    int before = (c->rank + c->size - 1) % c->size;
    struct p2p_message receives[] = {{before, 7}, {before, 2}, {before, 1}};
    TRY(comm_declare_p2p(c, sends, 3, receives, 3));
    return STATUS_OK;
}

static enum status on_library(struct comm *c, struct queue *queue, struct nccl *n,
                              const struct with_nccl *w)
{
    TRY(nccl_wrap(c, n, "shard", COMM_ALL));
    if (w->channels) TRY(open_channels(c));
    if (w->lifted) lifted_wrap(c, queue);
    if (w->body)
        TRY(w->body(c, queue));
    else
        TRY(w->contract(c, NULL));
    return STATUS_OK;
}

static __thread struct arena left; /* of a body, to be released after its groups */

static enum status run_with_nccl(const struct comm *world, void *context)
{
    const struct with_nccl *w = context;
    struct queue *queue;
    struct nccl *n;
    struct comm c;
    TRY(cpu_queue_open(&queue, 1, 0));
    strict_open(queue, &ops_cpu_reference, w->late);
    TRY(nccl_open(&n, queue, w->timeout_s > 0 ? w->timeout_s : 1000));
    TRY(comm_split(world, 0, world->rank, &c));
    struct failure failure = {0};
    enum status st = status_save(&failure, on_library(&c, queue, n, w));
    if (st && w->contract) stub_break(STUB_ALL_RANKS, "a rank failed"); /* so that none waits */
    comm_release(&c);
    nccl_close(n);
    arena_release(&left);
    strict_close(queue);
    cpu_queue_close(queue);
    return status_restore(&failure);
}

static void check_nothing_is_open(void)
{
    struct stub_counts n = stub_counts();
    CHECK(!n.comms && !n.registered && !n.streams && !n.events);
}

static void fulfill(const struct contract *line, bool channels)
{
    struct with_nccl w = {.lifted = true, .channels = channels, .contract = line->body};
    int least = line->ranks ? line->ranks : 2, most = line->ranks ? line->ranks : 4;
    for (int size = least; size <= most; size++) {
        enum status st = ranks_run(size, run_with_nccl, &w);
        stub_break(0, NULL);
        CHECK_STATUS(OK, st);
    }
    check_nothing_is_open();
}

/* NCCL does not promise the order of sums, though the stub has it. */
TEST(nccl_fulfills_the_contract_of_comm_except_the_order_of_sums)
{
    for (const struct contract *line = contract; line->name; line++)
        if (!strstr(line->name, "same_bits")) fulfill(line, false);
}

TEST(nccl_fulfills_the_contract_with_channels)
{
    for (const struct contract *line = contract; line->name; line++)
        if (strstr(line->name, "sends") || strstr(line->name, "in_flight")) fulfill(line, true);
}

static enum status run_on(int size, struct with_nccl w)
{
    enum status st = ranks_run(size, run_with_nccl, &w);
    struct failure failure = {0};
    status_save(&failure, st);
    check_nothing_is_open();
    return status_restore(&failure);
}

enum { N = 1000 };

/* x on the device, filled with `value`. */
static enum status filled(struct queue *queue, float value, struct arena *own)
{
    float host[N];
    for (int i = 0; i < N; i++) host[i] = value;
    TRY(arena_init(own, sizeof host, queue_device_allocator(queue)));
    TRY(queue_copy(queue, own->base, host, sizeof host));
    return STATUS_OK;
}

static enum status holds(struct queue *queue, const struct arena *own, float value)
{
    float host[N];
    TRY(queue_copy(queue, host, own->base, sizeof host));
    for (int i = 0; i < N; i++) RANK_CHECK(host[i] == value);
    return STATUS_OK;
}

static struct transfer sum_of(const struct arena *own)
{
    return (struct transfer){TRANSFER_all_reduce, F32, N, .x = own->base};
}

static enum status sums_in_split_groups(const struct comm *c, struct queue *queue)
{
    struct comm pair, across;
    struct arena own;
    TRY(filled(queue, (float)(1 << c->rank), &own));
    struct transfer first = sum_of(&own), second = first;
    TRY(comm_split(c, c->rank / 2, -c->rank, &pair));
    TRY(comm_split(c, c->rank % 2, c->rank, &across));
    RANK_CHECK(pair.size == (c->rank == 4 ? 1 : 2) && across.size == (c->rank % 2 ? 2 : 3));
    RANK_CHECK(pair.rank == (c->rank == 4 ? 0 : 1 - c->rank % 2));
    TRY(comm_run(&pair, &first));
    TRY(holds(queue, &own, (const float[]){3, 12, 16}[c->rank / 2]));
    TRY(comm_run(&across, &second));
    TRY(holds(queue, &own, c->rank % 2 ? 15 : 31));
    comm_release(&across), comm_release(&pair);
    arena_release(&own);
    return STATUS_OK;
}

TEST(nccl_groups_split_into_groups_of_many_and_of_one)
{
    CHECK_STATUS(OK, run_on(5, (struct with_nccl){.body = sums_in_split_groups}));
}

/* The queue waits for the end of each transfer when that is waited for, and for the begin of one
 * that begins first when that is started. */
static enum status sums_between_kernels(const struct comm *c, struct queue *queue)
{
    struct arena x, y, z;
    TRY(filled(queue, (float)(c->rank + 1), &x));
    TRY(filled(queue, 0, &y));
    TRY(filled(queue, 0, &z));
    for (int round = 0; round < 3; round++) {
        struct transfer t = sum_of(&y);
        const void *begun, *done;
        int before = stub_joins(&begun);
        t.begins_first = round == 1;
        TRY(cast(&strict_ops, &(struct cast){.n = N}, &(struct cast_io){x.base, y.base}, queue));
        TRY(comm_start(c, &t));
        RANK_CHECK(stub_joins(&begun) == before + t.begins_first);
        TRY(comm_wait(&t));
        RANK_CHECK(stub_joins(&done) == before + t.begins_first + 1);
        RANK_CHECK(done != begun || !t.begins_first);
        TRY(cast(&strict_ops, &(struct cast){.n = N, .accumulate = true},
                 &(struct cast_io){y.base, z.base}, queue));
    }
    TRY(holds(queue, &z, 3 * 6));
    arena_release(&x), arena_release(&y), arena_release(&z);
    return STATUS_OK;
}

TEST(nccl_transfers_are_ordered_with_kernels)
{
    CHECK_STATUS(OK, run_on(3, (struct with_nccl){.late = true, .body = sums_between_kernels}));
}

struct counting_observer {
    struct comm_observer observer; /* first: callbacks cast it to this */
    int started, waited;
    double ended_s;
};

static void count_start(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                        size_t bytes)
{
    (void)c, (void)t, (void)bytes;
    ((struct counting_observer *)w)->started++;
}

static void count_wait(struct comm_observer *w, const struct transfer *t)
{
    ((struct counting_observer *)w)->waited++;
    ((struct counting_observer *)w)->ended_s = t->ended_s;
}

static enum status is_watched(const struct comm *c, struct queue *queue)
{
    struct counting_observer seen = {.observer = {count_start, count_wait}};
    struct arena own;
    TRY(filled(queue, 1, &own));
    struct transfer t = sum_of(&own);
    double begin_s = clock_monotonic_s();
    c->counts->observer = &seen.observer;
    TRY(comm_run(c, &t));
    c->counts->observer = NULL;
    RANK_CHECK(seen.started == 1 && seen.waited == 1 && seen.ended_s >= begin_s);
    RANK_CHECK(c->counts->calls[TRANSFER_all_reduce] == 1);
    arena_release(&own);
    return STATUS_OK;
}

TEST(nccl_transfers_are_counted_once_and_observed_with_their_end)
{
    CHECK_STATUS(OK, run_on(2, (struct with_nccl){.body = is_watched}));
}

/* Seconds; on a slow machine a rank may be late for the first sum by almost as much. */
static const double short_timeout_s = 2;

/* After a failure a transfer may still be using the memory, until its communicator is aborted. */
static void free_when_idle(struct arena *own)
{
    stub_await_idle();
    arena_release(own);
}

/* Rank 1 does not take part in the second sum. */
static enum status misses_a_sum(const struct comm *c, struct queue *queue)
{
    struct arena own;
    double one = 1;
    TRY(filled(queue, 1, &own));
    struct transfer t = sum_of(&own), again = t;
    enum status st = comm_run(c, &t);
    if (c->rank == 0) {
        if (!st) st = comm_run(c, &again);
        if (!st) st = comm_all_reduce(c, REDUCE_SUM, &one, 1);
        RANK_CHECK(st == STATUS_HANG);
        RANK_CHECK(strstr(status_message(), "all_reduce of 1000 float32 on rank 0 of 2 in group "
                                            "shard timed out after 2 s"));
        RANK_CHECK(comm_start(c, &t) == STATUS_HANG);
        RANK_CHECK(comm_all_reduce(c, REDUCE_SUM, &one, 1) == STATUS_HANG);
        RANK_CHECK(strstr(status_message(), "timed out") != NULL);
    }
    free_when_idle(&own);
    return STATUS_OK;
}

TEST(nccl_aborts_a_transfer_that_a_rank_misses)
{
    CHECK_STATUS(OK,
                 run_on(2, (struct with_nccl){.timeout_s = short_timeout_s, .body = misses_a_sum}));
}

/* All ranks sum once; then the library of rank 1 reports an error. */
static enum status sum_before_failure(const struct comm *c, struct queue *queue, struct arena *own)
{
    TRY(filled(queue, 1, own));
    struct transfer t = sum_of(own);
    TRY(comm_run(c, &t));
    if (c->rank == 1) stub_break(1, "the cable is out");
    return STATUS_OK;
}

static enum status sum_until_failure(const struct comm *c, const struct arena *own)
{
    enum status st = STATUS_OK;
    while (!st) {
        struct transfer t = sum_of(own);
        st = comm_run(c, &t);
    }
    return st;
}

/* For the other ranks rank 1 may be missing first. */
static enum status fails_on_rank_1(const struct comm *c, struct queue *queue)
{
    struct arena own;
    TRY(sum_before_failure(c, queue, &own));
    enum status st = sum_until_failure(c, &own);
    free_when_idle(&own);
    RANK_CHECK(st == STATUS_COMM || (st == STATUS_HANG && c->rank != 1));
    return STATUS_OK;
}

TEST(nccl_aborts_all_transfers_when_the_library_reports_an_error)
{
    struct with_nccl w = {.timeout_s = short_timeout_s, .body = fails_on_rank_1};
    enum status st = run_on(3, w);
    stub_break(0, NULL);
    CHECK_STATUS(OK, st);
}

static enum status reports(const struct comm *c, struct queue *queue)
{
    struct arena own;
    TRY(sum_before_failure(c, queue, &own));
    enum status st = c->rank == 1 ? sum_until_failure(c, &own) : STATUS_OK;
    free_when_idle(&own);
    RANK_CHECK(st == (c->rank == 1 ? STATUS_COMM : STATUS_OK));
    if (c->rank == 1)
        RANK_CHECK(strstr(status_message(), "rank 1 of 2 in group shard") &&
                   strstr(status_message(), "the cable is out"));
    return STATUS_OK;
}

TEST(nccl_errors_name_the_group_and_quote_the_library)
{
    enum status st = run_on(2, (struct with_nccl){.body = reports});
    struct failure failure = {0};
    status_save(&failure, st);
    stub_break(0, NULL);
    CHECK_STATUS(OK, status_restore(&failure));
}

/* Rank 0 starts a transfer in each of two groups, which rank 1 never starts, and may wait for the
 * second one. */
static enum status start_in_two_groups(const struct comm *c, struct queue *queue, bool waits)
{
    struct comm other;
    enum status st = STATUS_OK;
    TRY(filled(queue, 1, &left));
    struct transfer t = sum_of(&left), u = t, alone = t, other_alone = t;
    TRY(comm_split(c, 0, c->rank, &other));
    st = comm_run(c, &t);
    if (!st) st = comm_run(&other, &u);
    if (!st && c->rank == 0) st = comm_start(c, &alone);
    if (!st && c->rank == 0) st = comm_start(&other, &other_alone);
    if (!st && c->rank == 0 && waits) st = comm_wait(&other_alone);
    comm_release(&other);
    return st;
}

static enum status leaves_two_in_flight(const struct comm *c, struct queue *queue)
{
    return start_in_two_groups(c, queue, false);
}

TEST(nccl_groups_can_be_released_with_transfers_in_flight)
{
    CHECK_STATUS(OK, run_on(2, (struct with_nccl){.body = leaves_two_in_flight}));
    CHECK(stub_counts().aborted > 0);
}

static enum status misses_a_sum_in_two_groups(const struct comm *c, struct queue *queue)
{
    enum status st = start_in_two_groups(c, queue, true);
    RANK_CHECK(c->rank || st == STATUS_HANG);
    return STATUS_OK;
}

TEST(nccl_aborts_transfers_of_all_groups_together)
{
    struct with_nccl w = {.timeout_s = short_timeout_s, .body = misses_a_sum_in_two_groups};
    CHECK_STATUS(OK, run_on(2, w));
}

static enum status registers(const struct comm *c, struct queue *queue)
{
    struct arena own;
    TRY(filled(queue, 1, &own));
    for (int round = 0; round < 2; round++) TRY(comm_register_memory(c, own.base, own.size));
    RANK_CHECK(stub_counts().registered > 0 && stub_counts().registered <= 2);
    struct transfer t = sum_of(&own);
    TRY(comm_run(c, &t));
    TRY(holds(queue, &own, 2));
    if (c->rank == 0)
        TRY(comm_register_memory(c, own.base, 0)); /* otherwise releasing the group does that */
    arena_release(&own);
    return STATUS_OK;
}

TEST(nccl_registers_memory_until_it_is_deregistered_or_the_group_released)
{
    CHECK_STATUS(OK, run_on(2, (struct with_nccl){.body = registers}));
}

/* Rank 1 starts its part late. */
static enum status deregisters_in_flight(const struct comm *c, struct queue *queue)
{
    const struct timespec late = {.tv_nsec = 50000000};
    struct arena own;
    TRY(filled(queue, 1, &own));
    struct transfer t = sum_of(&own), last = t;
    TRY(comm_register_memory(c, own.base, own.size));
    TRY(comm_run(c, &t));
    if (c->rank == 1) nanosleep(&late, NULL);
    TRY(comm_start(c, &last));
    TRY(comm_register_memory(c, own.base, 0));
    TRY(holds(queue, &own, 4));
    TRY(comm_wait(&last));
    arena_release(&own);
    return STATUS_OK;
}

TEST(nccl_deregisters_memory_when_transfers_have_ended)
{
    CHECK_STATUS(OK, run_on(2, (struct with_nccl){.body = deregisters_in_flight}));
}

/* Rank 0 has transfers in flight in two groups, which rank 1 never starts, when it deregisters
 * memory through *c or `alone`, a group of one. */
static enum status deregisters_without_rank_1(const struct comm *c, struct queue *queue,
                                              bool through_alone)
{
    struct comm other, alone;
    struct arena own;
    int aborted = stub_counts().aborted;
    double one = 1;
    TRY(filled(queue, 1, &own));
    struct transfer t = sum_of(&own), u = t, last = t, other_last = t;
    TRY(comm_split(c, 0, c->rank, &other));
    TRY(comm_split(c, c->rank, 0, &alone));
    TRY(comm_register_memory(c, own.base, own.size));
    enum status st = comm_run(c, &t);
    if (!st) st = comm_run(&other, &u);
    if (c->rank == 0) {
        if (!st) st = comm_start(c, &last);
        if (!st) st = comm_start(&other, &other_last);
        TRY(comm_register_memory(through_alone ? &alone : c, own.base, 0));
        RANK_CHECK(stub_counts().aborted >= aborted + 2);
        RANK_CHECK(comm_start(c, &t) == STATUS_HANG);
        RANK_CHECK(comm_start(&other, &u) == STATUS_HANG);
        RANK_CHECK(comm_all_reduce(c, REDUCE_SUM, &one, 1) == STATUS_HANG);
    }
    free_when_idle(&own);
    comm_release(&alone), comm_release(&other);
    return STATUS_OK;
}

static enum status deregisters_through_the_group(const struct comm *c, struct queue *queue)
{
    return deregisters_without_rank_1(c, queue, false);
}

static enum status deregisters_through_a_group_of_one(const struct comm *c, struct queue *queue)
{
    return deregisters_without_rank_1(c, queue, true);
}

TEST(nccl_aborts_transfers_that_do_not_end_when_memory_is_deregistered)
{
    struct with_nccl w = {.timeout_s = short_timeout_s, .body = deregisters_through_the_group};
    CHECK_STATUS(OK, run_on(2, w));
    w.body = deregisters_through_a_group_of_one;
    CHECK_STATUS(OK, run_on(2, w));
}

/* Rank 0 deregisters the memory, rank 1 releases the group, and meanwhile the library fails. */
static enum status deregisters_on_rank_0(const struct comm *c, struct queue *queue)
{
    TRY(filled(queue, 1, &left));
    TRY(comm_register_memory(c, left.base, left.size));
    if (c->rank == 0) TRY(comm_register_memory(c, left.base, 0));
    return STATUS_OK;
}

TEST(nccl_does_not_abort_a_communicator_that_deregisters_memory)
{
    stub_break_deregistering(true);
    enum status st = run_on(2, (struct with_nccl){.body = deregisters_on_rank_0});
    stub_break_deregistering(false), stub_break(0, NULL);
    CHECK_STATUS(OK, st);
    CHECK(!stub_counts().interrupted);
}

static enum status opens_channels_of_another_group(const struct comm *c, struct queue *queue)
{
    struct comm other;
    (void)queue;
    TRY(open_channels(c)); /* again, which opens none */
    TRY(comm_split(c, 0, c->rank, &other));
    enum status st = open_channels(&other);
    comm_release(&other);
    return st;
}

static enum status sums_once(const struct comm *c, struct queue *queue)
{
    struct arena own;
    TRY(filled(queue, 1, &own));
    struct transfer t = sum_of(&own);
    TRY(comm_run(c, &t));
    arena_release(&own);
    return STATUS_OK;
}

/* NCCL halves a message's channels until those of as many messages as ranks fit. */
TEST(nccl_messages_of_a_shift_have_four_channels_in_groups_of_up_to_eight_ranks)
{
    CHECK(nccl_shift_blocks(2) == 8 && nccl_shift_blocks(3) == 16 && nccl_shift_blocks(4) == 16);
    CHECK(nccl_shift_blocks(5) == 32 && nccl_shift_blocks(8) == 32 && nccl_shift_blocks(64) == 32);
}

/* Each rank has 4 streams of the queue, 3 of the group and 3 of each of its 6 channels. */
TEST(nccl_refuses_channels_that_would_share_hardware_queues)
{
    struct with_nccl opens = {.channels = true, .body = sums_once};
    setenv(nccl_queues_variable, "24", 1);
    CHECK_STATUS(CONFIG, run_on(2, opens));
    CHECK_MESSAGE("CUDA_DEVICE_MAX_CONNECTIONS=24: this rank of a pipeline uses 25 streams");
    setenv(nccl_queues_variable, "25", 1);
    CHECK_STATUS(OK, run_on(2, opens));
    setenv(nccl_queues_variable, "1", 1);
    CHECK_STATUS(OK, run_on(2, (struct with_nccl){.body = sums_once})); /* without channels */
    unsetenv(nccl_queues_variable);
    opens.body = opens_channels_of_another_group;
    CHECK_STATUS(UNSUPPORTED, run_on(2, opens));
    CHECK_MESSAGE("uses 45 streams, more than the 32 hardware queues of a GPU");
}

/* Every rank sends to both neighbors at once, and receives in another order.  What closes first on
 * a rank closes last on a neighbor. */
static enum status exchanges(const struct comm *c, struct queue *queue)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    const struct p2p_message sends[] = {{next, 3}, {before, 3}, {next, 4}};
    const struct p2p_message receives[] = {{before, 4}, {before, 3}, {next, 3}};
    struct arena mine, got[3];
    struct transfer out[3], in[3];
    TRY(comm_declare_p2p(c, sends, 2, receives + 1, 2));
    TRY(comm_declare_p2p(c, sends, 3, receives, 3)); /* two of them again */
    TRY(filled(queue, (float)c->rank, &mine));
    for (int i = 0; i < 3; i++) TRY(filled(queue, -1, &got[i]));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++) {
            out[i] = (struct transfer){
                TRANSFER_send, F32, N, .x = mine.base, .peer = sends[i].peer, .tag = sends[i].tag};
            in[i] = (struct transfer){
                TRANSFER_receive,      F32, N, .x = got[i].base, .peer = receives[i].peer,
                .tag = receives[i].tag};
            TRY(comm_start(c, &out[i]));
        }
        for (int i = 0; i < 3; i++) TRY(comm_start(c, &in[i]));
        for (int i = 3; i-- > 0;) TRY(comm_wait(&in[i]));
        for (int i = 0; i < 3; i++) TRY(comm_wait(&out[i]));
        for (int i = 0; i < 3; i++) TRY(holds(queue, &got[i], (float)receives[i].peer));
    }
    arena_release(&mine);
    for (int i = 0; i < 3; i++) arena_release(&got[i]);
    return STATUS_OK;
}

TEST(nccl_channels_do_not_delay_each_other)
{
    CHECK_STATUS(OK, run_on(3, (struct with_nccl){.late = true, .body = exchanges}));
    CHECK_STATUS(OK, run_on(4, (struct with_nccl){.body = exchanges}));
}

static enum status expects_an_undeclared_send(const struct comm *c, struct queue *queue)
{
    const struct p2p_message send = {0, 5}, receive = {1, 6};
    (void)queue;
    TRY(comm_declare_p2p(c, &send, c->rank == 1, &receive, c->rank == 0));
    return STATUS_OK;
}

TEST(nccl_channels_require_a_send_for_each_receive)
{
    CHECK_STATUS(COMM, run_on(2, (struct with_nccl){.body = expects_an_undeclared_send}));
    CHECK_MESSAGE("expects messages with tag 6 from rank 1");
}

static enum status compares_devices(const struct comm *world, void *context)
{
    static const char *const names[] = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"};
    const int *shared = context; /* the rank that has the same device as rank 1 */
    struct nccl_pair pair;
    stub_device(names[*shared == world->rank ? 1 : world->rank]);
    TRY(nccl_same_device(world, NULL, &pair));
    RANK_CHECK(pair.first == (*shared == 2 ? 1 : -1));
    RANK_CHECK(pair.second == (*shared == 2 ? 2 : -1));
    return STATUS_OK;
}

TEST(nccl_finds_two_ranks_with_the_same_device)
{
    int shared = 1; /* rank 1 itself */
    CHECK_STATUS(OK, ranks_run(3, compares_devices, &shared));
    shared = 2;
    CHECK_STATUS(OK, ranks_run(3, compares_devices, &shared));
}
