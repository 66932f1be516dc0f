/* trace.h -- a timeline of a step: nested spans of the compute thread, and spans of concurrent
 * work, such as transfers, on tracks of their own.
 *
 * Units    Seconds of clock_monotonic_s; the file format requires microseconds.
 * Memory   Spans are kept until the trace is written; names are borrowed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"
#include "base/status.h"

#include <stddef.h>

struct trace {
    struct trace_span {
        const char *name, *track; /* track NULL: the compute thread */
        double begin_s, end_s;
    } * spans; /* owned; in the order they were added */
    size_t count, capacity;
};

void trace_add(struct trace *t, const char *name, double begin_s); /* ends now */
/* Spans of a track may overlap: the file then shows the track as several lines. */
void trace_add_on_track(struct trace *t, const char *track, const char *name, double begin_s,
                        double end_s);
/* Writes Chrome's trace event format, for chrome://tracing and Perfetto; replaces the file
 * atomically.  IO: it cannot be written. */
enum status trace_write(const struct trace *t, const char *path);
void trace_release(struct trace *t);

/* Call around a piece of work; with t NULL they do nothing. */
static inline double trace_begin(const struct trace *t) { return t ? clock_monotonic_s() : 0; }
static inline void trace_end(struct trace *t, const char *name, double begin_s)
{
    if (t) trace_add(t, name, begin_s);
}
