// SPDX-License-Identifier: Apache-2.0
#include "runs/run_condition.h"

static const char *const names[] = {
#define X(name, text) #name,
    RUN_CONDITIONS(X)
#undef X
};

static const char *const texts[] = {
#define X(name, text) text,
    RUN_CONDITIONS(X)
#undef X
};

const char *run_condition_name(enum run_condition c) { return names[c]; }
const char *run_condition_text(enum run_condition c) { return texts[c]; }

enum run_condition run_condition_judge(const struct run_evidence *e)
{
    bool is_quiet = e->quiet_s > e->quiet_limit_s;
    bool has_ended = e->log_end != LOG_ENDS_open || (e->last_step && e->step >= e->last_step);
    if (e->lock == FOLDER_LOCK_held) return is_quiet ? RUN_stalled : RUN_running;
    if (e->lock == FOLDER_LOCK_unknown && !is_quiet && !has_ended) return RUN_running;
    if (e->log_end == LOG_ENDS_error) return RUN_failed;
    if (e->last_step && e->step >= e->last_step && e->is_saved) return RUN_finished;
    return e->log_end == LOG_ENDS_stopped ? RUN_stopped : RUN_killed;
}
