/* piped_input.h -- standard input whose wait a caught signal ends. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Waits for bytes of standard input and appends them; none: it has ended, or a signal is pending
 * (signals.h).  IO: it cannot be read. */
enum status piped_input_read(struct text *t);
