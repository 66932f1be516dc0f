/* test.h -- TEST(name) { ... } registers itself; a CHECK that fails ends the test and says why.
 *
 * Test names are sentences.  tests/a/test_b.c holds the tests of src/a/b.c; tests/system/ runs the
 * program as a user would.  The runner is cmocka's, so a crash fails one test only; each file's
 * tests run in a process of their own, more at once than there are cores: so a file's tests
 * share nothing with another's, and none may depend on time. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#undef stop /* of cmocka 2 */

/* Counts the test as skipped, and ends it. */
void test_skip(const char *file, int line) __attribute__((noreturn));
#undef skip
#define skip() test_skip(__FILE__, __LINE__)

void test_register(const char *file, const char *name, void (*run)(void **));

/* 1 in the tests of operations that `make gpu-ptx` compiles. */
#if !defined(TEST_PTX)
#define TEST_PTX 0
#endif

#define TEST(name)                                                                                 \
    static void name(void **cmocka_state_);                                                        \
    __attribute__((constructor)) static void register_##name(void)                                 \
    {                                                                                              \
        test_register(__FILE__, #name, name);                                                      \
    }                                                                                              \
    static void name(__attribute__((unused)) void **cmocka_state_)

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s:%d: %s\n", __FILE__, __LINE__, #cond);                                 \
            _fail(__FILE__, __LINE__);                                                             \
        }                                                                                          \
    } while (0)

/* Relative to the larger of 1 and |want|. */
#define CHECK_NEAR(got, want, tolerance)                                                           \
    do {                                                                                           \
        double got_ = (got), want_ = (want), off_ = fabs(got_ - want_) / fmax(1, fabs(want_));     \
        if (!(off_ <= (tolerance))) {                                                              \
            print_error("%s:%d: %s is %.9g, wanted %.9g (off by %.3g)\n", __FILE__, __LINE__,      \
                        #got, got_, want_, off_);                                                  \
            _fail(__FILE__, __LINE__);                                                             \
        }                                                                                          \
    } while (0)

#define CHECK_STATUS(want, call)                                                                   \
    do {                                                                                           \
        enum status got_ = (call);                                                                 \
        if (got_ != STATUS_##want) {                                                               \
            print_error("%s:%d: wanted %s from %s, got %s: %s\n%s", __FILE__, __LINE__, #want,     \
                        #call, status_name(got_), got_ ? status_message() : "",                    \
                        got_ ? status_stack() : "");                                               \
            _fail(__FILE__, __LINE__);                                                             \
        }                                                                                          \
    } while (0)

/* The last failure's message holds this text. */
#define CHECK_MESSAGE(part)                                                                        \
    do {                                                                                           \
        if (!strstr(status_message(), part)) {                                                     \
            print_error("%s:%d: \"%s\" is not in: %s\n", __FILE__, __LINE__, part,                 \
                        status_message());                                                         \
            _fail(__FILE__, __LINE__);                                                             \
        }                                                                                          \
    } while (0)

/* Sanitizers slow the tests down, and look at where code goes, not at its numbers: more steps or
 * sizes of the same kind show them nothing. */
#if defined(__has_feature)
#define TEST_HAS_FEATURE(x) __has_feature(x)
#else
#define TEST_HAS_FEATURE(x) 0
#endif
#if defined(TEST_CHECKED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||      \
    TEST_HAS_FEATURE(address_sanitizer) || TEST_HAS_FEATURE(thread_sanitizer)
enum { TEST_SLOWED = 1 };
#else
enum { TEST_SLOWED = 0 };
#endif

/* A fresh folder for this test, removed when the runner ends; valid until then. */
const char *test_folder(void);
/* folder/name, valid until the runner ends, too. */
const char *test_path(const char *folder, const char *name);

/* Skips the test if there are no pseudo-terminals, as in a chroot without /dev/pts. */
void test_require_pty(void);

void test_flip_bit(void *x, size_t bit);

/* Runs `body` in a child process, as a pending signal, say, cannot be reset.  Prints its failure;
 * returns its wait status, 0 for success. */
int test_in_child(enum status (*body)(int argument), int argument);
/* Sends a signal to this process, and waits until one is pending (base/signals.h). */
void test_raise(int signal);

/* Runs a program: argv ends with NULL; out and err (either may be NULL) get what it wrote.
 * Returns its exit code, or 128 + the signal that ended it. */
int test_run(const char *const *argv, struct text *out, struct text *err);
/* The same for the program under test (build/llamero): arguments only. */
int test_llamero(struct text *out, struct text *err, const char *const *arguments);
#define LLAMERO(out, err, ...) test_llamero(out, err, (const char *const[]){__VA_ARGS__, NULL})
