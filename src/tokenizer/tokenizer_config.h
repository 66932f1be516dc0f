/* tokenizer_config.h -- the options in [tokenizer]. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"

struct tokenizer_config {
#define OPT OPT_FIELD
#include "tokenizer/tokenizer.opts"
#undef OPT
};
