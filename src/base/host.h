/* host.h -- the name of this machine. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

/* Fills the buffer with the host's name, cut off to fit, and with zeros, so that ranks of a host
 * have the same bytes.  "": unknown. */
void host_name(char *name, size_t size);
