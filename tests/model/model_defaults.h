/* model_defaults.h -- a [model] section with nothing set, for tests. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model_shape.h"

#define PRESET_INT(x)  (x)
#define PRESET_REAL(x) (x)
#define PRESET_TEXT(x) (x)
#define PRESET_ENUM(x) 0 /* every default is the first word */
#define PRESET_AUTO(x) AUTO
#define PRESET_BOOL(x) (x)
#define PRESET_LIST(x)                                                                             \
    {                                                                                              \
        0                                                                                          \
    }

#define PRESET_REALS PRESET_LIST

static inline struct model_config model_defaults(const char *name, const char *flavor)
{
    struct model_config c = {
#define OPT(kind, name, preset, least, most, unit, help) .name = PRESET_##kind(preset),
#include "model/model.opts"
#undef OPT
    };
    c.name = name;
    c.flavor = flavor;
    return c;
}
