// SPDX-License-Identifier: Apache-2.0
#include "base/signals.h"

#include <signal.h>
#include <string.h>

/* A handler can reach nothing but statics: base is the room that may hold them. */
static volatile sig_atomic_t pending;

static void note(int signal) { pending = signal; }

void signals_catch(void)
{
    /* RESETHAND puts the default action back, so a second signal is final. */
    struct sigaction action = {.sa_handler = note, .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

int signals_pending(void) { return pending; }
const char *signals_name(int signal) { return sigabbrev_np(signal); }
