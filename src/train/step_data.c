// SPDX-License-Identifier: Apache-2.0
#include "train/step_data.h"

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "config/batch_ramp.h"
#include "data/stream.h"
#include "hub/hub.h"
#include "train/inputs.h"
#include "train/start.h"

#include <stdlib.h>
#include <string.h>

/* Which rows the steps of a run have. */
struct run_rows {
    const struct config *config;
    const struct mesh *mesh;
    const struct model_shape *shape;
};

/* What a checkpoint says about the data. */
struct saved_position {
    char *folder;              /* owned; NULL: the start of the run */
    struct json *state;        /* owned */
    const struct json *cursor; /* NULL: the first row comes next */
    int64_t step, rows_done, next_row, position;
};

static void release_position(struct saved_position *p)
{
    json_free(p->state);
    free(p->folder);
    *p = (struct saved_position){0};
}

/* What the files of another program's checkpoint say; NULL: it has only the model. */
static enum status read_state(const char *folder, const struct model_shape *shape,
                              struct json **state)
{
    const struct checkpoint_state model = {.shape = shape, .world = comm_self()};
    struct checkpoint_found found;
    char *path = file_join(folder, "state.json");
    bool has = file_exists(path);
    enum status st = has ? json_read(path, 1 << 30, state) : STATUS_OK;
    free(path);
    if (has) return st;
    TRY(checkpoint_read_state(folder, &model, NULL, false, &found));
    *state = found.state;
    return STATUS_OK;
}

/* Takes over `folder`.  A checkpoint of the model alone, or of a program whose data position is not
 * read, has no cursor. */
static enum status read_position(char *folder, const struct run_rows *rows,
                                 struct saved_position *p)
{
    const struct batch_ramp full = {.global = config_step_rows(rows->config, rows->mesh)};
    *p = (struct saved_position){.folder = folder};
    TRY(read_state(folder, rows->shape, &p->state));
    if (!p->state) return STATUS_OK;
    TRY(json_get_int(p->state, "step", 0, JSON_MAX_INT, &p->step));
    const struct json *train = json_get(p->state, "train");
    if (!json_is_object(train)) return STATUS_OK;
    p->rows_done = batch_ramp_advance(&full, 0, p->step);
    if (json_get(train, "rows_done"))
        TRY(json_get_int(train, "rows_done", 0, JSON_MAX_INT, &p->rows_done));
    const struct json *cursor = json_get(train, "data");
    if (!json_is_object(cursor)) return STATUS_OK;
    TRY(loader_read_next(cursor, rows->config->data.order, &p->next_row, &p->position));
    p->cursor = cursor;
    return STATUS_OK;
}

/* The newest checkpoint before the step that has a data position.  Those of this program that have
 * none are of the model alone, and no run resumes from them. */
static enum status find_before(const char *folder, int64_t step, const struct run_rows *rows,
                               struct saved_position *p)
{
    do {
        char *found;
        release_position(p);
        TRY(checkpoint_find(folder, step, true, comm_self(), &found));
        if (!found) return STATUS_OK;
        step = folder_path_step(found);
        TRY(read_position(found, rows, p));
        bool resumes = !p->state || json_is_object(json_get(p->state, "train"));
        if (resumes && !p->cursor)
            FAIL(UNSUPPORTED,
                 "%s: the checkpoint has no data position, so the rows of the steps after it are "
                 "unknown",
                 found);
    } while (!p->cursor);
    return STATUS_OK;
}

/* The first checkpoint of the step or after it that has a data position and is intact. */
static enum status find_after(const char *folder, int64_t step, const struct run_rows *rows,
                              struct saved_position *p)
{
    struct folder_steps l;
    TRY(folder_steps_read(&l, folder));
    for (size_t i = 0; i < l.count && !p->cursor; i++) {
        char *found;
        if (l.steps[i] < step || checkpoint_find_step(folder, l.steps[i], comm_self(), &found))
            continue;
        if (read_position(found, rows, p) || !p->cursor) release_position(p);
    }
    folder_steps_release(&l);
    return STATUS_OK;
}

enum status step_data_find_checkpoint(const char *folder, int64_t step, char **found)
{
    struct folder_steps l;
    *found = NULL;
    TRY(folder_steps_read(&l, folder));
    for (size_t i = 0; i < l.count && !*found; i++)
        if (l.steps[i] >= step && checkpoint_find_step(folder, l.steps[i], comm_self(), found))
            *found = NULL;
    folder_steps_release(&l);
    return STATUS_OK;
}

