// SPDX-License-Identifier: Apache-2.0
#include "hub/hub.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/download.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD_EVERY_S = 10, LIST_BYTES = 1 << 30 };

/* What a folder's files must be called. */
static const struct {
    const char *pattern;
    enum hub_what least; /* for this and what comes behind it */
    bool older;          /* only where there are no weights otherwise */
} wanted[] = {
    {"tokenizer.json", HUB_TOKENIZER, false},
    {"tokenizer.model", HUB_TOKENIZER, false},
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

bool hub_is_path(const char *path) { return !strncmp(path, "hf://", 5); }

static bool matches(const char *pattern, const char *path)
{
    return !strcmp(pattern, path) || !fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD);
}

/* A pair's two files go together, whichever of them, or their prefix, is named. */
static bool is_data(const char *pattern, const char *path)
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

static bool is_of_folder(enum hub_what what, bool older, const char *folder, const char *path)
{
    size_t n = strlen(folder);
    if (n && (strncmp(path, folder, n) || path[n] != '/')) return false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (what >= wanted[i].least && older == wanted[i].older &&
            !fnmatch(wanted[i].pattern, path + n + (n > 0), 0))
            return true;
    return false;
}

/* What must be asked for: the folder before the first wildcard, with those below where there are
 * wildcards for folders, too. */
struct asked {
    char *folder;
    bool deep;
};

static struct asked asked_for(const char *pattern)
{
    size_t literal = strcspn(pattern, "*?[\\"), n = 0;
    for (size_t i = 0; i < literal; i++)
        if (pattern[i] == '/') n = i;
    return (struct asked){heap_string(pattern, n), strchr(pattern + literal, '/') != NULL};
}

static void take_folder(const struct listing *all, enum hub_what what, bool older,
                        const char *folder, struct listing *out)
{
    for (size_t i = 0; i < all->count; i++)
        if (!all->files[i].is_folder && is_of_folder(what, older, folder, all->files[i].path))
            listing_put(out, &all->files[i]);
}

static bool has_weights(const struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        const char *end = strrchr(l->files[i].path, '.');
        if (end && (!strcmp(end, ".safetensors") || !strcmp(end, ".pth"))) return true;
    }
    return false;
}

static enum status choose(struct client *c, const struct place *p, enum hub_what what,
                          const char *commit, struct listing *out)
{
    struct asked asked = asked_for(p->path);
    struct listing all = {0};
    const char *folder = p->path[0] ? NULL : "";
    enum status st = STATUS_OK;
    if (strstr(p->path, "**"))
        FAIL_OUT(CONFIG, "%s: ** is not understood; name the folders between as */*", p->name);
    TRY_OUT(listing_read(c, p, commit, asked.folder, asked.deep, &all));
    for (size_t i = 0; i < all.count; i++)
        if (what != HUB_DATA && all.files[i].is_folder && !strcmp(all.files[i].path, p->path))
            folder = p->path;
    if (folder && folder[0]) TRY_OUT(listing_read(c, p, commit, folder, false, &all));
    if (folder) take_folder(&all, what, false, folder, out);
    if (folder && !has_weights(out)) take_folder(&all, what, true, folder, out);
    for (size_t i = 0; i < all.count && !folder; i++)
        if (!all.files[i].is_folder && is_data(p->path, all.files[i].path))
            listing_put(out, &all.files[i]);
    if (!out->count)
        FAIL_OUT(MISSING, "%s: none of the %zu files that are there at %.12s is meant by it",
                 p->name, all.count, commit);
out:
    free(asked.folder);
    listing_release(&all);
    return st;
}

/* Says how far it has come. */
struct progress {
    struct download_watch watch; /* first */
    uint64_t bytes, total;
    double begin_s, told_s;
};

