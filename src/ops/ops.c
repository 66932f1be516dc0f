// SPDX-License-Identifier: Apache-2.0
#include "ops/ops.h"

#include <stddef.h>

struct ops ops_overlay(struct ops base, const struct ops *over)
{
    base.backend = over->backend;
    if (over->attention_forward) base.attention_can_pack = over->attention_can_pack;
#define OP(name, what, io)                                                                         \
    if (over->name) base.name = over->name;
#include "ops/ops.def"
#undef OP
    return base;
}

const char *ops_missing(const struct ops *o)
{
#define OP(name, what, io)                                                                         \
    if (!o->name) return #name;
#include "ops/ops.def"
#undef OP
    return NULL;
}
