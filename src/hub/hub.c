// SPDX-License-Identifier: Apache-2.0
#include "hub/hub.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "hub/s3_listing.h"
#include "hub/s3_settings.h"
#include "hub/snapshot.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST_BYTES = 1 << 30 };

/* File names by selection. */
static const struct {
    const char *pattern;
    enum hub_selection selected_by; /* by this selection and the later ones */
    bool fallback;                  /* only if there are no other weights */
} selections[] = {
    {"tokenizer.json", HUB_TOKENIZER, false},
    {"tokenizer.model", HUB_TOKENIZER, false},
    {"tekken.json", HUB_TOKENIZER, false},
    {"tokenizer_config.json", HUB_TOKENIZER, false},
    {"special_tokens_map.json", HUB_TOKENIZER, false},
    {"config.json", HUB_WEIGHTS, false},
    {"generation_config.json", HUB_WEIGHTS, false},
    {"model*.safetensors", HUB_WEIGHTS, false},
    {"model.safetensors.index.json", HUB_WEIGHTS, false},
    {"params.json", HUB_WEIGHTS, false},
    {"consolidated*.pth", HUB_WEIGHTS, false},
    {"pytorch_model*.bin", HUB_WEIGHTS, true},
    {"pytorch_model.bin.index.json", HUB_WEIGHTS, true},
};

static bool is_s3(const char *path) { return !strncmp(path, "s3://", 5); }

bool hub_is_path(const char *path) { return !strncmp(path, "hf://", 5) || is_s3(path); }

static enum status read_settings(const char *path, struct hub_settings *s)
{
    return is_s3(path) ? s3_settings_read(s) : hub_settings_read(s);
}

static bool matches(const char *pattern, const char *path)
{
    return !strcmp(pattern, path) || !fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD);
}

/* Both files of a .bin/.idx pair match if the pattern matches either of them or their prefix. */
static bool matches_data(const char *pattern, const char *path)
{
    size_t n = strlen(path);
    if (matches(pattern, path)) return true;
    if (n < 5 || (strcmp(path + n - 4, ".bin") && strcmp(path + n - 4, ".idx"))) return false;
    char *other = heap_string(path, n);
    memcpy(other + n - 3, strcmp(path + n - 3, "bin") ? "bin" : "idx", 3);
    bool is = matches(pattern, other);
    other[n - 4] = 0;
    is |= !strcmp(pattern, other);
    free(other);
    return is;
}

static bool is_selected(enum hub_selection selection, bool fallback, const char *folder,
                        const char *path)
{
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) || path[n] != '/')) return false;
    for (size_t i = 0; i < sizeof selections / sizeof *selections; i++)
        if (selection >= selections[i].selected_by && fallback == selections[i].fallback &&
            !fnmatch(selections[i].pattern, path + n + (n > 0), 0))
            return true;
    return false;
}

/* The smallest tree request that covers a pattern: returns the folder before the first wildcard
 * (heap); *recursive if folders have wildcards as well. */
static char *tree_folder_of(const char *pattern, bool *recursive)
{
    size_t literal = strcspn(pattern, "*?[\\"), n = 0;
    for (size_t i = 0; i < literal; i++)
        if (pattern[i] == '/') n = i;
    *recursive = strchr(pattern + literal, '/') != NULL;
    return heap_string(pattern, n);
}

/* The entries of a folder, or those that a path's pattern may match.  Objects are listed by the
 * pattern's literal beginning, as a bucket may have millions. */
static enum status fetch_entries(struct client *c, const struct hub_path *p, const char *commit,
                                 struct tree_query *query, struct listing *out)
{
    if (!p->is_s3) return listing_fetch_tree(c, p, commit, query, out);
    return s3_listing_fetch(c, p, query, out);
}

