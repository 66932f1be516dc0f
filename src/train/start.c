// SPDX-License-Identifier: Apache-2.0
#include "train/start.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/interop/dcp.h"
#include "checkpoint/interop/torch_files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rewind.h"
#include "checkpoint/tensor_origins.h"
#include "hub/hub.h"

#include <stdlib.h>

/* A run whose checkpoints are all damaged, set aside, or in a format that is not supported must not
 * silently start over. */
static enum status check_no_checkpoints(const struct config *c, const char *folder)
{
    size_t count;
    bool has_abandoned;
    if (!c->checkpoint.initial_load_path[0] && torch_files_are_megatron(c->job.dump_folder))
        FAIL(CONFIG,
             "job.dump_folder = \"%s\" has checkpoints of Megatron-LM: to continue from the last, "
             "set checkpoint.initial_load_path to this folder and "
             "checkpoint.initial_load_model_only = false; to start with new weights, set another "
             "job.dump_folder",
             c->job.dump_folder);
    TRY(folder_steps_count(folder, &count));
    if (count)
        FAIL(DATA,
             "%s: no intact checkpoint found (%zu damaged or incomplete); move them away to start "
             "over, or from a copy in checkpoint.copy_to",
             folder, count);
    TRY(folder_has_abandoned(folder, &has_abandoned));
    if (has_abandoned)
        FAIL(DATA,
             "%s: all checkpoints were set aside in abandoned-*; move one back to resume, or move "
             "those folders away to start over, or from a copy in checkpoint.copy_to",
             folder);
    return STATUS_OK;
}

/* checkpoint.load_step, once: the newest, if an earlier start went back to it. */
static enum status step_to_load(const struct config *c, const char *folder,
                                const struct comm *world, int64_t *step)
{
    bool is_done = false;
    enum status st = STATUS_OK;
    *step = c->checkpoint.load_step;
    if (*step >= 0 && world->rank == 0) st = rewind_is_done(folder, *step, &is_done);
    TRY(comm_agree(world, st));
    if (is_done) *step = -1;
    return comm_broadcast_bytes(world, 0, step, sizeof *step);
}

/* The configuration of the run that saved the checkpoint, if the file has its checksum. */
static enum status read_config(const char *folder, struct config *config, bool *is_read)
{
    char *path = file_join(folder, "config.toml");
    enum status st = STATUS_OK;
    *is_read = file_exists(path) && !manifest_verify(folder, "config.toml");
    if (*is_read) st = config_load(config, path, NULL, 0);
    if (st) config_release(config), *is_read = false;
    free(path);
    return st;
}

/* A bit for each part of a run's state that checkpoint.exclude_from_loading can name; 0: another
 * name, of tensors. */
static unsigned part_bit(const char *name)
{
    static const char *const parts[] = {"optimizer", "lr_scheduler", "dataloader"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strcmp(name, parts[i])) return 1u << i;
    return 0;
}

/* Bits of the parts that the run that saved the checkpoint was to leave out itself. */
static unsigned parts_left_out(const char *folder)
{
    struct config saved;
    bool is_read;
    unsigned bits = 0;
    if (read_config(folder, &saved, &is_read) || !is_read) return 0;
    const struct option_list *excluded = &saved.checkpoint.exclude_from_loading;
    for (size_t i = 0; i < excluded->count; i++) bits |= part_bit(excluded->items[i]);
    config_release(&saved);
    return bits;
}

bool start_leaves_out(const char *folder, const struct config *c, const char *part)
{
    return option_list_contains(&c->checkpoint.exclude_from_loading, part) &&
           !(parts_left_out(folder) & part_bit(part));
}

/* checkpoint.exclude_from_loading, of a run's own checkpoint without the parts that it leaves out
 * no longer.  Collective. */
