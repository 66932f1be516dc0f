// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include "base/text.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One that was opened, or could not be. */
struct opened_library {
    const struct library *library;
    library_function *functions; /* owned until the process ends */
    struct failure failure;
    struct opened_library *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened_library *all; /* entries never change once they are listed */

static struct opened_library *find(const struct library *l)
{
    struct opened_library *o = __atomic_load_n(&all, __ATOMIC_ACQUIRE);
    while (o && o->library != l) o = o->next;
    return o;
}

static enum status find_functions(const struct library *l, void *handle, library_function *out)
{
    for (int i = 0; i < l->num_functions; i++) {
        void *symbol = dlsym(handle, l->functions[i]);
        if (!symbol)
            FAIL(UNSUPPORTED, "%s: %s has no function %s: install another version", l->title,
                 l->file, l->functions[i]);
        memcpy(&out[i], &symbol, sizeof symbol); /* ISO C has no cast from void * to a function */
    }
    return STATUS_OK;
}

static enum status load(const struct library *l, library_function *out)
{
    if (l->before) (void)dlopen(l->before, RTLD_NOW);
    char names[256];
    void *handle = NULL;
    snprintf(names, sizeof names, "%s", l->file);
    for (char *next = names, *name; !handle && (name = strsep(&next, " "));)
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        FAIL(UNSUPPORTED,
             "%s is not installed: %s; install it, or add its folder to LD_LIBRARY_PATH", l->title,
             dlerror());
    TRY(find_functions(l, handle, out));
    return STATUS_OK;
}

static struct opened_library *open_once(const struct library *l)
{
    pthread_mutex_lock(&lock);
    struct opened_library *o = find(l);
    if (!o) {
        o = heap(sizeof *o);
        o->library = l;
        o->functions = heap((size_t)l->num_functions * sizeof *o->functions);
        enum status st = load(l, o->functions);
        if (st) status_save(&o->failure, st);
        o->next = all;
        __atomic_store_n(&all, o, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&lock);
    return o;
}

enum status library_open(const struct library *l)
{
    TRY(status_restore(&open_once(l)->failure));
    return STATUS_OK;
}

library_function library_find_function(const struct library *l, int i)
{
    const struct opened_library *o = find(l);
    BUG_IF(!o || o->failure.status || i < 0 || i >= l->num_functions);
    return o->functions[i];
}
