/* shell_condition.h -- conditions of [, test and [[. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/import/shell.h"

enum status shell_condition_evaluate(struct shell *s, struct shell_words words, int line,
                                     enum shell_result *out);
bool shell_condition_match(const char *pattern, const char *word); /* with * and ? */
