/* traced.h -- transfers of a mesh's groups as spans of a trace, beside those of the computing: so
 * that one sees what goes on meanwhile.
 *
 * Ranks    One that is alone in a group moves nothing, and has no spans of it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/mesh.h"
#include "tensor/trace.h"

struct traced {
    const struct groups *groups; /* borrowed */
    struct traced_group {
        struct comm_observer observer; /* first: a call is given this */
        struct trace *trace;
        const char *track; /* "transfers: " and the group's name */
    } of[GROUP_COUNT];
};

/* From here to traced_end every transfer of the groups is a span of the trace, from comm_start to
 * when it was over.  For the thread that starts and waits for them. */
void traced_begin(struct traced *t, const struct groups *groups, struct trace *trace);
void traced_end(struct traced *t);
