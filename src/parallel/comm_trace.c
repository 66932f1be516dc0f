// SPDX-License-Identifier: Apache-2.0
#include "parallel/comm_trace.h"

static void on_start(struct comm_observer *w, const struct comm *c, const struct transfer *t,
                     size_t bytes)
{
    (void)w, (void)c, (void)t, (void)bytes; /* the transfer records when it began */
}

static void on_wait(struct comm_observer *w, const struct transfer *t)
{
    const struct comm_trace_group *g = (const struct comm_trace_group *)w;
    if (t->comm->size == 1 || !(t->started_s > 0))
        return; /* it may have started before the trace did */
    double ended_s = t->ended_s > 0 ? t->ended_s : clock_monotonic_s();
    trace_add_on_track(g->trace, g->track, transfer_name(t->kind), t->started_s, ended_s);
}

static const char *const tracks[] = {
#define X(name, axes, text) [GROUP_##name] = "transfers: " #name,
    GROUP_LIST(X)
#undef X
};

void comm_trace_begin(struct comm_trace *t, const struct groups *groups, struct trace *trace)
{
    *t = (struct comm_trace){.groups = groups};
    for (enum group g = 0; g < GROUP_COUNT; g++) {
        struct comm_counts *counts = groups->of[g].counts;
        t->of[g] = (struct comm_trace_group){{on_start, on_wait}, trace, tracks[g]};
        if (counts) counts->observer = &t->of[g].observer;
    }
}

void comm_trace_end(struct comm_trace *t)
{
    for (enum group g = 0; g < GROUP_COUNT; g++)
        if (t->groups->of[g].counts) t->groups->of[g].counts->observer = NULL;
}
