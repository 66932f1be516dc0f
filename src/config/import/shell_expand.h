/* shell_expand.h -- shell expansions: parameters, arithmetic, quote removal and word splitting. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell_lexer.h"

/* Adds the words that `word` expands to: none, one, or several if it splits.  CONFIG: limits,
 * ${NAME:?} of an unset variable, errors in $((...)). */
enum status shell_expand(struct shell *s, struct shell_token word, int line,
                         struct shell_words *out);
/* Appends the expansion without splitting it, as in assignments. */
enum status shell_expand_unsplit(struct shell *s, struct shell_token word, int line,
                                 struct text *out);
