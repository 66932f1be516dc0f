// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <signal.h>
#include <string.h>

/* A signal handler can reach only statics; only base may have global state. */
static volatile sig_atomic_t pending;

static void set_pending(int signal) { pending = signal; }

void signals_catch(void)
{
    /* SA_RESETHAND restores the default action, so a second signal ends the process. */
    struct sigaction action = {.sa_handler = set_pending,
                               .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

int signals_pending(void) { return pending; }
const char *signals_name(int signal) { return sigabbrev_np(signal); }
