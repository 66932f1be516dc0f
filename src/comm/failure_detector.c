// SPDX-License-Identifier: Apache-2.0
#include "comm/failure_detector.h"

#include "base/log.h"
#include "base/signals.h"
#include "comm/transfer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* A silent rank whose process is alive, on this host, hangs rather than being dead. */
static const double min_hang_s = 18;

void failure_detector_init(struct failure_detector *d, int rank, int size)
{
    *d = (struct failure_detector){.rank = rank, .size = size};
    d->reports = heap((size_t)size * sizeof *d->reports);
    d->silent_s = heap((size_t)size * sizeof *d->silent_s);
    d->who = heap((size_t)size * sizeof *d->who);
}

void failure_detector_release(struct failure_detector *d)
{
    free(d->reports), free(d->silent_s), free(d->who);
    *d = (struct failure_detector){0};
}

void failure_detector_set_activity(struct failure_detector *d, int rank, const struct activity *a)
{
    struct rank_report *r = &d->reports[rank];
    r->phase = (uint8_t)a->phase, r->kind = (uint8_t)a->kind, r->waiting = a->is_waiting;
    r->step = a->step, r->collectives = a->collectives;
    r->bytes = a->bytes, r->ranks = a->ranks, r->limit_s = (float)a->limit_s;
}

void failure_detector_poll(struct failure_detector *d, double elapsed_s)
{
    struct rank_report *own = &d->reports[d->rank];
    struct activity a;
    activity_read(NULL, &a);
    bool has_progress = a.progress != d->progress || !(a.limit_s > 0);
    d->progress = a.progress;
    d->idle_s = has_progress ? 0 : d->idle_s + elapsed_s;
    failure_detector_set_activity(d, d->rank, &a);
    own->idle_s = (float)d->idle_s;
    own->beat++;
    d->unchanged_s += elapsed_s;
    for (int r = 0; r < d->size; r++) d->silent_s[r] += elapsed_s;
    d->silent_s[d->rank] = 0;
}

/* States only advance: a report of a death outranks every report of the rank itself. */
static bool is_newer(const struct rank_report *a, const struct rank_report *b)
{
    return a->state != b->state ? a->state > b->state : a->beat > b->beat;
}

bool failure_detector_merge(struct failure_detector *d, const struct rank_report *reports)
{
    bool has_changed = false;
    for (int r = 0; r < d->size; r++) {
        struct rank_report *known = &d->reports[r];
        if (r == d->rank || !is_newer(&reports[r], known)) continue;
        has_changed = has_changed || known->state != reports[r].state;
        *known = reports[r];
        d->silent_s[r] = 0;
    }
    if (has_changed) d->unchanged_s = 0;
    return has_changed;
}

bool failure_detector_set_state(struct failure_detector *d, int rank, enum rank_state state,
                                int code)
{
    struct rank_report *r = &d->reports[rank];
    if (r->state >= (uint8_t)state) return false;
    r->state = (uint8_t)state, r->code = code;
    d->unchanged_s = 0;
    return true;
}

static bool is_running(const struct failure_detector *d, int r)
{
    return d->reports[r].state == RANK_RUNNING;
}

static char process_state(const struct failure_detector *d, int r)
{
    return d->process_state ? d->process_state(d->context, r) : 0;
}

/* No report for so long that the rank cannot be taken to run. */
static bool is_silent(const struct failure_detector *d, int r)
{
    return is_running(d, r) && d->silent_s[r] > SILENCE_LIMIT_S;
}

static bool is_stuck(const struct rank_report *r)
{
    return r->limit_s > 0 && r->idle_s > r->limit_s;
}

/* A silent process of this host that exists hangs, or is stopped. */
static bool hangs_silently(const struct failure_detector *d, int r)
{
    double limit_s = (double)d->reports[r].limit_s;
    if (!is_silent(d, r) || !process_state(d, r)) return false;
    return d->silent_s[r] > (limit_s > 0 ? limit_s : min_hang_s);
}

static bool hangs(const struct failure_detector *d)
{
    int num_running = 0, num_stuck = 0;
    for (int r = 0; r < d->size; r++) {
        const struct rank_report *report = &d->reports[r];
        if (!is_running(d, r)) continue;
        if (hangs_silently(d, r) || (is_stuck(report) && !report->waiting)) return true;
        /* The collective that a slow rank has completed before it left may still be waking them. */
        num_running++;
        num_stuck += is_stuck(report) && d->unchanged_s > (double)report->limit_s;
    }
    return num_running && num_stuck == num_running;
}