static enum status list_excluded(struct start *s, const struct config *c, const struct comm *world)
{
    const struct option_list *all = &c->checkpoint.exclude_from_loading;
    unsigned done = 0;
    if (!all->count) return STATUS_OK;
    if (s->own && world->rank == 0) done = parts_left_out(s->folder);
    TRY(comm_broadcast_bytes(world, 0, &done, sizeof done));
    s->excluded.items = heap(all->count * sizeof *all->items);
    for (size_t i = 0; i < all->count; i++)
        if (!(done & part_bit(all->items[i])))
            s->excluded.items[s->excluded.count++] = all->items[i];
    return STATUS_OK;
}

static enum status find_own(struct start *s, const struct config *c,
                            const struct start_search *search, const struct comm *world)
{
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    int64_t step, native = 0;
    enum status st = STATUS_OK;
    TRY_OUT(step_to_load(c, folder, world, &step));
    TRY_OUT(step >= 0
                ? checkpoint_find_step(folder, step, world, &s->folder)
                : checkpoint_find(folder, search->limit, !search->is_quiet, world, &s->folder));
    if (!s->folder) {
        TRY_OUT(comm_agree(world, world->rank ? STATUS_OK : check_no_checkpoints(c, folder)));
        goto out;
    }
    if (world->rank == 0) native = !dcp_detect(s->folder);
    TRY_OUT(comm_broadcast_bytes(world, 0, &native, sizeof native));
    s->own = true, s->native = native, s->rewinds = step >= 0;
    s->step = folder_path_step(s->folder);
    s->whole = s->native || s->step > 0, s->partial = !s->whole;
out:
    free(folder);
    return st;
}

static enum status find_initial(struct start *s, const struct config *c, bool fetch,
                                const struct comm *world)
{
    const char *path = c->checkpoint.initial_load_path;
    char *local = NULL;
    enum status st;
    if (fetch) TRY(hub_fetch(path, HUB_WEIGHTS, world));
    st = comm_agree(world, hub_find(path, &local));
    if (st && st != STATUS_CONFIG && !fetch && hub_is_path(path)) {
        log_line(LOG_INFO,
                 "checkpoint.initial_load_path = \"%s\": not checked, since it is not "
                 "downloaded yet",
                 path);
        return STATUS_OK;
    }
    if (!st) st = checkpoint_locate(local, -1, world, &s->folder);
    s->whole = !c->checkpoint.initial_load_model_only;
    free(local);
    if (st) st = status_prefix(st, "checkpoint.initial_load_path = \"%s\"", path);
    return st;
}

enum status start_find(struct start *s, const struct config *c, const struct start_search *search,
                       const struct comm *world)
{
    *s = (struct start){.step = -1};
    enum status st = find_own(s, c, search, world);
    if (!st && !s->own && c->checkpoint.initial_load_path[0])
        st = find_initial(s, c, search->fetch, world);
    if (!st && s->folder) st = list_excluded(s, c, world);
    if (st) start_release(s);
    return st;
}

void start_release(struct start *s)
{
    free(s->folder);
    free(s->excluded.items);
    *s = (struct start){0};
}

struct load_rules start_load_rules(const struct start *s)
{
    return (struct load_rules){
        .exclude = &s->excluded, .partial = s->partial, .resumes = s->own && s->whole};
}

/* What the checkpoint's files say of the run that saved it.  Files that do not have their checksum
 * say nothing. */
static void read_saved(const char *folder, struct config *config, bool *has_config,
                       struct model_shape *shape, bool *has_shape)
{
    if (read_config(folder, config, has_config))
        log_line(LOG_WARN, "settings are not compared with those of the checkpoint: %s",
                 status_message());
    *has_shape = !manifest_verify(folder, "config.json") && !checkpoint_read_shape(folder, shape);
}

static enum status refuse_changes(const char *folder, const struct config *c,
                                  const struct config_changes *x)
{
    struct text remedy = {0};
    bool was_excluded = option_list_contains(&c->checkpoint.exclude_from_loading, "dataloader");
    if (x->names.len && !x->is_other_model)
        text_addf(&remedy, ", or continue anyway with checkpoint.accept_changed = [%s]",
                  x->names.data);
    if (x->is_other_data && !x->is_other_model && !was_excluded)
        text_addf(&remedy,
                  ", %s the data over with checkpoint.exclude_from_loading = "
                  "[\"dataloader\"]",
                  x->names.len ? "and start" : "or start");
    enum status st =
        FAILURE(CONFIG,
                "%s: a resumed run cannot change these settings: %s. Set them back, or start a new "
                "run with another job.dump_folder%s%s",
                folder, x->refused.data,
                x->is_other_model ? "" : " (and this checkpoint as checkpoint.initial_load_path)",
                remedy.len ? remedy.data : "");
    text_release(&remedy);
    return st;
}

