/* library.h -- shared libraries that the program opens with dlopen when it first needs them, so
 * that it also starts on machines without them.
 *
 * LIBRARY_DEFINE turns a list of a library's functions into definitions that forward to the
 * library.  Code calls these like any other function, after library_open.
 * Memory   A library stays open until the process ends.  Any thread may call these functions. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

struct library {
    const char *title; /* in messages: "cuDNN" */
    /* File names for dlopen, which searches LD_LIBRARY_PATH, the program's RUNPATH and the system's
     * folders.  `file`: several names are separated by spaces, and the first that opens is used.
     * `before`: opened first, if present, because the library looks for it by name; may be NULL. */
    const char *file, *before;
    const char *const *functions; /* their names */
    int num_functions;
};

/* Opens the library the first time; later calls return the same result.  UNSUPPORTED: the dynamic
 * linker cannot load it, or it lacks one of the functions. */
enum status library_open(const struct library *l);

/* The i-th function of an open library, to be cast to its type.  BUG: the library is not open. */
typedef void (*library_function)(void);
library_function library_find_function(const struct library *l, int i);

/* LIST(F) expands to F(result type, name, (parameters), (arguments)) for each function. */
#define LIBRARY_INDEX(result, name, parameters, arguments) LIBRARY_INDEX_##name,
#define LIBRARY_NAME(result, name, parameters, arguments)  #name,
#define LIBRARY_CALL(result, name, parameters, arguments)                                          \
    result name parameters                                                                         \
    {                                                                                              \
        return (                                                                                   \
            (__typeof__(name) *)library_find_function(&library, LIBRARY_INDEX_##name))arguments;   \
    }
#define LIBRARY_DEFINE(title, file, before, LIST)                                                  \
    enum { LIST(LIBRARY_INDEX) NUM_LIBRARY_FUNCTIONS };                                            \
    static const char *const library_functions[] = {LIST(LIBRARY_NAME)};                           \
    static const struct library library = {title, file, before, library_functions,                 \
                                           NUM_LIBRARY_FUNCTIONS};                                 \
    LIST(LIBRARY_CALL)
