// SPDX-License-Identifier: Apache-2.0
#include "train/rank_check.h"

#include "base/file.h"
#include "base/file_sample.h"
#include "base/port.h"
#include "comm/agreement.h"
#include "data/source.h"
#include "hub/hub.h"
#include "tasks/task_list.h"
#include "train/inputs.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* --- configuration --- */

/* Where this host keeps files, and how many threads it has: no result depends on these. */
static bool may_differ(const char *key)
{
    static const char *const keys[] = {"job.config_file", "device.threads", "device.tune_file"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!strcmp(key, keys[i])) return true;
    return false;
}

static void add_value(void *agreement, const char *key, const char *value)
{
    if (!may_differ(key)) agreement_add(agreement, key, "%s", value);
}

enum status rank_check_config(const struct config *c, const struct comm *world)
{
    struct agreement a = {.subject = "the configuration",
                          .advice = "start all ranks with the same configuration and arguments"};
    config_for_each(c, add_value, &a);
    enum status st = agreement_check(&a, world);
    agreement_release(&a);
    return st;
}

/* --- files --- */

/* Files that all ranks must hold alike, by names that are the same on all hosts. */
struct checked_files {
    char **names, **paths; /* owned */
    size_t count;
    struct agreement facts; /* what else must be the same */
};

static void release_files(struct checked_files *f)
{
    for (size_t i = 0; i < f->count; i++) free(f->names[i]), free(f->paths[i]);
    free(f->names), free(f->paths);
    agreement_release(&f->facts);
}

static void add_file(struct checked_files *f, const char *name, const char *path)
{
    f->names = heap_grow(f->names, f->count + 1, sizeof *f->names);
    f->paths = heap_grow(f->paths, f->count + 1, sizeof *f->paths);
    f->names[f->count] = heap_strdup(name);
    f->paths[f->count++] = heap_strdup(path);
}