static void tell(struct download_watch *w, const struct hub_file *f, uint64_t have, size_t len)
{
    struct progress *p = (struct progress *)w;
    double now = clock_monotonic_s();
    p->bytes += len;
    if (now - p->told_s < TOLD_EVERY_S) return;
    p->told_s = now;
    log_line(LOG_INFO, "%s: %.1f of %.1f MB; of all, %.1f of %.1f MB, %.1f MB/s", f->path,
             (double)have / 1e6, (double)f->size / 1e6, (double)p->bytes / 1e6,
             (double)p->total / 1e6, (double)p->bytes / 1e6 / (now - p->begin_s));
}

/* Fetches those of the listing that are not there. */
static enum status fetch_files(const struct snapshot *s, struct client *c, const struct listing *l)
{
    struct progress p = {.watch = {tell}, .begin_s = clock_monotonic_s()};
    size_t absent = 0;
    p.told_s = p.begin_s;
    for (size_t i = 0; i < l->count; i++)
        if (!snapshot_has(s, &l->files[i])) absent++, p.total += l->files[i].size;
    if (absent)
        log_line(LOG_INFO, "%s: fetching %zu file%s at %.12s, %.1f MB, into %s", s->place->name,
                 absent, absent == 1 ? "" : "s", s->commit, (double)p.total / 1e6, s->folder);
    for (size_t i = 0; i < l->count; i++) TRY(snapshot_fetch(s, c, &l->files[i], &p.watch));
    TRY(snapshot_note(s));
    return STATUS_OK;
}

/* Rank 0's part: asks and fetches; `told` gets what the others must have, too. */
static enum status lead(const struct hub_settings *settings, const struct place *p,
                        enum hub_what what, struct text *told)
{
    struct client c = {0};
    struct listing l = {0};
    struct snapshot s = {0};
    char commit[COMMIT_HEX];
    enum status st = STATUS_OK;
    TRY_OUT(client_open(&c, settings));
    TRY_OUT(listing_commit(&c, p, commit));
    TRY_OUT(choose(&c, p, what, commit, &l));
    snapshot_init(&s, p, settings->cache, commit);
    TRY_OUT(fetch_files(&s, &c, &l));
    text_addf(told, "%s\n", commit);
    listing_write(&l, told);
out:
    snapshot_release(&s);
    listing_release(&l);
    client_close(&c);
    return st;
}

/* Another rank's part: it may be on another node, which does not see rank 0's cache. */
static enum status follow(const struct hub_settings *settings, const struct place *p,
                          const char *told)
{
    struct client c = {0};
    struct listing l = {0};
    struct snapshot s = {0};
    char commit[COMMIT_HEX], known[COMMIT_HEX];
    enum status st = STATUS_OK;
    bool all = true;
    snprintf(commit, sizeof commit, "%.40s", told);
    if (!is_hex(commit, COMMIT_HEX - 1)) FAIL_OUT(DATA, "%s: no commit from rank 0", p->name);
    snapshot_init(&s, p, settings->cache, commit);
    TRY_OUT(listing_parse(&l, told + COMMIT_HEX));
    for (size_t i = 0; i < l.count; i++) all = all && snapshot_has(&s, &l.files[i]);
    if (all && !place_commit(p, settings->cache, known) && !strcmp(known, commit)) goto out;
    TRY_OUT(client_open(&c, settings));
    TRY_OUT(fetch_files(&s, &c, &l));
out:
    snapshot_release(&s);
    listing_release(&l);
    client_close(&c);
    return st;
}

/* Every rank gets rank 0's text, which travels as the bits of floats. */
static enum status spread(const struct comm *world, struct text *told)
{
    double size = world->rank == 0 ? (double)told->len : 0;
    TRY(comm_all_reduce(world, REDUCE_SUM, &size, 1));
    if (size > LIST_BYTES) FAIL(CONFIG, "a list of files of %g bytes", size);
    size_t bytes = (size_t)size, words = bytes / sizeof(float) + 1;
    float *x = heap(words * sizeof *x);
    if (world->rank == 0) memcpy(x, told->data, bytes);
    struct transfer t = {.kind = TRANSFER_broadcast, .dtype = F32, .count = words, .x = x};
    enum status st = comm_run(world, &t);
    text_clear(told);
    if (!st) text_add(told, x, bytes);
    free(x);
    return st;
}

