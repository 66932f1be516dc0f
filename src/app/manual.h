/* manual.h -- what the tables say of a command and of the program: --help, man pages and
 * docs/commands.md. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/flags.h"
#include "base/status.h"

#include <stdio.h>

/* Prints a command's help on stdout.  `request` is the argument that requested it: "-h" or
 * "--help", or with "=man" its man page, with "=markdown" its section of docs/commands.md.  Bit i
 * of `given`: the variable of flag i no longer holds its default.  USAGE: another word after
 * "--help=". */
enum status manual_print(const struct arguments_spec *spec, uint64_t given, const char *request);

/* The same for the program, to a stream: llamero(1), and docs/commands.md without its sections. */
enum status manual_print_program(const char *request, FILE *to);
