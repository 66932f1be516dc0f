// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include "base/escape.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stands for a newline of the format, which is kept, until those of the arguments are escaped. */
enum { NEWLINE = '\036' };
static const char NEWLINES[] = {NEWLINE, 0};

/* Each thread's last failure. */
static _Thread_local char message[STATUS_TEXT];
static _Thread_local char stack[STATUS_TEXT];
static _Thread_local bool shared, remote, reported;
static bool exits_on_bug;

static const struct {
    const char *name, *text;
    int code;
} kinds[STATUS_COUNT] = {
#define X(name, code, text) [STATUS_##name] = {#name, text, code},
    STATUS_LIST(X)
#undef X
};

const char *status_name(enum status s) { return kinds[s].name; }
const char *status_text(enum status s) { return kinds[s].text; }
int status_exit_code(enum status s) { return kinds[s].code; }
const char *status_message(void) { return message; }
const char *status_stack(void) { return stack; }
void status_mark_shared(void) { shared = true; }
bool status_is_shared(void) { return shared; }
void status_mark_remote(void) { remote = true; }
bool status_is_remote(void) { return remote; }
void status_mark_reported(void) { reported = true; }
bool status_is_reported(void) { return reported; }

static size_t count(const char *text, char what)
{
    size_t n = 0;
    for (; (text = strchr(text, what)); text++) n++;
    return n;
}

/* Newlines of the format stay, those of its arguments are escaped. */
static void format_lines(char *out, size_t size, const char *fmt, va_list ap)
{
    char fresh[STATUS_TEXT], marked[1024];
    snprintf(marked, sizeof marked, "%s", fmt);
    for (char *at = marked; (at = strchr(at, '\n'));) *at = NEWLINE;
    vsnprintf(fresh, sizeof fresh, marked, ap);
    bool has_own = count(fresh, NEWLINE) == count(marked, NEWLINE); /* and no argument has one */
    escape_controls(out, size, fresh, has_own ? NEWLINES : "");
    for (char *at = out; (at = strchr(at, NEWLINE));) *at = '\n';
}

static void format_line(char *out, size_t size, const char *fmt, va_list ap)
{
    char fresh[STATUS_TEXT];
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    escape_controls(out, size, fresh, strcmp(fmt, "%s") ? "" : "\n");
}

/* The arguments may point into the old message, which is replaced last. */
enum status status_fail(enum status s, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (strchr(fmt, '\n') ? format_lines : format_line)(message, sizeof message, fmt, ap);
    va_end(ap);
    shared = remote = reported = false;
    snprintf(stack, sizeof stack, "  at %s:%d\n", file, line);
    return s;
}

enum status status_prefix(enum status s, const char *fmt, ...)
{
    char where[STATUS_TEXT / 2], escaped[sizeof where], before[sizeof message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    memcpy(before, message, sizeof before);
    escape_controls(escaped, sizeof escaped, where, "");
    int end = snprintf(message, sizeof message, "%s: ", escaped);
    strncat(message, before, sizeof message - (size_t)end - 1);
    return s;
}

enum status status_trace(enum status s, const char *file, int line, const char *call)
{
    size_t used = strlen(stack);
    snprintf(stack + used, sizeof stack - used, "  in %s (%s:%d)\n", call, file, line);
    return s;
}

enum status status_save(struct failure *f, enum status s)
{
    if (f->status || !s) return f->status;
    f->status = s;
    f->is_shared = shared, f->is_remote = remote;
    snprintf(f->message, sizeof f->message, "%s", message);
    snprintf(f->stack, sizeof f->stack, "%s", stack);
    return s;
}

enum status status_restore(const struct failure *f)
{
    if (!f->status) return STATUS_OK;
    shared = f->is_shared, remote = f->is_remote, reported = false;
    snprintf(message, sizeof message, "%s", f->message);
    snprintf(stack, sizeof stack, "%s", f->stack);
    return f->status;
}

void status_exit_on_bug(void) { exits_on_bug = true; }

void status_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "BUG at %s:%d: %s\n", file, line, what);
    if (exits_on_bug) quick_exit(status_exit_code(STATUS_BUG));
    abort();
}
