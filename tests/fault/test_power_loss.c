/* test_power_loss.c -- the machine loses power at any moment of a run.
 *
 * A run is recorded (preload/journal.c).  A power failure after its first n changes leaves on disk
 *   - of a file's bytes: those written before its last fsync; of each later write some 512-byte
 *     sectors, or none;
 *   - of a folder's entries: the changes before its last fsync, and the first few later ones, for
 *     each folder another number.
 * A run that starts from what is left must produce what a run without failures does. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "base/rng.h"

enum { SECTOR = 512, MAX_NODES = 4096 };

/* Changes of one file or folder; the paths have been resolved to nodes. */
struct change {
    char kind;       /* as in journal.c */
    int node;        /* the file or folder that is created, written, moved or deleted */
    int parent;      /* the folder whose entries change */
    char *name, *to; /* its name there; of a rename, the new one */
    uint64_t offset;
    const char *bytes;
    size_t len;
};

struct journal {
    struct text data;
    struct change *changes;
    int count;
};

/* --- reading: a model of the file system resolves paths --- */

struct entry {
    int parent, node;
    char name[128];
};
struct tree {
    struct entry entries[MAX_NODES]; /* name NULL-terminated; parent -1: free */
    int count, nodes;
};

static struct entry *find(struct tree *t, int parent, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (t->entries[i].parent == parent && !strcmp(t->entries[i].name, name))
            return &t->entries[i];
    return NULL;
}

static void add(struct tree *t, int parent, const char *name, int node)
{
    struct entry *e = find(t, parent, name);
    CHECK(e || t->count < MAX_NODES);
    if (!e) e = &t->entries[t->count++];
    *e = (struct entry){.parent = parent, .node = node};
    snprintf(e->name, sizeof e->name, "%s", name);
}

/* The folder that a path is in, and its last component. */
static int resolve_parent(struct tree *t, char *path, char **name)
{
    int node = 0;
    char *save = NULL, *next = strtok_r(path, "/", &save);
    for (*name = next; (next = strtok_r(NULL, "/", &save)); *name = next) {
        struct entry *e = find(t, node, *name);
        CHECK(e);
        node = e->node;
    }
    return node;
}

static void apply_live(struct tree *t, struct change *c, char *path, char *to)
{
    char *name, *new_name;
    if (!*path) { /* the folder itself */
        c->node = 0, c->parent = -1;
        return;
    }
    c->parent = resolve_parent(t, path, &name);
    c->name = heap_strdup(name);
    struct entry *e = find(t, c->parent, name);
    if (strchr("cm", c->kind)) {
        c->node = ++t->nodes;
        add(t, c->parent, name, c->node);
        return;
    }
    CHECK(e);
    c->node = e->node;
    if (c->kind == 'r') {
        CHECK(resolve_parent(t, to, &new_name) == c->parent);
        c->to = heap_strdup(new_name);
        e->parent = -1;
        add(t, c->parent, new_name, c->node);
    } else if (strchr("ud", c->kind)) {
        e->parent = -1;
    }
}

static void journal_read(struct journal *j, const char *path)
{
    static struct tree live;
    live = (struct tree){0};
    *j = (struct journal){0};
    CHECK_STATUS(OK, file_read(path, UINT64_MAX, &j->data));
    int room = 0;
    for (char *at = j->data.data, *end = at + j->data.len; at < end;) {
        struct change c = {.kind = *at};
        c.offset = strtoull(at + 2, &at, 10);
        c.len = strtoull(at + 1, &at, 10);
        char *first = at + 1, *second = strchr(first, '\n') + 1;
        char *bytes = strchr(second, '\n') + 1;
        second[-1] = 0, bytes[-1] = 0;
        c.bytes = bytes;
        apply_live(&live, &c, first, second);
        at = bytes + c.len;
        if (j->count == room) {
            room = room ? 2 * room : 256;
            j->changes = heap_grow(j->changes, (size_t)room, sizeof *j->changes);
        }
        j->changes[j->count++] = c;
    }
}

static void journal_release(struct journal *j)
{
    for (int i = 0; i < j->count; i++) free(j->changes[i].name), free(j->changes[i].to);
    free(j->changes);
    text_release(&j->data);
}

/* --- what is on disk after a failure --- */

struct failure_case {
    const struct journal *journal;
    int end; /* changes before the failure */
    uint64_t seed;
    bool is_clean; /* everything is on disk */
};

static uint64_t draw(const struct failure_case *f, uint64_t below, int what, int of)
{
    return rng_below(below, f->seed, RNG_TEST, (uint64_t)what, (uint64_t)of);
}

/* How many of the changes of a folder's entries are on disk. */
static int surviving_changes(const struct failure_case *f, int folder)
{
    int all = 0, synced = 0;
    for (int i = 0; i < f->end; i++) {
        const struct change *c = &f->journal->changes[i];
        if (c->parent == folder && strchr("cmrud", c->kind)) all++;
        if (c->node == folder && c->kind == 's') synced = all;
    }
    return f->is_clean ? all : synced + (int)draw(f, (uint64_t)(all - synced) + 1, 1, folder);
}

static void apply_change(struct tree *disk, const struct change *c)
{
    struct entry *e = find(disk, c->parent, c->name);
    if (strchr("cm", c->kind)) add(disk, c->parent, c->name, c->node);
    if (strchr("rud", c->kind) && e) e->parent = -1;
    if (c->kind == 'r') add(disk, c->parent, c->to, c->node);
}

