/* raw_tokens.h -- reads .bin files of token IDs without an index, as a one-dimensional array:
 * llm.c's, with a header of 1,024 bytes, and nanoGPT's, which are nothing but 16-bit IDs.
 *
 * Sources  dev/data/data_common.py of llm.c (write_datafile), data/openwebtext/prepare.py of
 *          nanoGPT. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "formats/npy.h"

/* As npy_open; npy_close closes it.  MISSING, IO.  DATA: the header does not match the size;
 * without a header, an odd number of bytes, or IDs that look like 32-bit ones.  UNSUPPORTED: an
 * unknown version. */
enum status raw_tokens_open(struct npy *n, const char *path);
/* As npy_parse. */
enum status raw_tokens_parse(struct npy *n, const unsigned char *bytes, uint64_t size);
