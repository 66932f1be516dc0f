/* flag_modes.h -- flags that only some modes of a command read: its subcommands, or its formats.
 *
 * The flag's help begins with them: "show: decode the tokens", "native, dcp: omit the optimizer".
 * Other words before a colon restrict nothing. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/flags.h"
#include "base/status.h"

#include <stdint.h>

struct flag_modes {
    const char *before; /* of a mode in messages: "tokenizer ", "--to " */
    const char *all;    /* "hf|meta|dcp" */
    const char *mode;   /* that the user chose */
};

/* USAGE: one of the flags whose bit in `given` is set belongs to other modes. */
enum status flag_modes_check(const struct flag_modes *m, const struct flag *flags, uint64_t given);
