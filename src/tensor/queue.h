/* queue.h -- where a backend's work goes, in order.
 *
 * A CPU runs each call at once; a GPU backend puts a stream behind this.  A backend's own queue
 * begins with this struct.
 *
 * A measuring queue computes nothing and touches no buffer (the caller's pointers may be NULL):
 * each op only says how much scratch memory it would need and prepares what it can (chosen
 * algorithms, compiled kernels).  Running a step once over a measuring queue therefore tells
 * exactly what memory the step takes, and leaves nothing to allocate later. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/arena.h"
#include "tensor/trace.h"

#include <stdbool.h>

struct device;

struct queue {
    const struct device *device; /* tensor/device.h; NULL: the CPU */
    bool measuring;
    struct arena scratch; /* one op's working memory; `peak` of a measuring pass is what it needs */
    int num_threads;
    struct trace *trace; /* of the step under way; NULL: none */
};
