/* encoder.h -- encodes text to token IDs; one encoder per thread.
 *
 * Memory   An encoder keeps a cache of short pieces and its scratch memory between calls. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tokenizer/token_list.h"

#include <stdbool.h>
#include <stddef.h>

struct encoder;
struct tokenizer;

/* Makes an encoder with a cache of 4 MiB. */
enum status encoder_make(struct encoder **out, const struct tokenizer *t);
/* For hundreds of megabytes of text: 16 MiB of cache, in which more words of a language fit. */
enum { ENCODER_CORPUS_BITS = 18 };
/* The same with a cache of 2^entry_bits short pieces in 64 << entry_bits bytes; entry_bits > 0. */
enum status encoder_make_sized(struct encoder **out, const struct tokenizer *t, int entry_bits);
void encoder_free(struct encoder *e);
/* About how much memory it has when its cache is full; a tokenizer of bytes uses none. */
size_t encoder_memory_bytes(const struct encoder *e);
/* Whether the option meta_cuts can change IDs: not with "bytes" and SentencePiece's BPE. */
bool encoder_uses_cuts(const struct tokenizer *t);
/* Appends the IDs of the text.  Text that looks like a special token is encoded as plain text, and
 * neither BOS nor EOS is added.  The text need not be valid UTF-8: invalid bytes are encoded as
 * they are (SentencePiece models encode them as U+FFFD).  RECORD: a piece of over 64 MiB that
 * cannot be split, or a pattern exceeds PCRE2's match limit. */
enum status encoder_encode(struct encoder *e, const char *bytes, size_t len,
                           struct token_list *out);