/* A run may begin with the whole state of another one, and with the first row if that has no data
 * position. */
static enum status find_initial(const struct config *c, const struct run_rows *rows,
                                struct saved_position *p)
{
    const struct checkpoint_config *k = &c->checkpoint;
    const struct option_list *excluded = &k->exclude_from_loading;
    char *local = NULL, *folder = NULL;
    if (!k->initial_load_path[0] || k->initial_load_model_only) return STATUS_OK;
    enum status st = hub_find(k->initial_load_path, &local);
    if (!st) st = checkpoint_locate(local, -1, comm_self(), &folder);
    free(local);
    if (!st) st = read_position(folder, rows, p);
    TRY(st);
    if (option_list_contains(excluded, "dataloader"))
        p->cursor = NULL, p->next_row = p->position = 0;
    if (option_list_contains(excluded, "lr_scheduler")) p->step = 0;
    return STATUS_OK;
}

static int64_t advance(const struct run_rows *rows, int64_t step, int64_t done, int64_t until)
{
    return data_stages_advance(rows->config, rows->mesh, step, done, until);
}

/* The rows of past steps depend on the number of ranks unless training.global_batch_size is set,
 * and the run does not record it. */
static enum status check_rows(const struct saved_position *from, const struct saved_position *after,
                              const struct run_rows *rows, int num_ranks)
{
    int64_t done = advance(rows, from->step, from->rows_done, after->step);
    if (after->cursor && done != after->rows_done)
        FAIL(CONFIG,
             "steps %lld to %lld trained on %lld rows, but on %d ranks this configuration trains "
             "on %lld: set --ranks to the number of ranks of the run",
             (long long)from->step + 1, (long long)after->step,
             (long long)(after->rows_done - from->rows_done), num_ranks,
             (long long)(done - from->rows_done));
    done = advance(rows, 0, 0, from->step);
    if (!after->cursor && from->cursor && done != from->rows_done)
        log_line(LOG_WARN,
                 "the first %lld steps trained on %lld rows, but on %d ranks this configuration "
                 "trains on %lld: the rows shown are those of a run that resumes on %d ranks",
                 (long long)from->step, (long long)from->rows_done, num_ranks, (long long)done,
                 num_ranks);
    return STATUS_OK;
}

/* Adds the rows of rollbacks to the checkpoint of this step, from a line of metrics.jsonl. */
static void add_rollback(const char *line, size_t len, int64_t step, struct row_ranges *passed)
{
    struct json *v;
    int64_t to, first, last;
    if (!memmem(line, len, "\"rollback_from\"", 15) || json_parse(line, len, "line", &v)) return;
    const struct json *rows = json_first(json_get(v, "rows_skipped"));
    if (json_as_int(json_get(v, "step"), 0, JSON_MAX_INT, &to) && to == step && rows &&
        json_as_int(rows, 0, JSON_MAX_INT, &first) && json_next(rows) &&
        json_as_int(json_next(rows), first, JSON_MAX_INT, &last))
        row_ranges_add(passed, (struct row_interval){(uint64_t)first, (uint64_t)last + 1});
    json_free(v);
}

static enum status read_rollbacks(const struct config *c, int64_t step, struct row_ranges *passed)
{
    char *path = file_join(c->job.dump_folder, "metrics.jsonl");
    struct text lines = {0};
    enum status st = file_exists(path) ? file_read(path, UINT64_MAX, &lines) : STATUS_OK;
    for (size_t at = 0; !st && at < lines.len;) {
        const char *line = lines.data + at, *end = memchr(line, '\n', lines.len - at);
        if (!end) break; /* the run is writing it */
        add_rollback(line, (size_t)(end - line), step, passed);
        at += (size_t)(end - line) + 1;
    }
    text_release(&lines);
    free(path);
    return st;
}

