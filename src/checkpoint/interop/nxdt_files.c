// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/nxdt_files.h"

#include "base/file.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE "checkpoint.pt"

static bool has_file(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    bool is = file_exists(path) && !file_is_dir(path);
    free(path);
    return is;
}

static bool skip_prefix(const char **at, const char *prefix)
{
    size_t len = strlen(prefix);
    if (strncmp(*at, prefix, len)) return false;
    *at += len;
    return true;
}

static bool parse_rank(const char **at, const char *prefix, int *rank)
{
    int digits = 0;
    if (!skip_prefix(at, prefix)) return false;
    for (*rank = 0; isdigit((unsigned char)**at) && digits < 5; digits++)
        *rank = 10 * *rank + *(*at)++ - '0';
    return digits > 0 && digits < 5;
}

/* Data-parallel and expert-parallel replicas are skipped except rank 0's. */
static bool parse_file_name(const char *at, struct nxdt_file *out)
{
    int rank;
    if (parse_rank(&at, "dp_rank_", &rank) && (rank || !skip_prefix(&at, "_"))) return false;
    if (parse_rank(&at, "ep_rank_", &rank) && (rank || !skip_prefix(&at, "_"))) return false;
    if (!parse_rank(&at, "tp_rank_", &out->tp) || !parse_rank(&at, "_pp_rank_", &out->pp))
        return false;
    return !*at || !strcmp(at, ".pt");
}

static int by_ranks(const void *a, const void *b)
{
    const struct nxdt_file *x = a, *y = b;
    return x->tp != y->tp ? x->tp - y->tp : x->pp - y->pp;
}

static void add_file(struct nxdt_files *f, const char *folder, const char *name,
                     struct nxdt_file one)
{
    one.path = file_join(folder, name);
    if (file_is_dir(one.path)) {
        char *inside = file_join(one.path, WHOLE);
        free(one.path);
        one.path = inside;
    }
    f->all = heap_grow(f->all, f->count + 1, sizeof *f->all);
    f->all[f->count++] = one;
    if (one.tp >= f->tp) f->tp = one.tp + 1;
    if (one.pp >= f->pp) f->pp = one.pp + 1;
}

/* Lists the ranks' files in a folder; none if the folder does not exist. */
static void list_files(struct nxdt_files *f, const char *folder)
{
    struct file_list names;
    *f = (struct nxdt_files){0};
    if (!file_is_dir(folder) || file_list_dir(&names, folder)) return;
    for (size_t i = 0; i < names.count; i++) {
        struct nxdt_file one;
        if (parse_file_name(names.paths[i], &one)) add_file(f, folder, names.paths[i], one);
    }
    file_list_release(&names);
    if (f->count) qsort(f->all, f->count, sizeof *f->all, by_ranks);
}

void nxdt_files_release(struct nxdt_files *f)
{
    for (size_t i = 0; i < f->count; i++) free(f->all[i].path);
    free(f->all);
    *f = (struct nxdt_files){0};
}

/* Sets *tag to the tag's folder; heap. */
static void find_files(struct nxdt_files *f, const char *path, char **tag)
{
    const char *name = file_name(path);
    char *model = file_join(path, "model");
    list_files(f, model);
    *tag = heap_strdup(path);
    if (!f->count) {
        list_files(f, path);
        free(*tag);
        *tag = file_join(path, "..");
    }
    if (!f->count && has_file(path, WHOLE)) add_file(f, path, WHOLE, (struct nxdt_file){0});
    if (!f->count && !strcmp(name, WHOLE) && file_exists(path) && !file_is_dir(path))
        add_file(f, ".", path, (struct nxdt_file){0});
    free(model);
}

bool nxdt_files_detect(const char *path)
{
    struct nxdt_files f;
    char *tag;
    find_files(&f, path, &tag);
    bool is = f.count > 0;
    nxdt_files_release(&f);
    free(tag);
    return is;
}

bool nxdt_files_have_optimizer(const char *path)
{
    struct nxdt_files f, moments;
    char *tag;
    find_files(&f, path, &tag);
    char *folder = file_join(tag, "optim");
    list_files(&moments, folder);
    bool has = f.count && moments.count;
    nxdt_files_release(&f), nxdt_files_release(&moments);
    free(folder), free(tag);
    return has;
}

static enum status check_complete(const struct nxdt_files *f, const char *path, const char *tag)
{
    for (size_t i = 0; i < f->count || i < (size_t)f->tp * (size_t)f->pp; i++) {
        int tp = (int)(i / (size_t)f->pp), pp = (int)(i % (size_t)f->pp);
        if (i < f->count && f->all[i].tp == tp && f->all[i].pp == pp) continue;
        if (i < f->count && i && !by_ranks(&f->all[i - 1], &f->all[i]))
            FAIL(DATA, "%s: two files of one rank: %s, and the same under another name", path,
                 f->all[i].path);
        FAIL(DATA,
             "%s: found files of %d tensor-parallel and %d pipeline-parallel ranks, but that of "
             "tp_rank %d, pp_rank %d is missing",
             path, f->tp, f->pp, tp, pp);
    }
    if (!strstr(f->all[0].path, "tp_rank_")) return STATUS_OK;
    if (has_file(tag, "checkpoint") && !has_file(tag, "done"))
        FAIL(DATA, "%s: incomplete checkpoint: the marker file done is missing", tag);
    return STATUS_OK;
}

enum status nxdt_files_open(struct nxdt_files *f, const char *path)
{
    char *tag;
    enum status st = STATUS_OK;
    find_files(f, path, &tag);
    if (!f->count)
        FAIL_OUT(MISSING, "%s: neither NxD Training's rank files nor " WHOLE " found", path);
    TRY_OUT(check_complete(f, path, tag));
out:
    free(tag);
    return st;
}