/* Keys of objects that cannot be file names must not be skipped silently. */
static enum status check_contained(const struct hub_path *p, const struct listing *selected)
{
    for (size_t i = 0; i < selected->count; i++)
        if (!hub_path_is_contained(selected->files[i].path))
            FAIL(DATA, "%s: the key \"%.200s\" cannot be a file's path", p->name,
                 selected->files[i].path);
    return STATUS_OK;
}

static void select_from_folder(const struct listing *all, enum hub_selection selection,
                               bool fallback, const char *folder, struct listing *out)
{
    for (size_t i = 0; i < all->count; i++)
        if (!all->files[i].is_folder &&
            is_selected(selection, fallback, folder, all->files[i].path))
            listing_append(out, &all->files[i]);
}

bool hub_is_model_file(const char *name)
{
    return is_selected(HUB_WEIGHTS, false, "", name) || is_selected(HUB_WEIGHTS, true, "", name);
}

bool hub_is_weights(const char *name)
{
    static const char *const ends[] = {".safetensors", ".pth", ".bin"};
    const char *end = strrchr(name, '.');
    for (size_t i = 0; end && i < 3; i++)
        if (!strcmp(end, ends[i])) return true;
    return false;
}

static bool has_weights(const struct listing *l)
{
    for (size_t i = 0; i < l->count; i++)
        if (hub_is_weights(l->files[i].path)) return true;
    return false;
}

/* `commit` of a bucket becomes the hash of what was listed. */
static enum status select_files(struct client *c, const struct hub_path *p,
                                enum hub_selection selection, char commit[COMMIT_HEX],
                                struct listing *out)
{
    struct tree_query query = {0};
    char *root = tree_folder_of(p->path, &query.recursive);
    char *prefix = heap_string(p->path, strcspn(p->path, "*?[\\"));
    struct listing all = {0};
    const char *folder = p->path[0] ? NULL : "";
    enum status st = STATUS_OK;
    query.folder = root, query.prefix = prefix;
    if (strstr(p->path, "**"))
        FAIL_OUT(CONFIG, "%s: ** is not supported; write one * per folder level, as in */*",
                 p->name);
    TRY_OUT(fetch_entries(c, p, commit, &query, &all));
    for (size_t i = 0; i < all.count; i++)
        if (selection != HUB_DATA && all.files[i].is_folder && !strcmp(all.files[i].path, p->path))
            folder = p->path;
    query = (struct tree_query){.folder = folder};
    if (folder && folder[0]) TRY_OUT(fetch_entries(c, p, commit, &query, &all));
    if (p->is_s3) s3_listing_commit(&all, commit);
    if (folder) select_from_folder(&all, selection, false, folder, out);
    if (folder && !has_weights(out)) select_from_folder(&all, selection, true, folder, out);
    for (size_t i = 0; i < all.count && !folder; i++)
        if (!all.files[i].is_folder && matches_data(p->path, all.files[i].path))
            listing_append(out, &all.files[i]);
    TRY_OUT(check_contained(p, out));
    if (!out->count && p->is_s3)
        FAIL_OUT(MISSING, "%s: matches none of the %zu objects listed", p->name, all.count);
    if (!out->count)
        FAIL_OUT(MISSING, "%s: matches none of the %zu files of commit %.12s", p->name, all.count,
                 commit);
out:
    free(root);
    free(prefix);
    listing_release(&all);
    return st;
}

static void count_bytes(struct download_observer *w, const struct hub_file *f, uint64_t have,
                        size_t len)
{
    (void)w, (void)f, (void)have;
    progress_add((double)len);
}