/* What identifies a file on a file system that hosts share. */
static void add_identity(struct agreement *a, const char *name, const char *path)
{
    struct stat s;
    if (stat(path, &s) != 0)
        agreement_add(a, name, "missing");
    else
        agreement_add(a, name, "%lld %lld %lld.%09ld %lld.%09ld", (long long)s.st_ino,
                      (long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                      (long long)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

static void add_content(struct agreement *a, const char *name, const char *path)
{
    uint64_t hash;
    int64_t bytes, mtime_ns;
    enum status st = file_sample_hash(path, &hash, &bytes, &mtime_ns);
    if (st)
        agreement_add(a, name, "%s", st == STATUS_MISSING ? "missing" : "unreadable");
    else
        agreement_add(a, name, "%lld bytes with hash %016llx", (long long)bytes,
                      (unsigned long long)hash);
}

/* Files of the same inode, size and times are one file on a shared file system.  Others are copies,
 * whose content is compared. */
static enum status check_files(const struct checked_files *f, const char *subject,
                               const char *advice, const struct comm *world)
{
    const struct text *facts = &f->facts.entries;
    struct agreement identity = {0}, content = {.subject = subject, .advice = advice};
    bool same = false;
    text_add(&identity.entries, facts->data, facts->len);
    for (size_t i = 0; i < f->count; i++) add_identity(&identity, f->names[i], f->paths[i]);
    enum status st = agreement_test(&identity, world, &same);
    if (!st && !same) {
        for (size_t i = 0; i < f->count; i++) add_content(&content, f->names[i], f->paths[i]);
        text_add(&content.entries, facts->data, facts->len);
        st = agreement_check(&content, world);
    }
    agreement_release(&identity), agreement_release(&content);
    return st;
}

/* --- tokenizer and tasks --- */

static void add_tasks(const struct config *c, struct checked_files *f)
{
    const struct option_list *tasks = &c->validation.tasks;
    for (size_t i = 0; c->validation.enable && i < tasks->count; i++) {
        const char *path = task_list_path(tasks->items[i]);
        struct text name = {0};
        char *local = NULL;
        text_addf(&name, "validation.tasks \"%s\"", path);
        enum status st = hub_find(path, &local);
        add_file(f, name.data, st ? path : local);
        text_release(&name);
        free(local);
    }
}

enum status rank_check_inputs(const struct config *c, const struct tokenizer *t,
                              const struct comm *world)
{
    struct checked_files f = {0};
    if (world->size == 1) return STATUS_OK;
    if (t)
        agreement_add(&f.facts, "the tokenizer", "%s with hash %016llx", tokenizer_kind(t),
                      (unsigned long long)tokenizer_hash(t));
    else
        agreement_add(&f.facts, "the tokenizer", "not configured");
    add_tasks(c, &f);
    enum status st =
        check_files(&f, "the tokenizer or a task", "copy the same files to all hosts", world);
    release_files(&f);
    return st;
}

/* --- data --- */

/* The other file of a .bin/.idx pair; on the heap; NULL: it is no pair. */
static char *find_other_of_pair(const char *path)
{
    bool is_bin = file_has_suffix(path, ".bin");
    if (!is_bin && !file_has_suffix(path, ".idx")) return NULL;
    char *other = heap_strdup(path);
    memcpy(other + strlen(path) - 4, is_bin ? ".idx" : ".bin", 4);
    return other;
}

static void add_source_file(struct checked_files *f, const char *path, const char *where)
{
    struct text name = {0};
    text_addf(&name, "%s, %s,", where, file_name(path));
    add_file(f, name.data, path);
    text_release(&name);
}

/* The files of a source; `key`: what configured it. */
static void add_source(const struct source *s, const char *key, struct checked_files *f)
{
    agreement_add(&f->facts, key, "%zu files with fingerprint %08x", s->num_files,
                  (unsigned)s->fingerprint);
    for (size_t i = 0; i < s->num_files; i++) {
        const char *path = s->files[i].path;
        char *other = find_other_of_pair(path);
        struct text where = {0};
        text_addf(&where, "%s, file %zu", key, i + 1);
        add_source_file(f, path, where.data);
        if (other) add_source_file(f, other, where.data);
        text_release(&where);
        free(other);
    }
}

static void add_training_sources(const struct config *c, const struct loader *loader,
                                 struct checked_files *f)
{
    for (size_t i = 0; i < loader_num_sources(loader); i++) {
        struct text key = {0};
        text_addf(&key, "data.source.%zu", i);
        add_source(loader_source(loader, i),
                   c->data.num_sources ? key.data : "training.dataset_path", f);
        text_release(&key);
    }
}

/* If it cannot be opened, validation will report it. */
static void add_validation_source(const struct config *c, struct checked_files *f)
{
    const char *path = c->validation.dataset_path;
    struct source_config one;
    struct source s;
    if (!c->validation.enable || !path[0]) return;
    inputs_data_of_path(c, path, c->validation.column, &one);
    if (source_open(&s, &one)) return;
    add_source(&s, "validation.dataset_path", f);
    source_close(&s);
}

enum status rank_check_data(const struct config *c, const struct loader *loader,
                            const struct comm *world)
{
    struct checked_files f = {0};
    if (world->size == 1) return STATUS_OK;
    if (loader) add_training_sources(c, loader, &f);
    if (loader) add_validation_source(c, &f);
    enum status st = check_files(&f, "the data", "copy the same files to all hosts", world);
    release_files(&f);
    return st;
}

/* --- starting weights --- */

static void add_start_file(const struct start *s, const char *name, struct checked_files *f)
{
    char *path = file_join(s->folder, name);
    if (!file_is_dir(path)) add_file(f, name, path);
    free(path);
}

enum status rank_check_start(const struct start *s, const struct comm *world)
{
    struct checked_files f = {0};
    struct file_list list = {0};
    if (world->size == 1 || !s->folder) return STATUS_OK;
    if (s->native)
        add_start_file(s, "manifest.json", &f); /* has the checksums of all other files */
    else if (file_list_dir(&list, s->folder))
        agreement_add(&f.facts, s->folder, "missing");
    for (size_t i = 0; i < list.count; i++) add_start_file(s, list.paths[i], &f);
    enum status st = check_files(&f, "the model to start from",
                                 "keep it on a file system that all hosts share, or copy the same "
                                 "files to all of them",
                                 world);
    file_list_release(&list);
    release_files(&f);
    return st;
}

/* --- collectives --- */

void rank_check_enable(const struct config *c, const struct groups *groups)
{
    for (enum group g = 0; g < GROUP_COUNT; g++)
        if (groups->of[g].counts)
            groups->of[g].counts->is_checked = c->debug.check_collectives || PORT_CHECK_COLLECTIVES;
}

enum status rank_check_collectives(const struct trainer *t)
{
    const struct groups *groups = &t->machine.groups;
    for (enum group g = 0; g < GROUP_COUNT; g++) TRY(agreement_check_collectives(&groups->of[g]));
    TRY(agreement_check_collectives(&t->kv_head_peers));
    TRY(agreement_check_collectives(&t->embedding_peers));
    return STATUS_OK;
}