static bool has_same_position(const struct rank_report *a, const struct rank_report *b)
{
    return a->step == b->step && a->collectives == b->collectives && a->kind == b->kind &&
           a->bytes == b->bytes && a->waiting == b->waiting;
}

static bool is_behind(const struct rank_report *a, const struct rank_report *b)
{
    return a->step != b->step ? a->step < b->step : a->collectives < b->collectives;
}

/* The running rank whose position most ranks share; of equal numbers the one furthest ahead.  Only
 * the first ranks of many are candidates, so that the search stays short. */
static int find_majority(const struct failure_detector *d)
{
    enum { MAX_CANDIDATES = 256 };
    int majority = 0, most = 0;
    for (int r = 0; r < d->size && r < MAX_CANDIDATES; r++) {
        int same = 0;
        if (!is_running(d, r)) continue;
        for (int i = 0; i < d->size; i++)
            same += is_running(d, i) && has_same_position(&d->reports[i], &d->reports[r]);
        bool is_ahead = is_behind(&d->reports[majority], &d->reports[r]);
        if (same > most || (same == most && is_ahead)) majority = r, most = same;
    }
    return majority;
}

/* Marks the ranks on which the hang probably depends; none if no rank stands out. */
static void find_odd(const struct failure_detector *d, bool *odd)
{
    int num_odd = 0, num_running = 0;
    for (int r = 0; r < d->size; r++) num_odd += odd[r] = is_silent(d, r);
    for (int r = 0; r < d->size && !num_odd; r++)
        odd[r] = is_running(d, r) && is_stuck(&d->reports[r]) && !d->reports[r].waiting;
    for (int r = 0; r < d->size; r++) num_odd += odd[r], num_running += is_running(d, r);
    if (num_odd) return;
    int majority = find_majority(d);
    for (int r = 0; r < d->size; r++) {
        odd[r] = is_running(d, r) && !has_same_position(&d->reports[r], &d->reports[majority]);
        num_odd += odd[r];
    }
    /* Where every rank is elsewhere, as stages of a pipeline are, none stands out. */
    if (2 * num_odd > num_running) memset(odd, 0, (size_t)d->size * sizeof *odd);
}

/* Appends "rank 2 on host (pid 7)". */
static void add_rank(const struct failure_detector *d, int rank, struct text *out)
{
    const struct rank_identity *who = &d->who[rank];
    if (d->size > 1) text_addf(out, "rank %d on ", rank);
    text_addf(out, "%s (pid %d)", who->host, (int)who->pid);
}

/* Appends "step 5, forward and backward, in collective 17 (all_reduce of 64 bytes, 4 ranks)". */
static void add_position(const struct rank_report *r, bool has_died, struct text *out)
{
    const char *kind = r->kind < TRANSFER_COUNT ? transfer_name((enum transfer_kind)r->kind) : "?";
    if (r->step) text_addf(out, "step %lld, ", (long long)r->step);
    text_adds(out, activity_phase_text((enum activity_phase)r->phase));
    if (r->collectives)
        text_addf(out, ", %s collective %llu (%s of %llu bytes, %d ranks)",
                  r->waiting && !has_died ? "in"
                  : r->waiting            ? "waiting in"
                                          : "after",
                  (unsigned long long)r->collectives, kind, (unsigned long long)r->bytes,
                  (int)r->ranks);
    else if (r->waiting)
        text_adds(out, ", waiting for the device");
}

static void add_death(const struct rank_report *r, struct text *out)
{
    int status = r->code;
    if (status == -1)
        text_adds(out, "has died");
    else if (WIFSIGNALED(status) && signals_name(WTERMSIG(status)))
        text_addf(out, "was killed by SIG%s", signals_name(WTERMSIG(status)));
    else if (WIFSIGNALED(status))
        text_addf(out, "was killed by signal %d", WTERMSIG(status));
    else
        text_addf(out, "ended with exit code %d", WEXITSTATUS(status));
}

static enum status fail_death(const struct failure_detector *d, int rank)
{
    struct text who = {0};
    const struct rank_report *r = &d->reports[rank];
    add_rank(d, rank, &who);
    text_adds(&who, " ");
    if (r->state == RANK_DEAD)
        add_death(r, &who);
    else
        text_addf(&who, "is gone: no heartbeat for %d s; it was last seen", SILENCE_LIMIT_S);
    text_adds(&who, " at ");
    add_position(r, true, &who);
    enum status st = FAILURE(COMM, "%s", who.data);
    text_release(&who);
    return st;
}