/* Downloads the listed files that the cache does not have. */
static enum status download_files(const struct snapshot *s, struct client *c,
                                  const struct listing *l)
{
    struct download_observer observer = {count_bytes};
    double total = 0;
    size_t missing = 0;
    for (size_t i = 0; i < l->count; i++)
        if (!snapshot_has(s, &l->files[i])) missing++, total += (double)l->files[i].size;
    if (missing)
        log_line(LOG_INFO, "%s: fetching %zu file%s of %s %.12s, %.1f MB, into %s", s->path->name,
                 missing, missing == 1 ? "" : "s", s->base ? "list" : "commit", s->commit,
                 total / 1e6, s->folder);
    enum status st = STATUS_OK;
    progress_begin("fetch", PROGRESS_BYTES, total);
    for (size_t i = 0; i < l->count && !st; i++)
        st = snapshot_download(s, c, &l->files[i], &observer);
    progress_end();
    TRY(st);
    TRY(snapshot_write_ref(s));
    return STATUS_OK;
}

/* What downloading from one path needs. */
struct fetch {
    const struct hub_settings *settings;
    const struct hub_path *path;
    struct client client;
    struct listing files;
    struct snapshot snapshot;
    struct text base; /* URL of the bucket */
};

static void release_fetch(struct fetch *f)
{
    snapshot_release(&f->snapshot);
    listing_release(&f->files);
    client_close(&f->client);
    text_release(&f->base);
}

static void open_snapshot(struct fetch *f, const char *commit)
{
    snapshot_init(&f->snapshot, f->path, f->settings->cache, commit);
    if (f->path->is_s3) s3_settings_bucket_url(f->settings, f->path->repo, &f->base);
    f->snapshot.base = f->base.data;
}

/* Lists and downloads; `manifest` becomes the commit and the files that the other ranks need. */
static enum status download_as_rank_0(const struct hub_settings *settings, const struct hub_path *p,
                                      enum hub_selection selection, struct text *manifest)
{
    struct fetch f = {.settings = settings, .path = p};
    char commit[COMMIT_HEX];
    enum status st = STATUS_OK;
    TRY_OUT(client_open(&f.client, settings));
    if (!p->is_s3) TRY_OUT(listing_fetch_commit(&f.client, p, commit));
    TRY_OUT(select_files(&f.client, p, selection, commit, &f.files));
    open_snapshot(&f, commit);
    TRY_OUT(download_files(&f.snapshot, &f.client, &f.files));
    text_addf(manifest, "%s\n", commit);
    listing_write(&f.files, manifest);
out:
    release_fetch(&f);
    return st;
}

/* Downloads the manifest's files if this rank, on another node, does not see rank 0's cache. */
static enum status download_as_other_rank(const struct hub_settings *settings,
                                          const struct hub_path *p, const char *manifest)
{
    struct fetch f = {.settings = settings, .path = p};
    char commit[COMMIT_HEX], known[COMMIT_HEX];
    enum status st = STATUS_OK;
    bool all = true;
    snprintf(commit, sizeof commit, "%.40s", manifest);
    if (!digest_is_hex(commit, COMMIT_HEX - 1))
        FAIL_OUT(DATA, "%s: invalid commit hash from rank 0", p->name);
    open_snapshot(&f, commit);
    TRY_OUT(listing_parse(&f.files, manifest + COMMIT_HEX));
    for (size_t i = 0; i < f.files.count; i++)
        all = all && snapshot_has(&f.snapshot, &f.files.files[i]);
    if (all && !hub_path_cached_commit(p, settings->cache, known) && !strcmp(known, commit))
        goto out;
    TRY_OUT(client_open(&f.client, settings));
    TRY_OUT(download_files(&f.snapshot, &f.client, &f.files));
out:
    release_fetch(&f);
    return st;
}

/* Broadcasts rank 0's text; the other ranks' is empty. */
static enum status broadcast_text(const struct comm *world, struct text *text)
{
    size_t bytes = text->len;
    TRY(comm_broadcast_bytes(world, 0, &bytes, sizeof bytes));
    if (bytes > MAX_LIST_BYTES)
        FAIL(CONFIG, "the list of files has %zu bytes; the limit is %d", bytes, MAX_LIST_BYTES);
    text_reserve(text, bytes - text->len);
    TRY(comm_broadcast_bytes(world, 0, text->data, bytes));
    text->len = bytes, text->data[bytes] = 0;
    return STATUS_OK;
}

