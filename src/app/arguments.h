/* arguments.h -- parses a command's arguments: flags, section.key=value settings, and words. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flag_kind { FLAG_SWITCH, FLAG_INT, FLAG_REAL, FLAG_TEXT, FLAG_LIST };

/* The values of a flag that may be repeated. */
struct flag_list {
    const char *items[64];
    int count;
};

/* --name, --name VALUE or --name=VALUE.  Underscores may replace dashes, and a switch may be
 * followed by Python's True or False.  A table of flags ends with a NULL name. */
struct flag {
    const char *name; /* without the dashes */
    enum flag_kind kind;
    void *into; /* bool, int64_t, double, const char * or struct flag_list; holds the default */
    const char *help;
};

struct arguments_spec {
    const char *usage; /* the line after "usage: llamero ", a blank line, a paragraph */
    const struct flag *flags;
    int min_words, max_words;
};

/* `settings` may point into `joined`: do not copy the struct. */
struct arguments {
    const char *words[64];
    int num_words;
    const char *settings[64]; /* section.key=value, for the configuration */
    int num_settings;
    char joined[4096]; /* settings written as torchtitan's --section.key value */
    size_t num_joined;
    bool help; /* --help was given and printed: return STATUS_OK */
};

/* USAGE: an unknown flag (the message suggests the closest), a value that does not parse, or a
 * wrong number of words. */
enum status arguments_read(struct arguments *a, const struct arguments_spec *spec, int argc,
                           char **argv);
