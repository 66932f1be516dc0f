// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/schedule.h"

enum { PP = 8, CHUNKS = 4, MICROS = 16, TAGS = 2 * CHUNKS, LENGTH = 2 * MICROS * CHUNKS };

/* What lies on the wire between two ranks under one tag: numbers of micro-batches, in order. */
struct wire {
    int sent[MICROS], num_sent, num_received;
};

/* All ranks at once.  Rendezvous: a send is over when it is received, and a chunk sends from as
 * many buffers in each direction as it should. */
struct pipeline {
    struct schedule s;
    bool rendezvous;
    int buffers;
    struct action program[PP][LENGTH];
    int at[PP];
    struct wire wires[PP][PP][TAGS];
    int forward[PP * CHUNKS], backward[PP * CHUNKS]; /* micro-batches done, of each stage */
};

static struct wire *wire(struct pipeline *p, int from, int to, int tag)
{
    CHECK(tag >= 0 && tag < TAGS && to >= 0 && to < p->s.pp && from >= 0 && from < p->s.pp);
    return &p->wires[from][to][tag];
}

/* Whether what the rank does next has its input, and a free buffer for its output. */
static bool ready(struct pipeline *p, int rank)
{
    const struct action *a = &p->program[rank][p->at[rank]];
    struct p2p_message in = schedule_input(&p->s, rank, a), out = schedule_output(&p->s, rank, a);
    if (p->rendezvous && out.peer >= 0) {
        const struct wire *w = wire(p, rank, out.peer, out.tag);
        if (w->num_sent - w->num_received >= p->buffers) return false;
    }
    if (in.peer < 0) return true;
    const struct wire *w = wire(p, in.peer, rank, in.tag);
    return w->num_sent > w->num_received;
}

static void act(struct pipeline *p, int rank)
{
    const struct action *a = &p->program[rank][p->at[rank]++];
    int stage = schedule_stage(&p->s, rank, a->chunk), stages = p->s.pp * p->s.chunks;
    struct p2p_message in = schedule_input(&p->s, rank, a), out = schedule_output(&p->s, rank, a);
    CHECK(a->chunk >= 0 && a->chunk < p->s.chunks);
    /* Ascending, without a gap: so each is done once. */
    CHECK(a->micro == (a->way == FORWARD ? p->forward[stage] : p->backward[stage]));
    if (a->way == FORWARD) {
        CHECK((in.peer < 0) == (stage == 0) && (out.peer < 0) == (stage == stages - 1));
        CHECK(stage == 0 || p->forward[stage - 1] > a->micro);
        p->forward[stage]++;
    } else {
        CHECK((in.peer < 0) == (stage == stages - 1) && (out.peer < 0) == (stage == 0));
        CHECK(p->forward[stage] > a->micro);
        CHECK(stage == stages - 1 || p->backward[stage + 1] > a->micro);
        p->backward[stage]++;
    }
    if (in.peer >= 0) {
        struct wire *w = wire(p, in.peer, rank, in.tag);
        CHECK(w->sent[w->num_received++] == a->micro);
    }
    if (out.peer >= 0) {
        struct wire *w = wire(p, rank, out.peer, out.tag);
        w->sent[w->num_sent++] = a->micro;
    }
}

static void run(struct pipeline *p)
{
    int length = schedule_length(&p->s), left = length * p->s.pp;
    for (bool moved = true; left && moved;) {
        moved = false;
        for (int rank = 0; rank < p->s.pp; rank++)
            for (; p->at[rank] < length && ready(p, rank); left--) act(p, rank), moved = true;
    }
    if (left)
        print_error("%s pp %d chunks %d micros %d: locked\n", schedule_word(p->s.kind), p->s.pp,
                    p->s.chunks, p->s.micros);
    CHECK(!left);
    for (int stage = 0; stage < p->s.pp * p->s.chunks; stage++)
        CHECK(p->forward[stage] == p->s.micros && p->backward[stage] == p->s.micros);
}

/* Most micro-batches between forward and backward, as the table says; and that slots taken in turn
 * never meet. */