/* Which rows from the position on were not trained on. */
static enum status find_passed(const struct config *c, int64_t step,
                               const struct saved_position *from,
                               const struct saved_position *after, struct row_ranges *passed)
{
    struct row_ranges all = {0};
    enum status st = after->cursor ? row_ranges_read(&all, json_get(after->cursor, "passed_over"))
                                   : read_rollbacks(c, from->step, &all);
    if (!st)
        row_ranges_add_part(passed, &all,
                            (struct row_interval){(uint64_t)from->next_row, UINT64_MAX});
    row_ranges_release(&all);
    TRY(st);
    uint64_t rows = (uint64_t)(after->rows_done - from->rows_done);
    if (after->cursor &&
        row_ranges_outside(passed, (uint64_t)from->next_row, rows) > (uint64_t)after->next_row)
        FAIL(CONFIG,
             "the data of steps %lld to %lld do not follow from those before: the run was resumed "
             "with checkpoint.exclude_from_loading = [\"dataloader\"], so the rows of step %lld "
             "are unknown",
             (long long)from->step + 1, (long long)after->step, (long long)step);
    if (from->cursor && !after->cursor && start_leaves_out(from->folder, c, "dataloader"))
        log_line(LOG_WARN,
                 "checkpoint.exclude_from_loading has \"dataloader\", so a run that resumes from "
                 "step %lld starts from the first row: the rows shown are those of one that "
                 "continues",
                 (long long)from->step);
    return STATUS_OK;
}

/* Before the first checkpoint, the next one says whether the data are still the same. */
static enum status check_unchanged(const struct loader_options *o,
                                   const struct saved_position *after)
{
    struct loader *l;
    TRY(loader_open(&l, o));
    enum status st = loader_load(l, after->cursor);
    loader_close(l);
    return st;
}

/* Opens the loader of s->stage at the position. */
static enum status open_loader(struct step_data *s, const struct saved_position *from,
                               const struct saved_position *after)
{
    const struct config *c = &s->stage.config;
    struct model_shape shape;
    TRY(model_shape_resolve(&shape, &c->model, tokenizer_vocab_size(s->tokenizer)));
    s->data = inputs_data_config(c, &s->one);
    s->data.bad_record_limit = 1; /* the run has applied the limit, or will */
    if (!s->data.sampler_ranks) s->data.sampler_ranks = (int64_t)s->split.readers;
    struct loader_options o = inputs_loader_options(c, &s->mesh, &s->data, s->tokenizer, shape.V);
    o.reader = 0, o.num_readers = 1, o.prefetch_rows = 0, o.lists_spans = true;
    if (!from->cursor && after->cursor) {
        TRY(check_unchanged(&o, after));
        s->data.streams = (int64_t)json_count(json_get(after->cursor, "streams"));
    }
    TRY(loader_open(&s->loader, &o));
    if (from->cursor) TRY(loader_load(s->loader, from->cursor));
    return STATUS_OK;
}

/* Skips to the row that comes after `before` more rows. */
static void skip_rows(struct step_data *s, const struct saved_position *from, uint64_t before,
                      const struct row_ranges *passed)
{
    uint64_t next = (uint64_t)from->next_row, begin = row_ranges_outside(passed, next, before);
    for (size_t i = 0; i < passed->count; i++) loader_skip(s->loader, passed->items[i]);
    if (begin > next) loader_skip(s->loader, (struct row_interval){next, begin});
}

/* Reads the rest of a stage, and makes *from the position after it. */
static enum status finish_stage(struct step_data *s, const struct run_rows *rows,
                                struct saved_position *from, const struct row_ranges *passed)
{
    int64_t end = s->stage.end, done = advance(rows, from->step, from->rows_done, end);
    const struct token_row *row;
    struct text cursor = {0};
    uint64_t number;
    enum status st = STATUS_OK;
    skip_rows(s, from, 0, passed);
    for (int64_t i = from->rows_done; i < done; i++)
        TRY_OUT(loader_next_tokens(s->loader, &row, &number));
    loader_save(s->loader, &(struct json_writer){.text = &cursor});
    json_free(from->state);
    from->state = NULL;
    TRY_OUT(json_parse(cursor.data, cursor.len, "data position", &from->state));
    from->cursor = from->state, from->step = end, from->rows_done = done;
    TRY_OUT(json_get_int(from->cursor, "next_row", 0, JSON_MAX_INT, &from->next_row));
out:
    text_release(&cursor);
    loader_close(s->loader);
    s->loader = NULL;
    return st;
}

/* Opens the loader at the first row of the step. */
static enum status open_at_step(struct step_data *s, const struct run_rows *rows,
                                struct saved_position *from, const struct saved_position *after,
                                const struct row_ranges *passed)
{
    const struct config *c = rows->config;
    size_t stage = data_stages_find(c, &s->mesh, from->step);
    size_t last = data_stages_find(c, &s->mesh, s->step - 1);
    for (;; stage++) {
        data_stages_open(&s->stage, c, &s->mesh, stage);
        TRY(open_loader(s, from, after));
        if (stage == last) break;
        TRY(finish_stage(s, rows, from, passed));
        data_stages_close(&s->stage);
    }
    int64_t done = advance(rows, from->step, from->rows_done, s->step - 1);
    s->num_rows = advance(rows, s->step - 1, done, s->step) - done;
    skip_rows(s, from, (uint64_t)(done - from->rows_done), passed);
    return STATUS_OK;
}

