// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "parallel/schedule.h"

enum { PP = 8, CHUNKS = 4, MICROS = 16, LENGTH = 2 * MICROS * CHUNKS };

/* Messages between two ranks under one tag, in order: the sender's stage, and the microbatch. */
struct message {
    int stage, micro;
};
struct channel {
    struct message sent[MICROS * CHUNKS];
    int num_sent, num_received;
};

/* Simulates all ranks.  Rendezvous: a send completes when it is received, and a chunk has
 * schedule_send_buffers in each direction. */
struct simulation {
    struct schedule s;
    bool rendezvous;
    int buffers, length; /* actions of each rank */
    struct action actions[PP][LENGTH];
    int at[PP];
    struct channel channels[PP][PP][DIRECTION_COUNT];
    int forward[PP * CHUNKS], backward[PP * CHUNKS]; /* microbatches done by each stage */
};

static struct channel *channel(struct simulation *p, int from, int to, int tag)
{
    CHECK(tag >= 0 && tag < DIRECTION_COUNT && to >= 0 && to < p->s.pp && from >= 0 &&
          from < p->s.pp);
    return &p->channels[from][to][tag];
}

/* Messages of a stage that are not received yet. */
static int num_pending(const struct channel *w, int stage)
{
    int count = 0;
    for (int i = w->num_received; i < w->num_sent; i++) count += w->sent[i].stage == stage;
    return count;
}

/* Whether the rank's next action has its input, and a free buffer for its output. */
static bool ready(struct simulation *p, int rank)
{
    const struct action *a = &p->actions[rank][p->at[rank]];
    struct p2p_message in = schedule_input(&p->s, rank, a), out = schedule_output(&p->s, rank, a);
    if (p->rendezvous && out.peer >= 0) {
        const struct channel *w = channel(p, rank, out.peer, out.tag);
        if (num_pending(w, schedule_stage(&p->s, rank, a->chunk)) >= p->buffers) return false;
    }
    if (in.peer < 0) return true;
    const struct channel *w = channel(p, in.peer, rank, in.tag);
    return w->num_sent > w->num_received;
}

static void run_action(struct simulation *p, int rank)
{
    const struct action *a = &p->actions[rank][p->at[rank]++];
    int stage = schedule_stage(&p->s, rank, a->chunk), stages = p->s.pp * p->s.chunks;
    struct p2p_message in = schedule_input(&p->s, rank, a), out = schedule_output(&p->s, rank, a);
    CHECK(a->chunk >= 0 && a->chunk < p->s.chunks);
    /* Ascending without gaps, so each is done once. */
    CHECK(a->micro == (a->direction == FORWARD ? p->forward[stage] : p->backward[stage]));
    if (a->direction == FORWARD) {
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
        struct channel *w = channel(p, in.peer, rank, in.tag);
        const struct message *m = &w->sent[w->num_received++];
        CHECK(m->micro == a->micro &&
              m->stage == (a->direction == FORWARD ? stage - 1 : stage + 1));
    }
    if (out.peer >= 0) {
        struct channel *w = channel(p, rank, out.peer, out.tag);
        w->sent[w->num_sent++] = (struct message){stage, a->micro};
    }
}

static void run_all(struct simulation *p)
{
    int left = p->length * p->s.pp;
    for (bool moved = true; left && moved;) {
        moved = false;
        for (int rank = 0; rank < p->s.pp; rank++)
            for (; p->at[rank] < p->length && ready(p, rank); left--)
                run_action(p, rank), moved = true;
    }
    if (left)
        print_error("%s pp %d chunks %d microbatches %d: deadlock\n", schedule_kind_word(p->s.kind),
                    p->s.pp, p->s.chunks, p->s.num_microbatches);
    CHECK(!left);
}