static void check_peaks(const struct schedule *s, int rank, const struct action *program)
{
    int now[CHUNKS] = {0}, most[CHUNKS] = {0}, all = 0, most_of_all = 0;
    bool taken[CHUNKS][MICROS] = {{false}};
    for (int i = 0; i < schedule_length(s); i++) {
        const struct action *a = &program[i];
        int step = a->way == FORWARD ? 1 : -1;
        bool *slot = &taken[a->chunk][a->micro % schedule_peak(s, rank, a->chunk)];
        CHECK(*slot == (a->way == BACKWARD));
        *slot = !*slot;
        now[a->chunk] += step, all += step;
        if (now[a->chunk] > most[a->chunk]) most[a->chunk] = now[a->chunk];
        if (all > most_of_all) most_of_all = all;
    }
    for (int c = 0; c < s->chunks; c++) CHECK(schedule_peak(s, rank, c) == most[c]);
    CHECK(schedule_peak(s, rank, ALL_CHUNKS) == most_of_all);
    /* The formulas of the literature. */
    int behind = s->pp - rank - 1, total = s->micros * s->chunks, want = total;
    int rounds = s->micros < s->pp ? 1 : s->micros / s->pp;
    if (s->kind == SCHEDULE_one_ahead) want = behind + 1;
    if (s->kind == SCHEDULE_interleaved)
        want = 2 * behind + (s->chunks - 1) * (s->micros / rounds) + 1;
    CHECK(most_of_all == (want < total ? want : total));
}

static int for_every_schedule(void (*body)(const struct schedule *s))
{
    int count = 0;
    for (enum schedule_kind kind = 0; kind < SCHEDULE_COUNT; kind++)
        for (int pp = 1; pp <= PP; pp++)
            for (int chunks = 1; chunks <= CHUNKS; chunks++)
                for (int micros = 1; micros <= MICROS; micros++) {
                    struct schedule s = {kind, pp, chunks, micros};
                    if (!schedule_check(&s)) body(&s), count++;
                }
    return count;
}

static void simulate(const struct schedule *s, bool rendezvous)
{
    static struct pipeline p; /* too large for some stacks */
    p = (struct pipeline){.s = *s, .rendezvous = rendezvous, .buffers = schedule_buffers(s)};
    for (int rank = 0; rank < s->pp; rank++) schedule_fill(s, rank, p.program[rank]);
    run(&p);
}

static void simulate_buffered(const struct schedule *s) { simulate(s, false); }
static void simulate_rendezvous(const struct schedule *s) { simulate(s, true); }

static void check_all_peaks(const struct schedule *s)
{
    struct action program[LENGTH];
    for (int rank = 0; rank < s->pp; rank++) {
        schedule_fill(s, rank, program);
        check_peaks(s, rank, program);
    }
}

TEST(schedules_do_every_micro_batch_once_in_order_and_never_lock)
{
    /* Both simple kinds at every size; interleaving wherever rounds come out even. */
    CHECK(for_every_schedule(simulate_buffered) >= 2 * PP * MICROS + 3 * (PP - 1) * 8);
}

TEST(schedules_never_lock_even_if_sends_are_over_only_when_received)
{
    CHECK(for_every_schedule(simulate_rendezvous) > 0);
}

TEST(schedules_send_from_one_buffer_where_rounds_are_of_as_many_as_ranks)
{
    struct schedule s = {SCHEDULE_interleaved, 4, 2, 8};
    CHECK(schedule_buffers(&s) == 1);
    s.micros = 10;
    CHECK(schedule_buffers(&s) == 2);
    s = (struct schedule){SCHEDULE_gpipe, 4, 1, 10};
    CHECK(schedule_buffers(&s) == 1);
}

TEST(schedules_hold_as_many_micro_batches_in_flight_as_they_say)
{
    CHECK(for_every_schedule(check_all_peaks) > 0);
}