/* The rows that guard.skip_rows takes out of the positions, from a row on. */
static void find_skipped(const struct config *c, int64_t from, struct row_ranges *skipped)
{
    const struct option_ranges *r = &c->guard.skip_rows;
    struct row_ranges all = {0};
    for (size_t i = 0; i < r->count; i++)
        row_ranges_add(&all, (struct row_interval){(uint64_t)r->items[i].first,
                                                   (uint64_t)r->items[i].last + 1});
    row_ranges_add_part(skipped, &all, (struct row_interval){(uint64_t)from, UINT64_MAX});
    row_ranges_release(&all);
}

/* The position of a row (row_split.h). */
static uint64_t position_of(const struct step_data *s, uint64_t row)
{
    struct row_ranges before = {0};
    row_ranges_add_part(&before, &s->skipped, (struct row_interval){0, row});
    uint64_t position = s->first_position + (row - s->first_row) - row_ranges_rows(&before);
    row_ranges_release(&before);
    return position;
}

enum status step_data_open(struct step_data *s, const struct config *c, int num_ranks, int64_t step)
{
    struct saved_position from = {0}, after = {0};
    struct row_ranges passed = {0};
    struct model_shape shape;
    const struct run_rows rows = {c, &s->mesh, &shape};
    enum status st = STATUS_OK;
    *s = (struct step_data){.step = step};
    if (step < 1 || step > c->training.steps)
        FAIL(USAGE, "step %lld: must be between 1 and training.steps = %lld", (long long)step,
             (long long)c->training.steps);
    char *folder = file_join(c->job.dump_folder, c->checkpoint.folder);
    TRY_OUT(config_check(c, num_ranks));
    TRY_OUT(mesh_resolve(&s->mesh, &c->parallelism, 0, num_ranks));
    s->split = config_row_split(c, &s->mesh);
    s->is_skipped = option_ranges_contain(&c->guard.skip_steps, step);
    TRY_OUT(inputs_open_tokenizer(c, false, &s->tokenizer));
    TRY_OUT(model_shape_resolve(&shape, &c->model, tokenizer_vocab_size(s->tokenizer)));
    TRY_OUT(find_before(folder, step, &rows, &from));
    if (!from.cursor) TRY_OUT(find_initial(c, &rows, &from));
    if (from.step >= step)
        FAIL_OUT(USAGE, "step %lld: the run begins after step %lld of %s", (long long)step,
                 (long long)from.step, from.folder);
    TRY_OUT(find_after(folder, step, &rows, &after));
    TRY_OUT(check_rows(&from, &after, &rows, num_ranks));
    find_skipped(c, from.next_row, &s->skipped);
    TRY_OUT(find_passed(c, step, &from, &after, &passed));
    if (!after.cursor)
        row_ranges_add_part(&passed, &s->skipped, (struct row_interval){0, UINT64_MAX});
    s->from_step = from.step, s->checkpoint = from.folder, from.folder = NULL;
    s->first_row = (uint64_t)from.next_row, s->first_position = (uint64_t)from.position;
    TRY_OUT(open_at_step(s, &rows, &from, &after, &passed));
    s->begin = position_of(s, loader_position(s->loader));
out:
    row_ranges_release(&passed);
    release_position(&from), release_position(&after);
    free(folder);
    return st;
}

void step_data_close(struct step_data *s)
{
    loader_close(s->loader);
    tokenizer_close(s->tokenizer);
    data_stages_close(&s->stage);
    row_ranges_release(&s->skipped);
    free(s->checkpoint);
    *s = (struct step_data){0};
}

enum status step_data_next(struct step_data *s, struct step_row *row, bool *none)
{
    *none = s->num_read == s->num_rows;
    if (*none) return STATUS_OK;
    TRY(loader_next_tokens(s->loader, &row->tokens, &row->number));
    BUG_IF(!row->tokens); /* training has no last row */
    uint64_t position = position_of(s, row->number);
    uint64_t reader = row_split_reader(&s->split, position);
    uint64_t before = row_split_count(&s->split, reader, s->begin);
    row->reader = (int)reader;
    row->place =
        loader_place(s->loader, (int)(row_split_count(&s->split, reader, position) - before));
    s->num_read++;
    return STATUS_OK;
}
