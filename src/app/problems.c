// SPDX-License-Identifier: Apache-2.0
#include "app/problems.h"

#include "base/log.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum status problems_add(struct problems *p, enum status s)
{
    const char *message = status_message();
    if (!s) return s;
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(p->messages[i], message)) return s;
    status_save(&p->first, s);
    p->messages = heap_grow(p->messages, p->count + 1, sizeof *p->messages);
    p->messages[p->count++] = heap_strdup(message);
    return s;
}

void problems_release(struct problems *p)
{
    for (size_t i = 0; i < p->count; i++) free(p->messages[i]);
    free(p->messages);
    *p = (struct problems){0};
}

enum status problems_report(const struct problems *p)
{
    for (size_t i = 0; i < p->count && p->count > 1; i++) log_line(LOG_ERROR, "%s", p->messages[i]);
    enum status s = status_restore(&p->first);
    if (p->count > 1) status_mark_reported();
    return s;
}
