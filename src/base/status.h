/* status.h -- error handling.
 *
 * A function that can fail returns enum status; zero is success.  FAIL states the cause once,
 * where it is known; TRY returns it to the caller and adds a line to the trace.  BUG and BUG_IF
 * report programming errors: they print and end the process.
 * Memory   The message is thread-local and valid until this thread's next FAIL. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>

/* name, exit code of the process, meaning */
#define STATUS_LIST(X)                                                                             \
    X(OK, 0, "ok")                                                                                 \
    X(USAGE, 64, "wrong use of the command line")                                                  \
    X(DATA, 65, "the data is damaged or malformed")                                                \
    X(RECORD, 65, "one record of the data is malformed; the others can be read")                   \
    X(MISSING, 66, "an input does not exist")                                                      \
    X(BUG, 70, "a bug in the program")                                                             \
    X(IO, 74, "reading or writing failed")                                                         \
    X(REQUEUE, 75, "stopped on request; the checkpoint is written")                                \
    X(CONFIG, 78, "the configuration is wrong")                                                    \
    X(SHAPE, 78, "sizes do not fit together")                                                      \
    X(UNSUPPORTED, 78, "no kernel or backend for this request")                                    \
    X(MEMORY, 78, "out of memory")                                                                 \
    X(DIVERGED, 80, "loss or gradient is not finite")                                              \
    X(COMM, 81, "a rank was lost or a collective failed")                                          \
    X(HANG, 82, "the run makes no progress")                                                       \
    X(DEVICE, 83, "a device failed, or corrupts data")

enum status {
#define X(name, code, text) STATUS_##name,
    STATUS_LIST(X)
#undef X
        STATUS_COUNT
};

const char *status_name(enum status s); /* "CONFIG" */
const char *status_text(enum status s); /* "the configuration is wrong" */
int status_exit_code(enum status s);

const char *status_message(void); /* of this thread's last failure, without the trace */
const char *status_stack(void);   /* the trace: where it failed, and its callers */

enum { STATUS_TEXT = 2048 }; /* bytes of a message with its NUL, at most */

/* Prefixes the message of this thread's last failure with "context: "; returns s.  The prefix is
 * cut to STATUS_TEXT / 2 bytes. */
enum status status_prefix(enum status s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Marks this thread's last failure as known to every rank of the run, so that all ranks can exit in
 * an orderly way and none must be killed. */
void status_mark_shared(void);
bool status_is_shared(void);
/* Marks this thread's last failure as that of another rank, which reports it itself. */
void status_mark_remote(void);
bool status_is_remote(void);
/* Marks this thread's last failure as reported to the user. */
void status_mark_reported(void);
bool status_is_reported(void);

/* A saved failure: for later, past this thread's next FAIL, or for another thread. */
struct failure {
    enum status status;
    bool is_shared, is_remote;
    char message[STATUS_TEXT], stack[STATUS_TEXT];
};
/* Saves `s`, this thread's last failure, unless `f` has one already; returns the saved status. */
enum status status_save(struct failure *f, enum status s);
/* Makes a saved failure this thread's last one and returns its status, OK if none was saved. */
enum status status_restore(const struct failure *f);

/* Control characters are escaped (escape.h), except the newlines of `fmt` and, with "%s" alone,
 * those of that text. */
enum status status_fail(enum status s, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
enum status status_trace(enum status s, const char *file, int line, const char *call)
    __attribute__((cold));
void status_bug(const char *file, int line, const char *what) __attribute__((noreturn, cold));
/* From now on a BUG ends the process with the exit code of STATUS_BUG instead of SIGABRT.  Call it
 * before threads are started. */
void status_exit_on_bug(void);

/* A failure that does not return at once; an expression of its status. */
#define FAILURE(name, ...) status_fail(STATUS_##name, __FILE__, __LINE__, __VA_ARGS__)
/* Returns the constant rather than the call's result, so that the compiler sees it is not zero. */
#define FAIL(name, ...) return (FAILURE(name, __VA_ARGS__), STATUS_##name)
#define TRY(call)                                                                                  \
    do {                                                                                           \
        enum status try_ = (call);                                                                 \
        if (try_) return (status_trace(try_, __FILE__, __LINE__, #call), try_);                    \
    } while (0)
/* TRY, which also prefixes the message: TRY_PREFIX(read(f), "%s", path). */
#define TRY_PREFIX(call, ...)                                                                      \
    do {                                                                                           \
        enum status try_ = (call);                                                                 \
        if (try_) {                                                                                \
            status_trace(try_, __FILE__, __LINE__, #call);                                         \
            return (status_prefix(try_, __VA_ARGS__), try_);                                       \
        }                                                                                          \
    } while (0)

/* For functions that release resources at a label `out` and return `enum status st`. */
#define FAIL_OUT(name, ...)                                                                        \
    do {                                                                                           \
        st = FAILURE(name, __VA_ARGS__);                                                           \
        goto out;                                                                                  \
    } while (0)
#define TRY_OUT(call)                                                                              \
    do {                                                                                           \
        if ((st = (call))) {                                                                       \
            status_trace(st, __FILE__, __LINE__, #call);                                           \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)
#define TRY_PREFIX_OUT(call, ...)                                                                  \
    do {                                                                                           \
        if ((st = (call))) {                                                                       \
            status_trace(st, __FILE__, __LINE__, #call);                                           \
            status_prefix(st, __VA_ARGS__);                                                        \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

#define BUG(text) status_bug(__FILE__, __LINE__, text)
#define BUG_IF(cond)                                                                               \
    do {                                                                                           \
        if (cond) BUG(#cond);                                                                      \
    } while (0)
