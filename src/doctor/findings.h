/* findings.h -- the report of `llamero doctor`: one finding per line, its severity, and advice. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum finding_level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };

struct findings {
    struct finding {
        const char *name; /* borrowed */
        enum finding_level level;
        char *text, *advice; /* owned; advice is NULL if the level is ok */
    } * items;               /* owned */
    size_t count;
    struct failure first; /* the first failure, if any */
};

/* Appends a finding with level ok. */
void findings_add(struct findings *f, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Turns the last finding into a warning and sets its advice. */
void findings_warn(struct findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends a finding with level FAIL, whose text is the message of this thread's last failure. */
void findings_fail(struct findings *f, const char *name, enum status st, const char *advice);
void findings_release(struct findings *f);

/* A line per finding; or {"ok": ..., "findings": [{name, level, says, advice}]}. */
void findings_print(const struct findings *f, struct text *out);
void findings_write_json(const struct findings *f, struct text *out);