static enum status use_cache(const struct hub_settings *s, const struct place *p)
{
    char *local;
    TRY(hub_find_with(s, p->name, &local));
    free(local);
    return STATUS_OK;
}

static enum status fetch(const struct hub_settings *s, const struct place *p, enum hub_what what,
                         const struct comm *world)
{
    bool alone = !world || world->size == 1;
    struct text told = {0};
    enum status st = STATUS_OK;
    if (s->offline) {
        st = use_cache(s, p);
        if (!alone) st = comm_agree(world, st);
        goto out;
    }
    bool leads = alone || world->rank == 0;
    if (leads) st = lead(s, p, what, &told);
    if (alone) goto out;
    TRY_OUT(comm_agree(world, st));
    TRY_OUT(spread(world, &told));
    TRY_OUT(comm_agree(world, leads ? STATUS_OK : follow(s, p, told.data)));
out:
    text_release(&told);
    return st;
}

enum status hub_fetch_with(const struct hub_settings *s, const char *path, enum hub_what what,
                           const struct comm *world)
{
    struct place p;
    struct hub_settings same = *s;
    double offline = s->offline;
    if (!hub_is_path(path)) return STATUS_OK;
    TRY(place_read(&p, path));
    /* Launchers do not hand every variable on: what one rank has been told holds for all. */
    enum status st = STATUS_OK;
    if (world && world->size > 1) st = comm_all_reduce(world, REDUCE_MAX, &offline, 1);
    same.offline = offline > 0;
    if (!st) st = fetch(&same, &p, what, world);
    place_release(&p);
    return st;
}

enum status hub_fetch(const char *path, enum hub_what what, const struct comm *world)
{
    struct hub_settings s;
    bool alone = !world || world->size == 1;
    if (!hub_is_path(path)) return STATUS_OK;
    enum status st = hub_settings_read(&s);
    if (!alone) st = comm_agree(world, st);
    if (!st) st = hub_fetch_with(&s, path, what, world);
    hub_settings_release(&s);
    return st;
}

/* A pattern that means the folder's name itself. */
static void add_literal(struct text *t, const char *name)
{
    for (; *name; name++) {
        if (strchr("*?[\\", *name)) text_adds(t, "\\");
        text_add(t, name, 1);
    }
}

static enum status find(const struct hub_settings *settings, const struct place *p, char **local)
{
    struct snapshot s = {0};
    struct text t = {0};
    char commit[COMMIT_HEX], *folder = NULL;
    enum status st = STATUS_OK;
    if (place_commit(p, settings->cache, commit))
        FAIL_OUT(MISSING, "%s: the cache %s has nothing of it%s (%s)", p->name, settings->cache,
                 settings->offline ? ", and HF_HUB_OFFLINE forbids asking" : "", status_message());
    snapshot_init(&s, p, settings->cache, commit);
    folder = snapshot_path(&s, "");
    if (!file_is_dir(folder)) FAIL_OUT(MISSING, "%s: %s is not in the cache", p->name, folder);
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
    struct place p;
    *local = NULL;
    if (!hub_is_path(path)) {
        *local = heap_string(path, strlen(path));
        return STATUS_OK;
    }
    TRY(place_read(&p, path));
    enum status st = find(s, &p, local);
    place_release(&p);
    return st;
}

enum status hub_find(const char *path, char **local)
{
    struct hub_settings s;
    *local = NULL;
    if (!hub_is_path(path)) {
        *local = heap_string(path, strlen(path));
        return STATUS_OK;
    }
    TRY(hub_settings_read(&s));
    enum status st = hub_find_with(&s, path, local);
    hub_settings_release(&s);
    return st;
}
