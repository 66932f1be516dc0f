/* signals.h -- graceful shutdown.
 *
 * After signals_catch the first SIGTERM, SIGUSR1 or SIGINT only sets a flag that the training
 * loop polls; the second one has its default action and ends the process. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

void signals_catch(void);
int signals_pending(void); /* the caught signal's number; 0: none */
const char *signals_name(int signal);
