/* signals.h -- graceful shutdown on SIGTERM and its like.
 *
 * After signals_catch a signal that asks a program to end (TERM, INT, HUP, USR1, USR2, XCPU, XFSZ),
 * and ALRM (signals_alarm), only set a flag that the training loop polls.  More of them change
 * nothing, except that the third Ctrl-C (SIGINT) ends the process at once.  Writing to a closed
 * pipe becomes an error.
 *
 * Threads  Those that start later block these signals, as the caller does, and a thread of this
 *          file waits for them: a handler could interrupt one of oneDNN's f32 GEMMs, and the
 *          signal's frame then overwrites memory of the heap. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* Call it before any other thread starts.  A SIGHUP that is ignored already, as under nohup, stays
 * ignored. */
void signals_catch(void);
int signals_pending(void); /* the first caught signal's number; 0: none */
/* Ends the process by that signal, as if it had not been caught: a shell reports 128 plus its
 * number, and a script stops, too.  No-op without one. */
void signals_raise_pending(void);
double signals_pending_for(void); /* seconds since it arrived; 0: none has */
/* Makes SIGALRM pending after `seconds`, at once if that is not positive.  A later call replaces an
 * earlier one. */
void signals_alarm(double seconds);
const char *signals_name(int signal); /* "TERM"; NULL: not a signal with a name */
