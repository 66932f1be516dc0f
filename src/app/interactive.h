/* interactive.h -- `llamero generate --interactive`: a text that the user and the model write in
 * turns.
 *
 * A line of the user's is appended to the text, and the model continues it.  On a terminal lines
 * are edited (line_editor.h), and Ctrl-C stops the model's part; from a file or pipe they are read
 * as they are.
 * Ranks    Collective; rank 0 reads and prints. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "infer/text_generation.h"

/* Until the input ends or /quit.  g->loaded is open; `context` is the number of tokens of the text
 * that the model sees, of which g->max_tokens are at most half. */
enum status interactive_run(struct generation *g, int context, const char *const *stops,
                            int num_stops);
