// SPDX-License-Identifier: Apache-2.0
#include "tensor/tuning.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { FORMAT = 2, MAX_BYTES = 4 << 20 };

void tuning_key(struct text *key, const struct tuned_device *d, const struct tuned_matmul *p)
{
    text_clear(key);
    text_addf(key, "%s, %s, %d threads: A%s B%s of %d x %d x %d, %s to %s%s", d->backend,
              d->processor, d->threads, p->transpose_a ? "^T" : "", p->transpose_b ? "^T" : "",
              p->M, p->N, p->K, dtype_name(p->dtype), dtype_name(p->out),
              p->accumulate ? ", added" : "");
}

char *tuning_default_path(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return file_join(cache, "llamero/gemm.json");
    return home && home[0] ? file_join(home, ".cache/llamero/gemm.json") : NULL;
}

char *tuning_shipped_path(void)
{
    static const char *const files[] = {"../share/llamero/gemm.json", "../tuning/gemm.json"};
    char program[4096];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = NULL;
    if (len > 0) program[len] = '\0', slash = strrchr(program, '/');
    if (!slash) return NULL;
    *slash = '\0';
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *path = file_join(program, files[i]);
        if (file_exists(path)) return path;
        free(path);
    }
    return NULL;
}

static struct tuning_entry *find_entry(const struct tuning *t, const char *key)
{
    for (size_t i = 0; i < t->count; i++)
        if (!strcmp(t->entries[i].key, key)) return &t->entries[i];
    return NULL;
}

static void add_entry(struct tuning *t, const char *key, const char *variant, bool is_new)
{
    t->entries = heap_grow(t->entries, t->count + 1, sizeof *t->entries);
    t->entries[t->count++] = (struct tuning_entry){heap_strdup(key), heap_strdup(variant), is_new};
}

/* Adds the file's entries, except those that are already known.  DATA: not a tuning file. */
static enum status read_entries(struct tuning *t)
{
    struct json *root = NULL;
    int64_t format;
    enum status st = STATUS_OK;
    TRY(json_read(t->path, MAX_BYTES, &root));
    const struct json *gemms = json_get(root, "gemms");
    TRY_PREFIX_OUT(json_get_int(root, "format", FORMAT, FORMAT, &format), "%s", t->path);
    if (!json_is_object(gemms))
        FAIL_OUT(DATA, "%s: \"gemms\" is missing or not an object", t->path);
    for (const struct json *v = json_first(gemms); v; v = json_next(v))
        if (!json_is_string(v))
            FAIL_OUT(DATA, "%s: %s: expected the name of a variant", t->path, json_key(v));
    for (const struct json *v = json_first(gemms); v; v = json_next(v))
        if (!find_entry(t, json_key(v))) add_entry(t, json_key(v), json_string(v), false);
out:
    json_free(root);
    return st;
}

void tuning_open(struct tuning *t, const char *path)
{
    *t = (struct tuning){.path = heap_strdup(path)};
    if (file_exists(path) && read_entries(t))
        log_line(LOG_WARN, "%s; the file is ignored, and replaced if new results are saved in it",
                 status_message());
}

void tuning_close(struct tuning *t)
{
    for (size_t i = 0; i < t->count; i++) free(t->entries[i].key), free(t->entries[i].variant);
    free(t->entries);
    free(t->path);
    *t = (struct tuning){0};
}

const char *tuning_find(const struct tuning *t, const char *key)
{
    const struct tuning_entry *e = find_entry(t, key);
    return e ? e->variant : NULL;
}

void tuning_set(struct tuning *t, const char *key, const char *variant)
{
    struct tuning_entry *e = find_entry(t, key);
    if (!e) {
        add_entry(t, key, variant, true);
        return;
    }
    free(e->variant);
    e->variant = heap_strdup(variant), e->is_new = true;
}

static bool has_new_entries(const struct tuning *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->entries[i].is_new) return true;
    return false;
}

/* Waits up to 2 s for other writers.  Without the lock, one of two may lose entries, and measures
 * them again in a later run. */
static int lock_file(const char *path)
{
    enum { TRIES = 200 };
    const struct timespec pause = {.tv_nsec = 10000000};
    struct text name = {0};
    text_addf(&name, "%s.lock", path);
    int lock = open(name.data, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    text_release(&name);
    for (int i = 0; lock >= 0 && i < TRIES; i++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) break;
        nanosleep(&pause, NULL);
    }
    return lock;
}

static void write_json(const struct tuning *t, struct text *text)
{
    struct json_writer json = {.text = text};
    json_begin_object(&json, NULL, JSON_INLINE);
    json_write_int(&json, "format", FORMAT);
    json_begin_object(&json, "gemms", JSON_INLINE);
    for (size_t i = 0; i < t->count; i++) {
        json_newline(&json, 1);
        json_write_string(&json, t->entries[i].key, t->entries[i].variant);
    }
    json_newline(&json, 0);
    json_end_object(&json);
    json_end_object(&json);
    json_finish(&json);
    text_adds(text, "\n");
}

enum status tuning_save(struct tuning *t)
{
    struct text json = {0};
    enum status st = STATUS_OK;
    int lock = -1;
    if (!has_new_entries(t)) return STATUS_OK;
    char *folder = file_parent(t->path);
    TRY_OUT(file_make_dirs(folder));
    lock = lock_file(t->path);
    if (file_exists(t->path))
        (void)read_entries(t); /* entries others added since; a damaged file is replaced */
    write_json(t, &json);
    TRY_OUT(file_write(t->path, json.data, json.len));
    for (size_t i = 0; i < t->count; i++) t->entries[i].is_new = false;
out:
    if (lock >= 0) close(lock);
    free(folder);
    text_release(&json);
    return st;
}
