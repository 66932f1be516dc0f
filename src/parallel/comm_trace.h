/* comm_trace.h -- records the transfers of a mesh's groups as spans of a trace, on tracks of their
 * own, so that their overlap with computation can be seen.
 *
 * Ranks    A rank that is alone in a group transfers nothing, and has no spans of it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/groups.h"
#include "tensor/trace.h"

struct comm_trace {
    const struct groups *groups; /* borrowed */
    struct comm_trace_group {
        struct comm_observer observer; /* first: callbacks are given this */
        struct trace *trace;
        const char *track; /* "transfers: " and the group's name */
    } of[GROUP_COUNT];
};

/* Until comm_trace_end every transfer of the groups becomes a span of the trace, from comm_start to
 * its completion.  For the thread that starts the transfers and waits for them. */
void comm_trace_begin(struct comm_trace *t, const struct groups *groups, struct trace *trace);
void comm_trace_end(struct comm_trace *t);
