// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/copy_store.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "hub/s3_listing.h"
#include "hub/s3_object.h"
#include "hub/s3_settings.h"

#include <stdlib.h>
#include <string.h>

enum status copy_store_open(struct copy_store *s, const struct hub_settings *settings,
                            const struct hub_path *destination)
{
    *s = (struct copy_store){.destination = destination};
    if (!settings) TRY(s3_settings_read(&s->own));
    TRY(client_open(&s->client, settings ? settings : &s->own));
    return STATUS_OK;
}

void copy_store_close(struct copy_store *s)
{
    client_close(&s->client);
    hub_settings_release(&s->own);
}

/* PREFIX/step-N/NAME; heap. */
static char *object_key(const struct hub_path *d, int64_t step, const char *name)
{
    struct text t = {0};
    text_addf(&t, "%s%sstep-%lld/%s", d->path, d->path[0] ? "/" : "", (long long)step, name);
    return t.data;
}

static enum status list_step(struct copy_store *s, int64_t step, struct listing *l)
{
    char *folder = object_key(s->destination, step, "");
    folder[strlen(folder) - 1] = 0;
    const struct tree_query query = {.folder = folder};
    enum status st = s3_listing_fetch(&s->client, s->destination, &query, l);
    free(folder);
    return st;
}

static const struct hub_file *find_object(const struct listing *l, const char *key)
{
    for (size_t i = 0; i < l->count; i++)
        if (!l->files[i].is_folder && !strcmp(l->files[i].path, key)) return &l->files[i];
    return NULL;
}

static bool has_manifest(const struct listing *l, const struct copy_store *s, int64_t step)
{
    char *key = object_key(s->destination, step, MANIFEST_NAME);
    bool has = find_object(l, key) != NULL;
    free(key);
    return has;
}

enum status copy_store_list(struct copy_store *s, struct folder_steps *l)
{
    const struct hub_path *d = s->destination;
    struct listing all = {0};
    const struct tree_query query = {.folder = d->path};
    size_t n = strlen(d->path);
    enum status st = STATUS_OK;
    *l = (struct folder_steps){0};
    TRY_OUT(s3_listing_fetch(&s->client, d, &query, &all));
    l->steps = heap((all.count + 1) * sizeof *l->steps);
    for (size_t i = 0; i < all.count; i++) {
        const char *path = all.files[i].path;
        if (n && (strncmp(path, d->path, n) || path[n] != '/')) continue;
        int64_t step = folder_parse_step(path + n + (n > 0));
        if (all.files[i].is_folder && step >= 0) l->steps[l->count++] = step;
    }
    folder_steps_sort(l);
out:
    listing_release(&all);
    return st;
}

enum status copy_store_look(struct copy_store *s, int64_t step, struct copied_step *out)
{
    struct listing l = {0};
    *out = (struct copied_step){.step = step};
    enum status st = list_step(s, step, &l);
    out->is_complete = !st && has_manifest(&l, s, step);
    for (size_t i = 0; !st && i < l.count; i++) out->bytes += l.files[i].size;
    listing_release(&l);
    return st;
}

/* One step, between the store and a local folder. */
struct step_copy {
    struct copy_store *store;
    int64_t step;
    const char *path; /* of the local folder */
};

static enum status upload_file(const struct step_copy *c, const char *name)
{
    char *key = object_key(c->store->destination, c->step, name), *path = file_join(c->path, name);
    const struct s3_file f = {.bucket = c->store->destination, .key = key, .path = path};
    enum status st = s3_object_upload(&c->store->client, &f, 0);
    free(key), free(path);
    return st;
}

/* Sets *has if the store has a copy with the same manifest, whose checksums cover every byte.  A
 * copy with another manifest is about to be replaced, so its manifest is deleted. */
static enum status prepare_upload(const struct step_copy *c, const struct text *local, bool *has)
{
    struct listing l = {0};
    struct text stored = {0};
    char *key = object_key(c->store->destination, c->step, MANIFEST_NAME);
    enum status st = STATUS_OK;
    *has = false;
    TRY_OUT(list_step(c->store, c->step, &l));
    if (!find_object(&l, key)) goto out;
    TRY_OUT(s3_object_read(&c->store->client, c->store->destination, key, &stored));
    *has = stored.len == local->len && !memcmp(stored.data, local->data, local->len);
    if (!*has) TRY_OUT(s3_object_delete(&c->store->client, c->store->destination, key));
out:
    listing_release(&l);
    text_release(&stored);
    free(key);
    return st;
}

