/* guard.h -- watches a run for loss spikes, and for a model that no longer learns.
 *
 * Spike    Begins with a loss whose robust z-score, (loss - median) / deviation over the window of
 *          steps before it, exceeds guard.spike_zscore.  The deviation is 1.4826 times the median
 *          absolute deviation: an estimate of the standard deviation that a few outliers do not
 *          change.  Because noise may have a long tail, the loss must also be twice as far above
 *          the median as any loss in the window.  Ends with a loss below half of that z-score, or
 *          after GUARD_SPIKE steps, as a new level.  Its losses do not enter the window.
 * Still    No gradient, and a loss that does not change, GUARD_STILL steps in a row.
 * Ranks    All ranks that pass the same results get the same answers. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "config/run_config.h"

#include <stdbool.h>
#include <stdint.h>

enum { GUARD_WINDOW = 64, GUARD_LEAST = 32, GUARD_SPIKE = 16, GUARD_STILL = 5 };

struct guard {
    double losses[GUARD_WINDOW]; /* the newest `count` losses outside of spikes, oldest first */
    int count;
    double last_loss;
    int64_t still;       /* steps without gradient and with an unchanged loss */
    int64_t spike_steps; /* of the spike that lasts; 0: none does */
    int64_t spike_begin; /* its first step, also in the step after its last; 0: none */
    double spike_loss;   /* its largest */
    int64_t rollbacks;   /* since the run last got a window of steps past last_spike */
    int64_t last_spike;  /* the furthest step from which the run was rolled back */
    int64_t good_step;   /* the checkpoint of the last rollback; 0: none */
};

enum guard_alarm { GUARD_NONE, GUARD_SPIKE_BEGINS, GUARD_SPIKE_ENDS, GUARD_NO_GRADIENT };

struct guard_report {
    enum guard_alarm alarm;
    double median, zscore; /* of the window before the step; zscore 0: the window is too short */
};
struct step_result;
/* Adds a step; `limit` is guard.spike_zscore, 0: no spikes.  Ignores losses and norms that are not
 * finite, about which guard.nonfinite decides. */
struct guard_report guard_observe(struct guard *g, const struct step_result *s, double limit);

/* Observes a step and, if `log`, logs when a spike or a standstill begins; returns whether the
 * configuration requires a rollback: after a spike, so that its rows are skipped, too.  `last`: a
 * rollback to before the spike must happen after this step, or not at all. */
bool guard_watch(struct guard *g, const struct guard_config *c, const struct step_result *s,
                 bool log, bool last);

/* Counts a rollback from `step`; false: it would exceed `most` in succession. */
bool guard_count_rollback(struct guard *g, int64_t step, int64_t most);

/* Writes the member "guard". */
void guard_save(const struct guard *g, struct json_writer *w);
/* Reads it; NULL: nothing was observed yet.  DATA: damaged. */
enum status guard_load(struct guard *g, const struct json *from);