/* Checks the number of microbatches in flight, and that slots used in turn never collide. */
static void check_in_flight(const struct schedule *s, int rank, const struct action *actions)
{
    int now[CHUNKS] = {0}, max[CHUNKS] = {0}, all = 0, max_of_all = 0;
    bool taken[CHUNKS][MICROS] = {{false}};
    for (int i = 0; i < schedule_length(s); i++) {
        const struct action *a = &actions[i];
        int step = a->direction == FORWARD ? 1 : -1;
        bool *slot = &taken[a->chunk][a->micro % schedule_max_in_flight(s, rank, a->chunk)];
        CHECK(*slot == (a->direction == BACKWARD));
        *slot = !*slot;
        now[a->chunk] += step, all += step;
        if (now[a->chunk] > max[a->chunk]) max[a->chunk] = now[a->chunk];
        if (all > max_of_all) max_of_all = all;
    }
    for (int c = 0; c < s->chunks; c++) CHECK(schedule_max_in_flight(s, rank, c) == max[c]);
    /* The published formulas. */
    int ranks_after = s->pp - rank - 1, total = s->num_microbatches * s->chunks, want = total;
    int rounds = s->num_microbatches < s->pp ? 1 : s->num_microbatches / s->pp;
    if (s->kind == SCHEDULE_1F1B) want = ranks_after + 1;
    if (s->kind == SCHEDULE_Interleaved1F1B)
        want = 2 * ranks_after + (s->chunks - 1) * (s->num_microbatches / rounds) + 1;
    CHECK(max_of_all == (want < total ? want : total));
}

static int for_every_schedule(void (*body)(const struct schedule *s))
{
    int count = 0;
    for (int kind = 0; kind < SCHEDULE_COUNT; kind++)
        for (int pp = 1; pp <= PP; pp++)
            for (int chunks = 1; chunks <= CHUNKS; chunks++)
                for (int micros = 1; micros <= MICROS; micros++) {
                    struct schedule s = {(enum schedule_kind)kind, pp, chunks, micros};
                    if (!schedule_check(&s)) body(&s), count++;
                }
    return count;
}

static void simulate(const struct schedule *s, bool rendezvous)
{
    static struct simulation p; /* too large for some stacks */
    p = (struct simulation){.s = *s, .rendezvous = rendezvous, .buffers = schedule_send_buffers(s)};
    p.length = schedule_length(s);
    for (int rank = 0; rank < s->pp; rank++) schedule_actions(s, rank, p.actions[rank]);
    run_all(&p);
    for (int stage = 0; stage < s->pp * s->chunks; stage++)
        CHECK(p.forward[stage] == s->num_microbatches && p.backward[stage] == s->num_microbatches);
}

static void simulate_forward(const struct schedule *s, bool rendezvous)
{
    static struct simulation p;
    p = (struct simulation){.s = *s, .rendezvous = rendezvous, .buffers = 1};
    p.length = s->num_microbatches * s->chunks;
    for (int rank = 0; rank < s->pp; rank++) schedule_forward_actions(s, p.actions[rank]);
    run_all(&p);
    for (int stage = 0; stage < s->pp * s->chunks; stage++)
        CHECK(p.forward[stage] == s->num_microbatches);
}

static void simulate_buffered(const struct schedule *s) { simulate(s, false); }
static void simulate_rendezvous(const struct schedule *s) { simulate(s, true); }

static void check_all_in_flight(const struct schedule *s)
{
    struct action actions[LENGTH];
    for (int rank = 0; rank < s->pp; rank++) {
        schedule_actions(s, rank, actions);
        check_in_flight(s, rank, actions);
    }
}

TEST(schedules_run_every_microbatch_once_in_order_without_deadlock)
{
    /* GPipe and 1F1B at every size; interleaved if rounds are of equal size. */
    CHECK(for_every_schedule(simulate_buffered) >= 2 * PP * MICROS + 3 * (PP - 1) * 8);
}

TEST(schedules_do_not_deadlock_with_rendezvous_sends)
{
    CHECK(for_every_schedule(simulate_rendezvous) > 0);
}

TEST(forward_actions_do_not_deadlock_with_any_number_of_microbatches)
{
    for (int pp = 1; pp <= PP; pp++)
        for (int chunks = 1; chunks <= CHUNKS; chunks++)
            for (int micros = 1; micros <= MICROS; micros++)
                for (int rendezvous = 0; rendezvous < 2; rendezvous++)
                    simulate_forward(
                        &(struct schedule){chunks > 1 ? SCHEDULE_Interleaved1F1B : SCHEDULE_1F1B,
                                           pp, chunks, micros},
                        rendezvous);
}

/* Otherwise chunks would need channels of their own, and a GPU's streams share hardware queues. */
static void check_channels(const struct schedule *s)
{
    struct action actions[LENGTH];
    for (int rank = 0; rank < s->pp; rank++) {
        struct p2p_message in[DIRECTION_COUNT], out[DIRECTION_COUNT];
        for (int d = 0; d < DIRECTION_COUNT; d++) in[d].peer = out[d].peer = -1;
        schedule_actions(s, rank, actions);
        for (int i = 0; i < schedule_length(s); i++) {
            const struct action *a = &actions[i];
            struct p2p_message to = schedule_output(s, rank, a), from = schedule_input(s, rank, a);
            if (to.peer >= 0 && out[a->direction].peer < 0) out[a->direction] = to;
            if (from.peer >= 0 && in[a->direction].peer < 0) in[a->direction] = from;
            CHECK(to.peer < 0 || !memcmp(&to, &out[a->direction], sizeof to));
            CHECK(from.peer < 0 || !memcmp(&from, &in[a->direction], sizeof from));
        }
    }
}