static void check_program(const struct schedule *s, int rank, const char *want)
{
    struct action program[LENGTH];
    struct text got = {0};
    schedule_fill(s, rank, program);
    for (int i = 0; i < schedule_length(s); i++)
        text_addf(&got, "%s%c%d%c", i ? " " : "", program[i].way == FORWARD ? 'F' : 'B',
                  program[i].micro, 'a' + program[i].chunk);
    if (strcmp(got.data, want)) print_error("%s\nwanted %s\n", got.data, want);
    CHECK(!strcmp(got.data, want));
    text_release(&got);
}

TEST(schedules_are_those_of_the_papers)
{
    struct schedule s = {SCHEDULE_gpipe, 2, 1, 3};
    check_program(&s, 0, "F0a F1a F2a B0a B1a B2a");
    s = (struct schedule){SCHEDULE_one_ahead, 3, 1, 4};
    check_program(&s, 0, "F0a F1a F2a B0a F3a B1a B2a B3a");
    check_program(&s, 1, "F0a F1a B0a F2a B1a F3a B2a B3a");
    check_program(&s, 2, "F0a B0a F1a B1a F2a B2a F3a B3a");
    s = (struct schedule){SCHEDULE_interleaved, 2, 2, 4};
    check_program(&s, 0, "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a");
    check_program(&s, 1, "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
}

TEST(schedules_are_refused_where_their_kind_cannot_be)
{
    static const struct {
        struct schedule s;
        const char *message;
    } cases[] = {
        {{SCHEDULE_gpipe, 4, 2, 4}, "GPipe has one stage a rank, not 2; Interleaved1F1B"},
        {{SCHEDULE_one_ahead, 4, 2, 4}, "1F1B has one stage a rank"},
        {{SCHEDULE_one_ahead, 4, 1, 0}, "0 micro-batches a step"},
        {{SCHEDULE_one_ahead, 4, 1, INT32_MAX}, "2147483647 micro-batches"},
        {{SCHEDULE_interleaved, 1, 2, 4}, "pipeline_parallel_degree 2 or more, not 1"},
        {{SCHEDULE_interleaved, 4, 1, 4}, "with 1 stage a rank: 2 to 256"},
        {{SCHEDULE_interleaved, 4, 1 << 20, 4}, "2 to 256"},
        {{SCHEDULE_interleaved, 4, 2, 9}, "9 micro-batches a step do not make 2 rounds"},
        {{SCHEDULE_interleaved, 4, 2, 9}, "over 4 ranks: 8 or 10 would"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(CONFIG, schedule_check(&cases[i].s));
        CHECK_MESSAGE(cases[i].message);
    }
}

TEST(schedules_are_found_by_the_words_of_torchtitan)
{
    enum schedule_kind k;
    CHECK_STATUS(OK, schedule_find(&k, "1F1B"));
    CHECK(k == SCHEDULE_one_ahead);
    CHECK_STATUS(OK, schedule_find(&k, "Interleaved1F1B"));
    CHECK(k == SCHEDULE_interleaved);
    CHECK_STATUS(CONFIG, schedule_find(&k, "ZBVZeroBubble"));
    CHECK_MESSAGE("\"GPipe\" \"1F1B\" \"Interleaved1F1B\"");
}

/* Forward only, over any number of micro-batches: nobody waits for ever, each stage has all. */
TEST(schedules_of_forward_passes_alone_never_lock)
{
    static struct pipeline p;
    for (int pp = 1; pp <= PP; pp++)
        for (int chunks = 1; chunks <= CHUNKS; chunks++)
            for (int micros = 1; micros <= MICROS; micros++) {
                p = (struct pipeline){.s = {SCHEDULE_one_ahead, pp, chunks, micros}};
                p.rendezvous = true, p.buffers = 1;
                int length = micros * chunks, left = length * pp;
                for (int rank = 0; rank < pp; rank++) schedule_fill_forward(&p.s, p.program[rank]);
                for (bool moved = true; left && moved;) {
                    moved = false;
                    for (int rank = 0; rank < pp; rank++)
                        for (; p.at[rank] < length && ready(&p, rank); left--)
                            act(&p, rank), moved = true;
                }
                CHECK(!left);
                for (int i = 0; i < pp * chunks; i++) CHECK(p.forward[i] == micros);
            }
}
