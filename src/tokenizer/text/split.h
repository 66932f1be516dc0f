/* split.h -- splits text into the pieces that BPE merges may not cross (pre-tokenization).
 *
 * Hand-written splitters for Llama 3, GPT-4, Qwen 2 and GPT-2, equivalent to these regular
 * expressions:
 *   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
 *           ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *   cl100k  the same with \s+\z before \s*[\r\n]+: white space that ends the text is one piece
 *   qwen2   llama3's with \p{N} instead of \p{N}{1,3}
 *   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

extern const char split_llama3_pattern[], split_cl100k_pattern[], split_qwen2_pattern[],
    split_gpt2_pattern[];
/* o200k_base's (GPT-4o) and Llama 4's, without a splitter of its own. */
extern const char split_o200k_pattern[];

/* Each returns the length in bytes of the piece at text[0]; len > 0. */
size_t split_llama3(const unsigned char *text, size_t len);
size_t split_cl100k(const unsigned char *text, size_t len);
size_t split_qwen2(const unsigned char *text, size_t len);
size_t split_gpt2(const unsigned char *text, size_t len);

/* Returns the first position in [at, len], at > 0, where split_llama3 begins a piece whatever
 * comes before: the texts before and after it can be split separately. */
size_t split_llama3_boundary(const unsigned char *text, size_t len, size_t at);