static enum status check_cache(const struct hub_settings *s, const struct hub_path *p)
{
    char *local;
    TRY(hub_find_with(s, p->name, &local));
    free(local);
    return STATUS_OK;
}

static enum status fetch_path(const struct hub_settings *s, const struct hub_path *p,
                              enum hub_selection selection, const struct comm *world)
{
    struct text manifest = {0};
    bool leads = world->rank == 0;
    enum status st = STATUS_OK;
    if (s->offline) {
        TRY(comm_agree(world, check_cache(s, p)));
        return STATUS_OK;
    }
    if (leads) st = download_as_rank_0(s, p, selection, &manifest);
    TRY_OUT(comm_agree(world, st));
    TRY_OUT(broadcast_text(world, &manifest));
    TRY_OUT(comm_agree(world, leads ? STATUS_OK : download_as_other_rank(s, p, manifest.data)));
out:
    text_release(&manifest);
    return st;
}

enum status hub_fetch_with(const struct hub_settings *s, const char *path,
                           enum hub_selection selection, const struct comm *world)
{
    struct hub_path p;
    struct hub_settings same = *s;
    int64_t offline = s->offline;
    if (!hub_is_path(path)) return STATUS_OK;
    TRY(hub_path_parse(&p, path));
    /* Launchers may not pass on all environment variables: one offline rank makes all offline. */
    enum status st = comm_all_reduce_int64(world, REDUCE_MAX, &offline, 1);
    same.offline = offline;
    if (!st) st = fetch_path(&same, &p, selection, world);
    hub_path_release(&p);
    return st;
}

enum status hub_fetch(const char *path, enum hub_selection selection, const struct comm *world)
{
    struct hub_settings s;
    if (!hub_is_path(path)) return hub_path_check_scheme(path);
    enum status st = comm_agree(world, read_settings(path, &s));
    if (!st) st = hub_fetch_with(&s, path, selection, world);
    hub_settings_release(&s);
    return st;
}

/* Escapes a folder name that becomes part of a glob pattern. */
static void add_literal(struct text *t, const char *name)
{
    for (; *name; name++) {
        if (strchr("*?[\\", *name)) text_adds(t, "\\");
        text_add(t, name, 1);
    }
}

static enum status find_path(const struct hub_settings *settings, const struct hub_path *p,
                             char **local)
{
    struct snapshot s = {0};
    struct text t = {0};
    char commit[COMMIT_HEX], *folder = NULL;
    enum status st = STATUS_OK;
    st = hub_path_cached_commit(p, settings->cache, commit);
    if (st == STATUS_IO) goto out;
    if (st)
        FAIL_OUT(MISSING, "%s: not in the cache %s%s (%s)", p->name, settings->cache,
                 settings->offline ? ", and HF_HUB_OFFLINE forbids downloading" : "",
                 status_message());
    snapshot_init(&s, p, settings->cache, commit);
    folder = snapshot_path(&s, "");
    if (!file_is_dir(folder))
        FAIL_OUT(MISSING, "%s: %s is missing from the cache", p->name, folder);
    if (strpbrk(p->path, "*?[\\"))
        add_literal(&t, folder);
    else
        text_adds(&t, folder);
    if (p->path[0]) text_addf(&t, "/%s", p->path);
    *local = heap_string(t.data, t.len);
out:
    text_release(&t);
    free(folder);
    snapshot_release(&s);
    return st;
}

enum status hub_find_with(const struct hub_settings *s, const char *path, char **local)
{
    struct hub_path p;
    *local = NULL;
    if (!hub_is_path(path)) {
        *local = heap_strdup(path);
        return STATUS_OK;
    }
    TRY(hub_path_parse(&p, path));
    enum status st = find_path(s, &p, local);
    hub_path_release(&p);
    return st;
}

