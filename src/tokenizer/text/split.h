/* split.h -- splits text into the pieces that BPE merges may not cross (pre-tokenization).
 *
 * Hand-written splitters for Llama 3, Qwen 2 and GPT-2, equivalent to these regular expressions:
 *   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *           ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   qwen2   the same with \p{N} instead of \p{N}{1,3}
 *   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

extern const char split_llama3_pattern[], split_qwen2_pattern[], split_gpt2_pattern[];

/* Each returns the length in bytes of the piece at text[0]; len > 0. */
size_t split_llama3(const unsigned char *text, size_t len);
size_t split_qwen2(const unsigned char *text, size_t len);
size_t split_gpt2(const unsigned char *text, size_t len);
