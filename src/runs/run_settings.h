/* run_settings.h -- a run's config.toml as a sorted list of keys and values.
 *
 * The file is read as plain TOML, not as a configuration: that of a run of another version is
 * listed like any other.  Keys are "section.key" and "data.source.0.path"; strings have no quotes
 * and are printable, numbers are as short as their value allows. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { RUN_SETTINGS_MOST = 4096 };

struct run_setting {
    char *key, *value;
};

struct run_settings {
    struct run_setting *all; /* by key, bytewise */
    size_t count;
};

/* MISSING, IO; DATA: not TOML, or more than a MiB or RUN_SETTINGS_MOST keys. */
enum status run_settings_read(struct run_settings *s, const char *path);
void run_settings_release(struct run_settings *s);

const char *run_settings_find(const struct run_settings *s, const char *key); /* or NULL */
/* The value if it is a number; otherwise `preset`. */
double run_settings_number(const struct run_settings *s, const char *key, double preset);