/* A resumed run does not read it, so that a mistake in it would only show in a new run. */
static void warn_of_unread_path(const struct start *s, const struct config *c)
{
    const char *path = c->checkpoint.initial_load_path;
    if (*path && !hub_is_path(path) && !file_exists(path))
        log_line(LOG_WARN,
                 "checkpoint.initial_load_path = \"%s\" has no effect, as the run resumes from %s; "
                 "the path does not exist",
                 path, s->folder);
}

enum status start_compare(const struct start *s, const struct config *c,
                          const struct model_shape *shape, bool log)
{
    struct config old = {0};
    struct model_shape old_shape;
    struct config_changes changes;
    bool has_config, has_shape;
    enum status st = STATUS_OK;
    if (s->own && log) warn_of_unread_path(s, c);
    if (!s->own || !s->native) return STATUS_OK;
    TRY(manifest_verify(s->folder, "config.json")); /* what follows would blame the settings */
    read_saved(s->folder, &old, &has_config, &old_shape, &has_shape);
    config_compare(&(struct config_model){has_config ? &old : NULL, has_shape ? &old_shape : NULL},
                   &(struct config_model){c, shape}, &changes);
    if (changes.refused.len) TRY_OUT(refuse_changes(s->folder, c, &changes));
    if (log && changes.lines.len)
        log_line(LOG_WARN, "settings that changed since %s was saved:\n%s", s->folder,
                 changes.lines.data);
out:
    config_release(&old);
    config_changes_release(&changes);
    return st;
}

/* On rank 0, once later checkpoints are in `branch` (empty: none). */
static enum status record_start(const struct start *s, const struct config *c,
                                const struct text *branch)
{
    const struct checkpoint_config *k = &c->checkpoint;
    char *folder = file_join(c->job.dump_folder, k->folder);
    enum status st = STATUS_OK;
    if (s->rewinds)
        st = rewind_record(folder, s->step, branch->data);
    else if (k->load_step < 0)
        st = rewind_forget(folder);
    else
        log_line(LOG_INFO,
                 "checkpoint.load_step = %lld: done by an earlier start, so this one resumes from "
                 "the newest checkpoint; to go back again, remove %s/rewind.json",
                 (long long)k->load_step, folder);
    free(folder);
    return st;
}

enum status start_finish(const struct start *s, const struct config *c,
                         struct checkpointer *checkpointer, const struct comm *world)
{
    struct text branch = {0};
    enum status st = STATUS_OK;
    bool is_root = world->rank == 0;
    char *metrics = NULL;
    if (!s->own || !c->checkpoint.enable || c->checkpoint.load_only) return STATUS_OK;
    metrics = file_join(c->job.dump_folder, "metrics.jsonl");
    if (s->rewinds) TRY_OUT(checkpointer_abandon(checkpointer, s->step, metrics, &branch));
    st = comm_agree(world, is_root ? record_start(s, c, &branch) : STATUS_OK);
out:
    text_release(&branch);
    free(metrics);
    return st;
}

/* Whether the run may fetch its checkpoints from checkpoint.copy_to, as it has none here. */
static bool may_restore_copy(const struct config *c)
{
    size_t count;
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    bool may = c->checkpoint.copy_to[0] && (folder_steps_count(folder, &count) || !count);
    free(folder);
    return may;
}

static void warn_of_damage(void)
{
    log_line(LOG_WARN, "%s; `train` falls back to an older checkpoint", status_message());
}

