// SPDX-License-Identifier: Apache-2.0
#include "comm/heartbeat.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/local_peers.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Seconds between heartbeats; between polls; between messages about changes of a rank's state.  One
 * poll adds at most max_poll_s to a silence: a host that slept, or a process that was suspended,
 * missed heartbeats because it did not poll. */
static const double beat_s = 1, poll_s = 0.02, urgent_s = 0.01, max_poll_s = 1;
/* How long a rank that found a failure waits for the one that should report it; how long one that
 * heard of a failure waits to be ended; and how long one that reports tries to tell the others. */
static const double report_grace_s = 2, end_grace_s = 3, tell_s = 1;
/* How long a rank that knows that all have left waits for their last messages. */
static const double leave_grace_s = 10;

/* The messages to and from the ranks at one distance. */
struct channel {
    struct rank_report *received, *sent; /* of all ranks */
    bool is_due;                         /* a message is to be sent */
    bool send_failed, receive_failed;    /* it was not started: try again */
    bool has_ended, peer_has_ended;      /* its last message was sent; received */
};

struct heartbeat {
    struct progress_job job; /* first: heartbeat_step casts its job to this */
    struct heartbeat_link *link;
    struct failure_detector detector;
    struct local_peers *peers;
    struct channel channels[HEARTBEAT_CHANNELS];
    int num_channels;
    double polled_s, beat_at_s, urgent_at_s;
    bool is_urgent;            /* a rank's state has changed since the last message */
    double failed_s, ending_s; /* when a failure was found; when one was heard of; 0: none */
    atomic_bool is_leaving, is_ending;
    atomic_int exit_code; /* if is_ending */
    double told_s;        /* since when the others are being told; 0: not yet */
    double left_s;        /* when all had left; 0: not yet */
};

static size_t table_bytes(const struct heartbeat *h)
{
    return (size_t)h->detector.size * sizeof(struct rank_report);
}

/* --- messages --- */

static void post_receive(struct heartbeat *h, int i)
{
    struct channel *c = &h->channels[i];
    c->receive_failed = !h->link->receive(h->link, i, c->received, table_bytes(h));
}

/* Whether all ranks have left, as far as the reports say. */
static bool all_have_left(const struct heartbeat *h, const struct rank_report *reports)
{
    int r = 0;
    while (r < h->detector.size && reports[r].state == RANK_LEFT) r++;
    return r == h->detector.size;
}

static void receive(struct heartbeat *h, int i)
{
    struct channel *c = &h->channels[i];
    if (c->receive_failed) post_receive(h, i);
    while (!c->receive_failed && !c->peer_has_ended) {
        bool has_arrived = false;
        if (!h->link->test_receive(h->link, i, &has_arrived) || !has_arrived) return;
        if (failure_detector_merge(&h->detector, c->received)) h->is_urgent = true;
        c->peer_has_ended = all_have_left(h, c->received);
        if (!c->peer_has_ended) post_receive(h, i);
    }
}

/* Sends the reports unless the last message is still in flight.  One that failed is sent again with
 * the next heartbeat. */
static void send(struct heartbeat *h, int i)
{
    struct channel *c = &h->channels[i];
    bool is_done = false;
    if (!c->is_due || c->has_ended) return;
    if (!c->send_failed && (!h->link->test_send(h->link, i, &is_done) || !is_done)) return;
    memcpy(c->sent, h->detector.reports, table_bytes(h));
    c->is_due = false;
    c->send_failed = !h->link->send(h->link, i, c->sent, table_bytes(h));
    c->has_ended = !c->send_failed && all_have_left(h, c->sent);
}

/* Sends where a message is due; returns whether none is any more. */
static bool send_all(struct heartbeat *h)
{
    bool is_due = false;
    for (int i = 0; i < h->num_channels; i++) {
        struct channel *c = &h->channels[i];
        send(h, i);
        is_due = is_due || (c->is_due && !c->has_ended);
    }
    return !is_due;
}

static void set_due(struct heartbeat *h)
{
    for (int i = 0; i < h->num_channels; i++) h->channels[i].is_due = true;
}

/* Whether all messages have been sent and received. */
static bool is_silent(struct heartbeat *h)
{
    for (int i = 0; i < h->num_channels; i++) {
        struct channel *c = &h->channels[i];
        bool is_done = false;
        if (!c->has_ended || !c->peer_has_ended) return false;
        if (h->link->test_send(h->link, i, &is_done) && !is_done) return false;
    }
    return true;
}

/* --- failures --- */

static void set_state(struct heartbeat *h, int rank, enum rank_state state, int code)
{
    if (failure_detector_set_state(&h->detector, rank, state, code)) h->is_urgent = true;
}

static void observe_peers(struct heartbeat *h)
{
    int rank, status;
    bool ends;
    while (local_peers_find_death(h->peers, &rank, &status, &ends)) {
        struct activity a;
        if (h->detector.reports[rank].state != RANK_RUNNING) continue;
        if (local_peers_read_activity(h->peers, rank, &a))
            failure_detector_set_activity(&h->detector, rank, &a);
        bool has_code = status != -1 && WIFEXITED(status) && WEXITSTATUS(status);
        int code = has_code ? WEXITSTATUS(status) : status_exit_code(STATUS_COMM);
        set_state(h, rank, ends ? RANK_ENDING : RANK_DEAD, ends ? code : status);
    }
}

/* A process that is stopped sends no reports, but its activity can be read. */
static void observe_silent(struct heartbeat *h)
{
    struct failure_detector *d = &h->detector;
    for (int r = 0; r < d->size; r++) {
        struct activity a;
        if (d->silent_s[r] > 2 * beat_s && local_peers_read_activity(h->peers, r, &a))
            failure_detector_set_activity(d, r, &a);
    }
}

