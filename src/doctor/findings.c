// SPDX-License-Identifier: Apache-2.0
#include "doctor/findings.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const char *level_name(enum finding_level l)
{
    static const char *const names[] = {"ok", "warn", "FAIL"};
    return names[l];
}

static char *format_line(const char *fmt, va_list args)
{
    char line[STATUS_TEXT];
    int n = vsnprintf(line, sizeof line, fmt, args);
    size_t len = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    return heap_string(line, len);
}

void findings_add(struct findings *f, const char *name, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    f->items = heap_grow(f->items, f->count + 1, sizeof *f->items);
    f->items[f->count++] = (struct finding){.name = name, .text = format_line(fmt, args)};
    va_end(args);
}

void findings_warn(struct findings *f, const char *fmt, ...)
{
    struct finding *last = &f->items[f->count - 1];
    va_list args;
    va_start(args, fmt);
    free(last->advice);
    last->level = LEVEL_WARN;
    last->advice = format_line(fmt, args);
    va_end(args);
}

void findings_fail(struct findings *f, const char *name, enum status st, const char *advice)
{
    findings_add(f, name, "%s", status_message());
    f->items[f->count - 1].level = LEVEL_FAIL;
    f->items[f->count - 1].advice = heap_strdup(advice);
    status_save(&f->first, st);
}

void findings_release(struct findings *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->items[i].text);
        free(f->items[i].advice);
    }
    free(f->items);
    *f = (struct findings){0};
}

void findings_print(const struct findings *f, struct text *out)
{
    for (size_t i = 0; i < f->count; i++) {
        const struct finding *x = &f->items[i];
        text_addf(out, "%-4s  %-15s %s\n", level_name(x->level), x->name, x->text);
        if (x->advice) text_addf(out, "%21s %s\n", "->", x->advice);
    }
}

void findings_write_json(const struct findings *f, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_bool(&w, "ok", !f->first.status);
    json_begin_array(&w, "findings", JSON_INLINE);
    for (size_t i = 0; i < f->count; i++) {
        const struct finding *x = &f->items[i];
        json_newline(&w, 2);
        json_begin_object(&w, NULL, JSON_INLINE);
        json_write_string(&w, "name", x->name);
        json_write_string(&w, "level", level_name(x->level));
        json_write_string(&w, "says", x->text);
        json_write_string(&w, "advice", x->advice);
        json_end_object(&w);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(out, "\n");
}
