/* completion.h -- what can complete a command line.  The scripts in packaging/completions/ run
 * `llamero --complete WORD...` with the words after the program's name, the last of which is to be
 * completed and may be empty.
 *
 * Output   a line per candidate, "WORD<tab>DESCRIPTION"; no space follows a word that ends in '='
 *          or '.'.  The lines ":files" and ":folders" add the paths that complete the word, or what
 *          follows its last '='. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/flags.h"

/* Prints what completes the last of the words after a command's name. */
void completion_print(const struct arguments_spec *spec, int num_words, char *const *words);
/* Prints the values of --color that begin with `start`. */
void completion_print_colors(const char *start);
/* Prints names of commands and flags in front of them that begin with `start`. */
void completion_print_commands(const char *start);