enum status hub_find(const char *path, char **local)
{
    struct hub_settings s;
    *local = NULL;
    if (!hub_is_path(path)) {
        TRY(hub_path_check_scheme(path));
        *local = heap_strdup(path);
        return STATUS_OK;
    }
    TRY(read_settings(path, &s));
    enum status st = hub_find_with(&s, path, local);
    hub_settings_release(&s);
    return st;
}

/* Counts what the cache lacks of a path, according to the Hub. */
static enum status look_online(const struct hub_settings *settings, const struct hub_path *p,
                               bool *cached, struct text *report)
{
    struct client c = {0};
    struct listing l = {0};
    struct snapshot s = {0};
    char commit[COMMIT_HEX];
    size_t missing = 0;
    uint64_t bytes = 0;
    enum status st = STATUS_OK;
    TRY_OUT(client_open(&c, settings));
    if (!p->is_s3) TRY_OUT(listing_fetch_commit(&c, p, commit));
    TRY_OUT(select_files(&c, p, HUB_DATA, commit, &l));
    snapshot_init(&s, p, settings->cache, commit);
    for (size_t i = 0; i < l.count; i++)
        if (!snapshot_has(&s, &l.files[i])) missing++, bytes += l.files[i].size;
    /* without the reference, hub_find does not know the snapshot */
    *cached = !missing && !hub_path_cached_commit(p, settings->cache, commit);
    if (!*cached)
        text_addf(report, "%s%s: %zu of %zu files, %.1f MB, are not in the cache",
                  report->len ? "; " : "", p->name, missing, l.count, (double)bytes / 1e6);
out:
    snapshot_release(&s);
    listing_release(&l);
    client_close(&c);
    return st;
}

/* Whether the cache has a file of the path. */
static bool is_cached(const struct hub_settings *settings, const char *path)
{
    struct file_list list = {0};
    char *local;
    bool found = !hub_find_with(settings, path, &local) && !file_glob(&list, local);
    free(local);
    file_list_release(&list);
    return found;
}

static enum status look_at(struct hub_settings *s, const char *path, bool *cached,
                           struct text *report)
{
    struct hub_path p;
    *cached = true;
    if (!hub_is_path(path)) return STATUS_OK;
    TRY(hub_path_parse(&p, path));
    enum status st = s->offline ? STATUS_OK : look_online(s, &p, cached, report);
    bool unreachable = st == STATUS_IO || st == STATUS_UNSUPPORTED;
    if (unreachable) {
        text_addf(report, "%s%s", report->len ? "; " : "", status_message());
        s->offline = true; /* do not wait for the others, either */
        st = STATUS_OK;
    }
    if (s->offline) *cached = is_cached(s, path);
    if (s->offline && !*cached)
        text_addf(report, "%s%s: not in the cache", report->len ? "; " : "", path);
    hub_path_release(&p);
    return st;
}

enum status hub_look_with(const struct hub_settings *s, const char *const *paths, size_t count,
                          bool *cached, struct text *report)
{
    struct hub_settings same = *s;
    same.once = true;
    for (size_t i = 0; i < count; i++) TRY(look_at(&same, paths[i], &cached[i], report));
    return STATUS_OK;
}

enum status hub_look(const char *const *paths, size_t count, bool *cached, struct text *report)
{
    struct hub_settings s[2] = {0}; /* of the Hub, of the object store */
    bool is_read[2] = {false, false};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        int k = is_s3(paths[i]);
        if (!hub_is_path(paths[i])) {
            cached[i] = true;
            TRY_OUT(hub_path_check_scheme(paths[i]));
            continue;
        }
        if (!is_read[k]) TRY_OUT(read_settings(paths[i], &s[k]));
        is_read[k] = s[k].once = true;
        TRY_OUT(look_at(&s[k], paths[i], &cached[i], report));
    }
out:
    for (int k = 0; k < 2; k++) hub_settings_release(&s[k]);
    return st;
}
