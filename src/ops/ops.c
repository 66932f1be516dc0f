// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

#include <stddef.h>

const char *ops_missing(const struct ops *o)
{
#define OP(name, what, io)                                                                         \
    if (!o->name) return #name;
#include "ops/ops.def"
#undef OP
    return NULL;
}