/* Copies the sectors of a write that reached the disk. */
static void write_sectors(const struct failure_case *f, int index, bool is_synced, struct text *out)
{
    const struct change *c = &f->journal->changes[index];
    enum { ALL, NONE, SOME } how = is_synced ? ALL : (int)draw(f, 3, 2, index);
    for (size_t at = 0, len; at < c->len; at += len) {
        len = SECTOR - (c->offset + at) % SECTOR;
        if (len > c->len - at) len = c->len - at;
        int sector = (int)((c->offset + at) / SECTOR);
        if (how == NONE || (how == SOME && draw(f, 2, 3 + index, sector))) continue;
        while (out->len < c->offset + at + len) text_add(out, "\0", 1);
        memcpy(out->data + c->offset + at, c->bytes + at, len);
    }
}

static void write_content(const struct failure_case *f, int node, const char *path)
{
    struct text out = {0};
    int synced = f->is_clean ? f->end : 0;
    for (int i = 0; i < f->end; i++) {
        const struct change *c = &f->journal->changes[i];
        if (c->node == node && c->kind == 's') synced = i;
    }
    for (int i = 0; i < f->end; i++) {
        const struct change *c = &f->journal->changes[i];
        if (c->node != node) continue;
        if (c->kind == 'w') write_sectors(f, i, i < synced, &out);
        if (c->kind == 't' && c->offset < out.len) out.len = c->offset;
    }
    CHECK_STATUS(OK, file_write(path, out.len ? out.data : "", out.len));
    text_release(&out);
}

static bool is_folder(const struct journal *j, int node)
{
    for (int i = 0; i < j->count; i++)
        if (j->changes[i].node == node && j->changes[i].kind == 'm') return true;
    return node == 0;
}

static void write_folder(const struct failure_case *f, struct tree *disk, int folder,
                         const char *path)
{
    CHECK_STATUS(OK, file_make_dirs(path));
    for (int i = 0; i < disk->count; i++) {
        const struct entry *e = &disk->entries[i];
        if (e->parent != folder) continue;
        char *below = file_join(path, e->name);
        if (is_folder(f->journal, e->node))
            write_folder(f, disk, e->node, below);
        else
            write_content(f, e->node, below);
        free(below);
    }
}

static void write_disk(const struct failure_case *f, const char *path)
{
    static struct tree disk;
    disk = (struct tree){0};
    int done[MAX_NODES] = {0};
    for (int i = 0; i < f->end; i++) {
        const struct change *c = &f->journal->changes[i];
        if (c->parent < 0 || !strchr("cmrud", c->kind)) continue;
        if (done[c->parent]++ < surviving_changes(f, c->parent)) apply_change(&disk, c);
    }
    CHECK_STATUS(OK, file_remove_tree(path));
    write_folder(f, &disk, 0, path);
}

/* --- trials --- */

/* Runs the scene once more, recording it. */
static void journal_record(struct journal *j, const struct scene *s)
{
    const char *program = getenv("LLAMERO"), *library = getenv("LLAMERO_PRELOAD");
    const char *path = test_path(s->folder, "journal");
    struct text preload = {0}, to = {0}, root = {0}, err = {0};
    CHECK(library && strrchr(library, '/'));
    text_addf(&preload, "LD_PRELOAD=%.*s/libjournal.so", (int)(strrchr(library, '/') - library),
              library);
    text_addf(&to, "JOURNAL=%s", path), text_addf(&root, "JOURNAL_ROOT=%s", s->output);
    const char *words[SCENE_WORDS + 8] = {"env", preload.data, to.data, root.data,
                                          program ? program : "build/llamero"};
    for (int i = 0; s->words[i]; i++) words[5 + i] = s->words[i];
    int code = test_run(words, NULL, &err);
    if (code) fail_msg("exit code %d: %s", code, err.data);
    journal_read(j, path);
    text_release(&preload), text_release(&to), text_release(&root), text_release(&err);
}

static void try_failures(const char *settings, int trials, const char *row)
{
    struct scene s;
    struct journal j;
    struct tally t = {0};
    struct text err = {0};
    scene_train(&s, 1, settings);
    journal_record(&j, &s);
    /* The record is complete: replayed whole it is what the run left. */
    struct failure_case f = {.journal = &j, .end = j.count, .is_clean = true};
    write_disk(&f, s.output);
    const char *bad = trial_judge_output(&s);
    if (bad) fail_msg("the journal is not complete: %s", bad);
    f.is_clean = false;
    for (int i = 0; i < trials; i++) {
        f.seed = (uint64_t)i;
        f.end = 1 + (int)draw(&f, (uint64_t)j.count, 0, 0);
        write_disk(&f, s.output);
        bad = trial_judge_after_loss(&s, &err);
        t.tried++, t.lost += bad != NULL, t.survived += !bad;
        if (bad)
            print_message("lost: %s\n  power failure %d, after %d of %d changes\n  %.400s\n", bad,
                          i, f.end, j.count, err.data ? err.data : "");
    }
    tally_report(&t, s.name, row);
    journal_release(&j);
    text_release(&err);
}

TEST(train_survives_power_failures)
{
    try_failures("checkpoint.interval=1 checkpoint.keep_latest_k=2", trial_points(1, 200),
                 "a power failure");
}

TEST(train_survives_power_failures_in_saves_beside_training)
{
    try_failures("checkpoint.interval=1 checkpoint.async_mode=async", trial_points(0.5, 100),
                 "a power failure in an async save");
}
