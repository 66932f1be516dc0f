// SPDX-License-Identifier: Apache-2.0
#include "runs/run_list.h"

#include "base/file.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A run's path and what identifies its folder. */
struct run_place {
    char *path;
    dev_t device;
    ino_t inode;
};

struct run_search {
    struct run_place *found;
    size_t count, capacity;
    bool is_full;
};

static bool is_folder(const char *path, struct stat *s)
{
    return !lstat(path, s) && S_ISDIR(s->st_mode);
}

static void add_run(struct run_search *w, const char *path)
{
    struct stat s;
    if (stat(path, &s)) return;
    if (w->count == w->capacity) {
        w->capacity = w->capacity ? 2 * w->capacity : 64;
        w->found = heap_grow(w->found, w->capacity, sizeof *w->found);
    }
    w->found[w->count++] = (struct run_place){heap_strdup(path), s.st_dev, s.st_ino};
    w->is_full = w->count == RUN_LIST_MOST;
}

static void search(struct run_search *w, const char *folder, int depth);

static void search_below(struct run_search *w, const char *folder, int depth)
{
    struct file_list names;
    struct stat s;
    if (file_list_dir(&names, folder)) {
        log_line(LOG_WARN, "%s", status_message());
        return;
    }
    for (size_t i = 0; i < names.count && !w->is_full; i++) {
        if (names.paths[i][0] == '.') continue;
        char *path =
            strcmp(folder, ".") ? file_join(folder, names.paths[i]) : heap_strdup(names.paths[i]);
        if (is_folder(path, &s)) search(w, path, depth);
        free(path);
    }
    file_list_release(&names);
}

static void search(struct run_search *w, const char *folder, int depth)
{
    if (run_folder_is_run(folder))
        add_run(w, folder);
    else if (depth < RUN_LIST_DEPTH)
        search_below(w, folder, depth + 1);
}

static int compare_folders(const void *a, const void *b)
{
    const struct run_place *x = a, *y = b;
    if (x->inode != y->inode) return x->inode < y->inode ? -1 : 1;
    if (x->device != y->device) return x->device < y->device ? -1 : 1;
    size_t of_x = strlen(x->path), of_y = strlen(y->path);
    return of_x != of_y ? (of_x < of_y ? -1 : 1) : strcmp(x->path, y->path);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct run_place *)a)->path, ((const struct run_place *)b)->path);
}

/* Keeps the shortest path to each folder. */
static void remove_repeated(struct run_search *w)
{
    size_t kept = 0;
    if (w->count) qsort(w->found, w->count, sizeof *w->found, compare_folders);
    for (size_t i = 0; i < w->count; i++) {
        const struct run_place *last = kept ? &w->found[kept - 1] : NULL;
        if (last && last->inode == w->found[i].inode && last->device == w->found[i].device)
            free(w->found[i].path);
        else
            w->found[kept++] = w->found[i];
    }
    w->count = kept;
    if (kept) qsort(w->found, kept, sizeof *w->found, compare_paths);
}

/* "a//" and "./a" as "a". */
static char *tidy_path(const char *path)
{
    size_t len = strlen(path);
    while (path[0] == '.' && path[1] == '/' && path[2]) {
        size_t skipped = 2 + strspn(path + 2, "/");
        if (!path[skipped]) break;
        path += skipped, len -= skipped;
    }
    while (len > 1 && path[len - 1] == '/') len--;
    return heap_string(path, len);
}

static enum status find_runs(struct run_search *w, const char *const *folders, size_t num_folders)
{
    for (size_t i = 0; i < num_folders; i++) {
        enum file_kind kind;
        char *folder = tidy_path(folders[i]);
        enum status st = file_find(folder, &kind);
        if (!st && kind == FILE_FOLDER) search(w, folder, 0);
        free(folder);
        TRY(st);
        if (kind == FILE_ABSENT) FAIL(MISSING, "%s: no such folder", folders[i]);
        if (kind != FILE_FOLDER)
            FAIL(MISSING, "%s: not a folder: expected a run, or a folder of runs", folders[i]);
    }
    if (w->is_full)
        log_line(LOG_WARN, "only the first %d runs are listed; name a smaller folder",
                 RUN_LIST_MOST);
    remove_repeated(w);
    if (!w->count)
        FAIL(MISSING,
             "%s%s: contains no run: expected dump folders with metrics.jsonl, or with config.toml "
             "and log.txt, up to %d levels below",
             folders[0], num_folders > 1 ? " and the other folders" : "", RUN_LIST_DEPTH);
    return STATUS_OK;
}

enum status run_list_open(struct run_list *l, const char *const *folders, size_t num_folders)
{
    struct run_search w = {0};
    enum status st = STATUS_OK;
    *l = (struct run_list){0};
    TRY_OUT(find_runs(&w, folders, num_folders));
    l->runs = heap(w.count * sizeof *l->runs);
    for (size_t i = 0; i < w.count; i++) {
        /* One that was removed meanwhile is not listed. */
        if (run_folder_open(&l->runs[l->count], w.found[i].path, true))
            run_folder_close(&l->runs[l->count]);
        else
            l->count++;
    }
out:
    for (size_t i = 0; i < w.count; i++) free(w.found[i].path);
    free(w.found);
    return st;
}

void run_list_close(struct run_list *l)
{
    for (size_t i = 0; i < l->count; i++) run_folder_close(&l->runs[i]);
    free(l->runs);
    *l = (struct run_list){0};
}