/* Also of a run that loads nothing yet, as it would be refused when it resumes. */
static enum status check_excluded(const struct config *c, const struct model_shape *shape)
{
    struct layout layout;
    layout_init(&layout, shape, 1);
    enum status st = tensor_origins_check_excluded(&c->checkpoint.exclude_from_loading, &layout);
    layout_release(&layout);
    return st;
}

static enum status check_found(const struct start *s, const struct config *c,
                               const struct model_shape *shape, bool log)
{
    struct layout layout;
    const struct load_rules rules = start_load_rules(s);
    layout_init(&layout, shape, 1);
    const struct checkpoint_state state = {.shape = shape, .layout = &layout, .world = comm_self()};
    enum status st = start_compare(s, c, shape, log);
    if (!st && s->native && s->whole) st = manifest_verify(s->folder, "state.json");
    if (!st) st = checkpoint_check_shapes(s->folder, &state, &rules, log);
    layout_release(&layout);
    return st;
}

enum status start_check(const struct config *c, const struct model_shape *shape, bool log)
{
    struct start s;
    struct start_search search = {.limit = INT64_MAX, .is_quiet = !log};
    bool falls_back; /* to an older checkpoint, as the run does, which then logs why */
    enum status st;
    TRY(check_excluded(c, shape));
    do {
        st = start_find(&s, c, &search, comm_self());
        if (st == STATUS_MISSING && may_restore_copy(c)) return STATUS_OK;
        TRY(st);
        if (!s.folder) return STATUS_OK;
        st = check_found(&s, c, shape, log);
        falls_back = st == STATUS_DATA && s.native && !s.rewinds;
        if (falls_back && log) warn_of_damage();
        search.limit = s.step;
        start_release(&s);
    } while (falls_back && log);
    return falls_back ? STATUS_OK : st;
}

int64_t start_steps_done(const struct start *s, const struct checkpoint_found *found)
{
    if (option_list_contains(&s->excluded, "lr_scheduler")) return 0;
    if (s->own) return s->step;
    return found->train ? found->step : 0;
}

enum status start_check_state(const struct start *s, const struct config *c,
                              const struct checkpoint_found *found)
{
    bool is_initial = found->step == 0 && !found->train; /* initial weights */
    bool is_finished = s->own && found->train && start_steps_done(s, found) >= c->training.steps;
    if (is_initial || is_finished || (found->train && found->has_moments)) return STATUS_OK;
    if (!s->own)
        FAIL(CONFIG,
             "%s has only the model: to start from its weights, set "
             "checkpoint.initial_load_model_only = true",
             s->folder);
    FAIL(CONFIG,
         "%s has only the model (see checkpoint.last_save_model_only), so the run cannot resume "
         "from it: go back to an earlier checkpoint with checkpoint.load_step, or start a new run "
         "in another job.dump_folder with this one as checkpoint.initial_load_path",
         s->folder);
}

enum status start_read_state(struct start_state *s, const struct config *c,
                             const struct model_shape *shape, bool log)
{
    struct start_search search = {.limit = INT64_MAX, .is_quiet = true};
    const struct checkpoint_state state = {.shape = shape, .world = comm_self()};
    const char *folder;
    for (bool falls_back = true; falls_back;) {
        *s = (struct start_state){0};
        bool is_found = !start_find(&s->start, c, &search, comm_self()) && s->start.folder;
        if (!is_found || !s->start.whole) return STATUS_OK;
        folder = s->start.folder;
        bool is_damaged = s->start.native && (manifest_verify(folder, "state.json") ||
                                              manifest_verify(folder, "config.json"));
        falls_back = is_damaged && !s->start.rewinds;
        search.limit = s->start.step;
        if (is_damaged) start_release_state(s);
        if (is_damaged && !falls_back) return STATUS_OK; /* start_check says so */
    }
    const struct load_rules rules = start_load_rules(&s->start);
    enum status st = checkpoint_read_state(folder, &state, &rules, log, &s->found);
    if (st && s->start.native) return STATUS_OK;
    TRY(st);
    return start_check_state(&s->start, c, &s->found);
}

void start_release_state(struct start_state *s)
{
    json_free(s->found.state);
    start_release(&s->start);
    *s = (struct start_state){0};
}
