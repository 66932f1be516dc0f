// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "runs/run_state.h"

TEST(run_state_follows_from_lock_log_and_steps)
{
    static const struct {
        struct run_evidence e;
        enum run_state want;
    } rows[] = {
        {{FOLDER_LOCK_held, 1, 60, 5, 10, false, LOG_ENDS_open}, RUN_running},
        {{FOLDER_LOCK_held, 1, 60, 5, 10, false, LOG_ENDS_error}, RUN_running}, /* restarting */
        {{FOLDER_LOCK_held, 61, 60, 5, 10, false, LOG_ENDS_open}, RUN_stalled},
        {{FOLDER_LOCK_free, 1, 60, 10, 10, true, LOG_ENDS_open}, RUN_finished},
        {{FOLDER_LOCK_free, 1, 60, 10, 10, false, LOG_ENDS_open},
         RUN_killed}, /* in its last save */
        {{FOLDER_LOCK_free, 1, 60, 10, 10, true, LOG_ENDS_error}, RUN_failed},
        {{FOLDER_LOCK_free, 1, 60, 5, 10, true, LOG_ENDS_open}, RUN_killed},
        {{FOLDER_LOCK_free, 1, 60, 5, 10, true, LOG_ENDS_stopped}, RUN_stopped},
        {{FOLDER_LOCK_free, 1, 60, 5, 10, true, LOG_ENDS_error}, RUN_failed},
        {{FOLDER_LOCK_free, 1, 60, 5, 0, true, LOG_ENDS_open}, RUN_killed},
        {{FOLDER_LOCK_unknown, 1, 60, 5, 10, false, LOG_ENDS_open}, RUN_running},
        {{FOLDER_LOCK_unknown, 61, 60, 5, 10, false, LOG_ENDS_open}, RUN_killed},
        {{FOLDER_LOCK_unknown, 1, 60, 5, 10, false, LOG_ENDS_error}, RUN_failed},
        {{FOLDER_LOCK_unknown, 1, 60, 10, 10, true, LOG_ENDS_open}, RUN_finished},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        enum run_state got = run_state_judge(&rows[i].e);
        if (got != rows[i].want) print_error("row %zu: %s\n", i, run_state_name(got));
        CHECK(got == rows[i].want);
    }
    CHECK(!strcmp(run_state_name(RUN_stalled), "stalled"));
}