static enum status read_manifest(const struct step_copy *c, struct text *bytes)
{
    char *path = file_join(c->path, MANIFEST_NAME);
    enum status st = file_read(path, MANIFEST_MAX_BYTES, bytes);
    free(path);
    return st;
}

/* Nothing that a run has replaced meanwhile is completed: it saved the same step again, which adds
 * it again. */
enum status copy_store_upload(struct copy_store *s, int64_t step, const char *path, bool *uploaded)
{
    const struct step_copy c = {s, step, path};
    struct file_list names = {0};
    struct text manifest = {0}, now = {0};
    bool has;
    enum status st = STATUS_OK;
    *uploaded = false;
    TRY_OUT(read_manifest(&c, &manifest));
    TRY_OUT(manifest_list(path, &names));
    TRY_OUT(prepare_upload(&c, &manifest, &has));
    if (has) goto out;
    TRY_OUT(manifest_verify(path, NULL));
    for (size_t i = 0; i < names.count; i++) TRY_OUT(upload_file(&c, names.paths[i]));
    TRY_OUT(read_manifest(&c, &now));
    if (now.len != manifest.len || memcmp(now.data, manifest.data, now.len))
        FAIL_OUT(IO, "%s was replaced during the copy", path);
    TRY_OUT(upload_file(&c, MANIFEST_NAME));
    *uploaded = true;
out:
    file_list_release(&names);
    text_release(&manifest);
    text_release(&now);
    return st;
}

/* Downloads the manifest, then the files that it lists, all of which must exist. */
static enum status download_files(const struct step_copy *c, const struct listing *l)
{
    struct file_list names = {0};
    enum status st = STATUS_OK;
    const char *name = MANIFEST_NAME;
    for (size_t i = 0; !i || i <= names.count; i++) {
        char *key = object_key(c->store->destination, c->step, name),
             *path = file_join(c->path, name);
        const struct s3_file f = {.bucket = c->store->destination, .key = key, .path = path};
        const struct hub_file *o = find_object(l, key);
        if (o)
            st = s3_object_download(&c->store->client, &f, o);
        else
            st = FAILURE(DATA, "s3://%s/%s is missing", c->store->destination->repo, key);
        free(key), free(path);
        if (st) goto out;
        if (!i) TRY_OUT(manifest_list(c->path, &names));
        if (i < names.count) name = names.paths[i];
    }
out:
    file_list_release(&names);
    return st;
}

enum status copy_store_fetch(struct copy_store *s, int64_t step, const char *folder, bool *found)
{
    char *temporary = folder_temporary_path(folder, step);
    struct listing l = {0};
    int64_t written;
    enum status st = STATUS_OK;
    const struct step_copy c = {s, step, temporary};
    TRY_OUT(list_step(s, step, &l));
    *found = has_manifest(&l, s, step);
    if (!*found) goto out;
    log_line(LOG_INFO, "%s: fetching step-%lld, into %s", s->destination->name, (long long)step,
             folder);
    TRY_OUT(file_remove_tree(temporary));
    TRY_OUT(file_make_dirs(temporary));
    TRY_OUT(download_files(&c, &l));
    TRY_OUT(manifest_verify(temporary, NULL));
    TRY_OUT(manifest_check(temporary, &written));
    if (written != step)
        FAIL_OUT(DATA, "%s: the manifest of step-%lld belongs to step %lld", s->destination->name,
                 (long long)step, (long long)written);
    TRY_OUT(folder_commit(folder, temporary, step));
out:
    if (st) file_discard_tree(temporary);
    listing_release(&l);
    free(temporary);
    return st;
}

enum status copy_store_set_aside(struct copy_store *s, int64_t kept, struct text *deleted)
{
    struct folder_steps l;
    enum status st = STATUS_OK;
    TRY(copy_store_list(s, &l));
    for (size_t i = 0; i < l.count; i++) {
        struct copied_step copy;
        if (l.steps[i] <= kept) continue;
        TRY_OUT(copy_store_look(s, l.steps[i], &copy));
        if (!copy.is_complete) continue;
        char *key = object_key(s->destination, l.steps[i], MANIFEST_NAME);
        st = s3_object_delete(&s->client, s->destination, key);
        free(key);
        if (st) goto out;
        text_addf(deleted, " step-%lld", (long long)l.steps[i]);
    }
out:
    folder_steps_release(&l);
    return st;
}