/* A rank that ends on purpose may be ended by another rank before its last heartbeat. */
static void observe_endings(struct heartbeat *h)
{
    for (int r = 0; r < h->detector.size; r++) {
        struct activity a;
        if (r == h->detector.rank || !local_peers_read_activity(h->peers, r, &a)) continue;
        if (a.is_ending) set_state(h, r, RANK_ENDING, status_exit_code(STATUS_COMM));
    }
}

/* Reports the failure and ends all ranks. */
static void report(struct heartbeat *h, enum status st)
{
    double until = clock_monotonic_s() + tell_s;
    activity_start_ending(st);
    set_state(h, h->detector.rank, RANK_ENDING, status_exit_code(st));
    set_due(h);
    send_all(h); /* before the log, whose lock may be held */
    log_failure(st);
    if (st == STATUS_HANG) failure_detector_log_ranks(&h->detector);
    activity_exit_in(0, 0, NULL);
    while (!send_all(h) && clock_monotonic_s() < until) {
    }
    h->link->end(status_exit_code(st));
}

static void react(struct heartbeat *h, double now_s)
{
    int ending;
    enum status st = failure_detector_check(&h->detector, &ending);
    if (st) observe_endings(h);
    if (st) st = failure_detector_check(&h->detector, &ending);
    if (ending && !(h->ending_s > 0)) {
        h->ending_s = now_s;
        /* Another rank reports it, but rank 0 has the log. */
        enum status death =
            h->detector.rank ? STATUS_OK : failure_detector_check_deaths(&h->detector);
        if (death) log_failure(death);
    }
    if (ending && now_s - h->ending_s > end_grace_s) {
        activity_set_ending();
        h->link->end(ending);
    }
    if (!st) return;
    if (!(h->failed_s > 0)) h->failed_s = now_s;
    if (failure_detector_is_reporter(&h->detector) || now_s - h->failed_s > report_grace_s)
        report(h, st);
}

/* --- the job --- */

static enum status heartbeat_step(struct progress_job *job, bool *is_over)
{
    struct heartbeat *h = (struct heartbeat *)job;
    double now_s = clock_monotonic_s(), since_s = now_s - h->polled_s;
    bool leaves = atomic_load(&h->is_leaving), ends = atomic_load(&h->is_ending);
    if (since_s < poll_s && !leaves && !ends) return STATUS_OK;
    h->polled_s = now_s;
    failure_detector_poll(&h->detector, since_s < max_poll_s ? since_s : max_poll_s);
    if (leaves) set_state(h, h->detector.rank, RANK_LEFT, 0);
    if (ends) set_state(h, h->detector.rank, RANK_ENDING, atomic_load(&h->exit_code));
    for (int i = 0; i < h->num_channels; i++) receive(h, i);
    observe_peers(h);
    observe_silent(h);
    if (!ends) react(h, now_s);
    bool is_due = now_s - h->beat_at_s >= beat_s;
    if (is_due) h->beat_at_s = now_s;
    if (is_due || (h->is_urgent && now_s - h->urgent_at_s >= urgent_s)) {
        h->is_urgent = false, h->urgent_at_s = now_s;
        set_due(h);
    }
    bool is_sent = send_all(h) && !h->is_urgent;
    if (ends && !(h->told_s > 0)) h->told_s = now_s;
    if (!(h->left_s > 0) && all_have_left(h, h->detector.reports)) h->left_s = now_s;
    *is_over =
        ends ? is_sent || now_s - h->told_s > tell_s
             : leaves && (is_silent(h) || (h->left_s > 0 && now_s - h->left_s > leave_grace_s));
    return STATUS_OK;
}

static enum status exchange_identities(struct heartbeat *h)
{
    struct failure_detector *d = &h->detector;
    local_peers_identify(&d->who[d->rank]);
    TRY(h->link->gather(h->link, d->who, sizeof *d->who));
    h->peers = local_peers_make(d->who, d->rank, d->size);
    d->process_state = local_peers_process_state, d->context = h->peers;
    /* A barrier: a rank may end only after the others have opened it. */
    char *parts = heap((size_t)d->size);
    enum status st = h->link->gather(h->link, parts, 1);
    free(parts);
    return st;
}

enum status heartbeat_make(struct heartbeat_link *link, struct heartbeat **out)
{
    int size = link->size;
    struct heartbeat *h = *out = heap(sizeof *h);
    h->job = (struct progress_job){.step = heartbeat_step, .is_background = true};
    h->link = link;
    h->polled_s = clock_monotonic_s();
    failure_detector_init(&h->detector, link->rank, size);
    TRY(exchange_identities(h));
    for (int distance = 1; distance < size && h->num_channels < HEARTBEAT_CHANNELS; distance *= 2) {
        struct channel *c = &h->channels[h->num_channels];
        c->received = heap(table_bytes(h)), c->sent = heap(table_bytes(h));
        post_receive(h, h->num_channels++);
    }
    return STATUS_OK;
}

struct progress_job *heartbeat_job(struct heartbeat *h) { return &h->job; }

void heartbeat_leave(struct heartbeat *h) { atomic_store(&h->is_leaving, true); }

void heartbeat_end(struct heartbeat *h, int exit_code)
{
    activity_set_ending();
    atomic_store(&h->exit_code, exit_code);
    atomic_store(&h->is_ending, true);
}

void heartbeat_free(struct heartbeat *h)
{
    if (!h) return;
    for (int i = 0; i < h->num_channels; i++)
        free(h->channels[i].received), free(h->channels[i].sent);
    local_peers_free(h->peers);
    failure_detector_release(&h->detector);
    free(h);
}