TEST(schedules_have_one_peer_and_tag_for_all_messages_of_a_direction)
{
    CHECK(for_every_schedule(check_channels) > 0);
}

TEST(schedules_need_one_send_buffer_for_rounds_of_pp_microbatches)
{
    struct schedule s = {SCHEDULE_Interleaved1F1B, 4, 2, 8};
    CHECK(schedule_send_buffers(&s) == 1);
    s.num_microbatches = 10;
    CHECK(schedule_send_buffers(&s) == 2);
    s = (struct schedule){SCHEDULE_GPipe, 4, 1, 10};
    CHECK(schedule_send_buffers(&s) == 1);
}

TEST(schedules_have_the_documented_microbatches_in_flight)
{
    CHECK(for_every_schedule(check_all_in_flight) > 0);
}

static void check_actions(const struct schedule *s, int rank, const char *want)
{
    struct action actions[LENGTH];
    struct text got = {0};
    schedule_actions(s, rank, actions);
    for (int i = 0; i < schedule_length(s); i++)
        text_addf(&got, "%s%c%d%c", i ? " " : "", actions[i].direction == FORWARD ? 'F' : 'B',
                  actions[i].micro, 'a' + actions[i].chunk);
    if (strcmp(got.data, want)) print_error("%s\nexpected %s\n", got.data, want);
    CHECK(!strcmp(got.data, want));
    text_release(&got);
}

TEST(schedules_match_the_papers)
{
    struct schedule s = {SCHEDULE_GPipe, 2, 1, 3};
    check_actions(&s, 0, "F0a F1a F2a B0a B1a B2a");
    s = (struct schedule){SCHEDULE_1F1B, 3, 1, 4};
    check_actions(&s, 0, "F0a F1a F2a B0a F3a B1a B2a B3a");
    check_actions(&s, 1, "F0a F1a B0a F2a B1a F3a B2a B3a");
    check_actions(&s, 2, "F0a B0a F1a B1a F2a B2a F3a B3a");
    s = (struct schedule){SCHEDULE_Interleaved1F1B, 2, 2, 4};
    check_actions(&s, 0, "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a");
    check_actions(&s, 1, "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a");
}

TEST(schedules_reject_unsupported_sizes)
{
    static const struct {
        struct schedule s;
        const char *message;
    } cases[] = {
        {{SCHEDULE_GPipe, 4, 2, 4},
         "\"GPipe\" supports one stage per rank, not 2; \"Interleaved1F1B\""},
        {{SCHEDULE_1F1B, 4, 2, 4}, "\"1F1B\" supports one stage per rank"},
        {{SCHEDULE_1F1B, 4, 1, 0}, "0 microbatches per step"},
        {{SCHEDULE_1F1B, 4, 1, INT32_MAX}, "2147483647 microbatches"},
        {{SCHEDULE_Interleaved1F1B, 1, 2, 4}, "pipeline_parallel_degree >= 2, got 1"},
        {{SCHEDULE_Interleaved1F1B, 4, 1, 4}, "with 1 stage per rank: must be between 2 and 256"},
        {{SCHEDULE_Interleaved1F1B, 4, 1 << 20, 4}, "between 2 and 256"},
        {{SCHEDULE_Interleaved1F1B, 4, 2, 9},
         "9 microbatches per step are not divisible into 2 rounds"},
        {{SCHEDULE_Interleaved1F1B, 4, 2, 9}, "over 4 ranks; try 8 or 10"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(CONFIG, schedule_check(&cases[i].s));
        CHECK_MESSAGE(cases[i].message);
    }
}

TEST(schedules_have_torchtitans_names)
{
    CHECK(!strcmp(schedule_kind_word(SCHEDULE_1F1B), "1F1B"));
    CHECK(!strcmp(schedule_kind_word(SCHEDULE_Interleaved1F1B), "Interleaved1F1B"));
    CHECK(!strcmp(schedule_kind_word(SCHEDULE_GPipe), "GPipe"));
}
