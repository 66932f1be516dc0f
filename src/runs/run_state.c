// SPDX-License-Identifier: Apache-2.0
#include "runs/run_state.h"

static const char *const names[] = {
#define X(name, text) #name,
    RUN_STATES(X)
#undef X
};

static const char *const texts[] = {
#define X(name, text) text,
    RUN_STATES(X)
#undef X
};

const char *run_state_name(enum run_state c) { return names[c]; }
const char *run_state_text(enum run_state c) { return texts[c]; }

enum run_state run_state_judge(const struct run_evidence *e)
{
    bool is_quiet = e->quiet_s > e->quiet_limit_s;
    bool has_ended = e->log_end != LOG_ENDS_open || (e->last_step && e->step >= e->last_step);
    if (e->lock == FOLDER_LOCK_held) return is_quiet ? RUN_stalled : RUN_running;
    if (e->lock == FOLDER_LOCK_unknown && !is_quiet && !has_ended) return RUN_running;
    if (e->log_end == LOG_ENDS_error) return RUN_failed;
    if (e->last_step && e->step >= e->last_step && e->is_saved) return RUN_finished;
    return e->log_end == LOG_ENDS_stopped ? RUN_stopped : RUN_killed;
}