static double longest_idle_s(const struct failure_detector *d)
{
    double longest = 0;
    for (int r = 0; r < d->size; r++) {
        double idle = is_silent(d, r) ? d->silent_s[r] : (double)d->reports[r].idle_s;
        if (is_running(d, r) && idle > longest) longest = idle;
    }
    return longest;
}

static void add_process_state(const struct failure_detector *d, int rank, struct text *out)
{
    char state = is_silent(d, rank) ? process_state(d, rank) : 0;
    if (state == 'T' || state == 't')
        text_adds(out, ", its process is stopped (by SIGSTOP or a debugger)");
    else if (state)
        text_addf(out, ", no heartbeat for %.0f s", d->silent_s[rank]);
}

static enum status fail_hang(const struct failure_detector *d)
{
    enum { MAX_NAMED = 4 };
    struct text t = {0};
    bool *odd = heap((size_t)d->size * sizeof *odd);
    int num_odd = 0;
    find_odd(d, odd);
    text_addf(&t, "the run hangs: no progress for %.0f s", longest_idle_s(d));
    for (int r = 0; r < d->size; r++) {
        if (!odd[r] || num_odd++ >= MAX_NAMED) continue;
        text_adds(&t, num_odd == 1 ? ": " : "; ");
        add_rank(d, r, &t);
        text_adds(&t, d->size > 1 ? " stands out: " : ": ");
        add_position(&d->reports[r], false, &t);
        add_process_state(d, r, &t);
    }
    if (num_odd > MAX_NAMED) text_addf(&t, "; and %d more ranks", num_odd - MAX_NAMED);
    enum status st = FAILURE(HANG, "%s", t.data);
    free(odd);
    text_release(&t);
    return st;
}

enum status failure_detector_check_deaths(const struct failure_detector *d)
{
    for (int r = 0; r < d->size; r++)
        if (d->reports[r].state == RANK_DEAD || (is_silent(d, r) && !process_state(d, r)))
            return fail_death(d, r);
    return STATUS_OK;
}

enum status failure_detector_check(const struct failure_detector *d, int *ending)
{
    *ending = 0;
    for (int r = 0; r < d->size; r++)
        if (r != d->rank && d->reports[r].state == RANK_ENDING) *ending = d->reports[r].code;
    if (*ending) return STATUS_OK;
    TRY(failure_detector_check_deaths(d));
    return hangs(d) ? fail_hang(d) : STATUS_OK;
}

static bool is_neighbor(const struct failure_detector *d, int a, int b)
{
    return d->who[a].kernel == d->who[b].kernel;
}

/* The dead rank, -1: none. */
static int find_dead(const struct failure_detector *d)
{
    int r = 0;
    while (r < d->size && d->reports[r].state != RANK_DEAD) r++;
    return r < d->size ? r : -1;
}

/* The processes on the host of a dead rank know best, and the launcher may end them soon. */
bool failure_detector_is_reporter(const struct failure_detector *d)
{
    int dead = find_dead(d), first = -1, neighbor = -1;
    for (int r = d->size - 1; r >= 0; r--) {
        if (!is_running(d, r) || is_silent(d, r)) continue;
        first = r;
        if (dead >= 0 && is_neighbor(d, r, dead)) neighbor = r;
    }
    return d->rank == (neighbor >= 0 ? neighbor : first);
}

void failure_detector_log_ranks(const struct failure_detector *d)
{
    enum { MAX_LINES = 64 };
    bool *odd = heap((size_t)d->size * sizeof *odd);
    int num_lines = 0;
    find_odd(d, odd);
    for (int pass = 0; pass < 2; pass++) /* the ranks that stand out must not be left out */
        for (int r = 0; r < d->size; r++) {
            struct text t = {0};
            bool is_first = odd[r] || d->size <= MAX_LINES;
            if (is_first == (pass == 1) || num_lines++ >= MAX_LINES) continue;
            add_rank(d, r, &t);
            text_adds(&t, ": ");
            add_position(&d->reports[r], false, &t);
            if (is_silent(d, r))
                add_process_state(d, r, &t);
            else
                text_addf(&t, ", no progress for %.0f s", (double)d->reports[r].idle_s);
            if (odd[r]) text_adds(&t, "  <-- stands out");
            log_line(LOG_ERROR, "%s", t.data);
            text_release(&t);
        }
    if (num_lines > MAX_LINES) log_line(LOG_ERROR, "and %d more ranks", num_lines - MAX_LINES);
    free(odd);
}
