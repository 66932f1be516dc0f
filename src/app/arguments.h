/* arguments.h -- parses a command's arguments: flags, section.key=value settings, and words. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/flags.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `settings` may point into `joined`: do not copy the struct. */
struct arguments {
    const char *words[64];
    int num_words;
    const char *settings[64]; /* section.key=value, for the configuration */
    int num_settings;
    char joined[4096]; /* settings written as torchtitan's --section.key value */
    size_t num_joined;
    uint64_t given; /* bit i: flag i of the table */
    bool help;      /* --help or a completion was requested and printed: return STATUS_OK */
};

/* USAGE: an unknown flag (the message suggests the closest), a value that does not parse, or a
 * wrong number of words. */
enum status arguments_read(struct arguments *a, const struct arguments_spec *spec, int argc,
                           char **argv);

bool arguments_have(const struct arguments *a, const struct flag *flags, const char *name);

/* Reads what --color may say in front of a command: *num_read arguments from argv[0] on.  USAGE: a
 * wrong or missing value. */
enum status arguments_read_color(int argc, char **argv, int *num_read);
