/* findings.h -- what `llamero doctor` found: a line each, good or bad, and what to do about it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>

enum level { LEVEL_OK, LEVEL_WARN, LEVEL_FAIL };
const char *level_name(enum level l); /* "ok", "warn", "FAIL" */

struct findings {
    struct finding {
        const char *name; /* borrowed */
        enum level level;
        char *says, *advice; /* owned; advice is NULL where all is well */
    } * items;               /* owned */
    size_t count;
    struct failure first; /* what failed first, if anything did */
};

/* The next line, which is well until it is told otherwise. */
void findings_add(struct findings *f, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The line just added: a warning, and what to do about it. */
void findings_warn(struct findings *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line that fails with this thread's last failure `st`, which says it. */
void findings_fail(struct findings *f, const char *name, enum status st, const char *advice);
void findings_release(struct findings *f);

/* For people, a line each; or {"ok": ..., "findings": [{name, level, says, advice}]}. */
void findings_print(const struct findings *f, struct text *out);
void findings_json(const struct findings *f, struct text *out);
