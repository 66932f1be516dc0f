/* s3_process.h -- runs the credential_process of an AWS profile.
 *
 * The command is split into words as shlex.split of Python does (quotes and backslashes, but no
 * variables, patterns or pipes) and started without a shell, with stdin from /dev/null.  It has a
 * minute; then its process group is killed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/s3_keys.h"

#include <stdatomic.h>

/* `cancel`: as in http.h.  CONFIG: the command cannot be split or started, or fails; the message
 * has the beginning of its stderr.  DATA: its output is malformed.  IO: it takes too long.
 * REQUEUE: canceled. */
enum status s3_process_fetch(const char *command, const atomic_bool *cancel, struct s3_keys *out);

/* Splits a command into words, up to a NULL; the caller frees each and the array.  NULL: a quote or
 * a backslash at the end is not closed. */
char **s3_process_split(const char *command);
