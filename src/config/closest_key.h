/* closest_key.h -- the key that an unknown one most likely means. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* For "section.key", "key", or "data.source.0.key": a name that other programs use for an option,
 * the same key of another section, or a similar spelling.  In `buffer`, or NULL. */
const char *closest_key_find(const char *key, char *buffer, size_t size);
/* For a key of a section whose unknown keys are accepted: the known one of that section, an option
 * or another program's key, that differs by one or two letters.  In `buffer`, or NULL. */
const char *closest_key_misspelled(const char *key, char *buffer, size_t size);
/* Only if it is certain which option is meant: a name of another program, or a key that the
 * sections with most settings, or no other section, have. */
const char *closest_key_exact(const char *key, char *buffer, size_t size);
