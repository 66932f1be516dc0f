// SPDX-License-Identifier: Apache-2.0
#include "model/params.h"

const struct param params[PARAM_COUNT] = {
#define PARAM(id, name, ...) [PARAM_##id] = {name, __VA_ARGS__},
#include "model/llama.params"
#undef PARAM
};
