/* status.h -- how functions fail.
 *
 * A function that can fail returns enum status; zero is success.  FAIL states the cause once,
 * where it is known; TRY passes it up and adds one trace line per caller.  BUG and BUG_IF are
 * for what only a wrong program can cause: they print and abort.
 * Memory   The message lives in thread-local storage until this thread's next FAIL. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* name, exit code of the process, what it means */
#define STATUS_LIST(X)                                                                             \
    X(OK, 0, "ok")                                                                                 \
    X(USAGE, 64, "wrong use of the command line")                                                  \
    X(DATA, 65, "the data is damaged or not what it should be")                                    \
    X(MISSING, 66, "an input does not exist")                                                      \
    X(IO, 74, "reading or writing failed")                                                         \
    X(REQUEUE, 75, "stopped on request; the checkpoint is written")                                \
    X(CONFIG, 78, "the configuration is wrong")                                                    \
    X(SHAPE, 78, "sizes do not fit together")                                                      \
    X(UNSUPPORTED, 78, "no kernel or backend for this request")                                    \
    X(MEMORY, 78, "out of memory")                                                                 \
    X(DIVERGED, 80, "loss or gradient is not finite")                                              \
    X(COMM, 81, "a rank is gone or a collective failed")                                           \
    X(DEVICE, 83, "the device reported an error")

enum status {
#define X(name, code, text) STATUS_##name,
    STATUS_LIST(X)
#undef X
        STATUS_COUNT
};

const char *status_name(enum status s); /* "CONFIG" */
const char *status_text(enum status s); /* "the configuration is wrong" */
int status_exit_code(enum status s);

const char *status_message(void); /* cause of this thread's last failure, without the trace */
const char *status_stack(void);   /* its trace: where it failed and through which calls */

enum { STATUS_TEXT = 2048 }; /* bytes of a message, at most */

/* Puts where it happened before the message of this thread's last failure; returns its status. */
enum status status_where(enum status s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Every rank of the run knows of this thread's last failure, so none need be ended for it. */
void status_share(void);
bool status_is_shared(void);
/* The user has been told of this thread's last failure. */
void status_tell(void);
bool status_is_told(void);

/* A failure kept for later, or for another thread, past this thread's next FAIL. */
struct failure {
    enum status status;
    char message[STATUS_TEXT], stack[STATUS_TEXT];
};
/* Keeps `s`, this thread's last failure, unless `f` holds one already; returns what `f` holds. */
enum status failure_keep(struct failure *f, enum status s);
/* Makes it this thread's last failure, and returns its status; OK where there is none. */
enum status failure_tell(const struct failure *f);

enum status status_fail(enum status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
enum status status_trace(enum status s, const char *file, int line, const char *call)
    __attribute__((cold));
void status_bug(const char *file, int line, const char *what) __attribute__((noreturn, cold));

/* The constant, not the call's result, is returned: so the compiler sees that it is not zero. */
#define FAIL(name, ...)                                                                            \
    return (status_fail(STATUS_##name, __FILE__, __LINE__, __VA_ARGS__), STATUS_##name)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status try_ = (call);                                                                 \
        if (try_) return (status_trace(try_, __FILE__, __LINE__, #call), try_);                    \
    } while (0)

/* For functions that hold resources: they need `enum status st` and the label `out`. */
#define FAIL_OUT(name, ...)                                                                        \
    do {                                                                                           \
        st = status_fail(STATUS_##name, __FILE__, __LINE__, __VA_ARGS__);                          \
        goto out;                                                                                  \
    } while (0)
#define TRY_OUT(call)                                                                              \
    do {                                                                                           \
        if ((st = (call))) {                                                                       \
            status_trace(st, __FILE__, __LINE__, #call);                                           \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

#define BUG(text) status_bug(__FILE__, __LINE__, text)
#define BUG_IF(cond)                                                                               \
    do {                                                                                           \
        if (cond) BUG(#cond);                                                                      \
    } while (0)
