// SPDX-License-Identifier: Apache-2.0
#include "runs/runs_table.h"

#include "base/json.h"
#include "runs/printable.h"
#include "runs/run_format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How qsort_r compares two rows. */
struct row_order {
    const char *column;
    double now_s;
    bool reverse;
};

static int compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int compare_rows(const void *a, const void *b, void *context)
{
    const struct row_order *o = context;
    const struct run_folder *const *x = a, *const *y = b;
    const struct run_cell p = run_cell_of(*x, o->column, o->now_s);
    const struct run_cell q = run_cell_of(*y, o->column, o->now_s);
    int order = 0;
    if (!p.kind || !q.kind) order = !p.kind - !q.kind;
    if (order) return order;
    if (p.kind != q.kind)
        order = p.kind == RUN_CELL_number ? -1 : 1;
    else if (p.kind == RUN_CELL_number)
        order = compare_numbers(p.number, q.number);
    else if (p.kind == RUN_CELL_text)
        order = strcmp(p.text, q.text);
    if (order) return o->reverse ? -order : order;
    return strcmp((*x)->path, (*y)->path);
}

static void sort_rows(struct runs_table *t, const char *column, bool reverse)
{
    struct row_order o = {column, t->now_s, reverse};
    if (t->num_rows) qsort_r(t->rows, t->num_rows, sizeof *t->rows, compare_rows, &o);
}

void runs_table_init(struct runs_table *t, const struct run_list *l, double now_s)
{
    *t = (struct runs_table){.list = l, .now_s = now_s};
    t->rows = heap((l->count + 1) * sizeof(const struct run_folder *));
    for (size_t i = 0; i < l->count; i++) t->rows[t->num_rows++] = &l->runs[i];
    sort_rows(t, "age", false);
}

static void clear_columns(struct runs_table *t)
{
    for (size_t i = 0; i < t->num_columns; i++) free(t->columns[i]);
    free(t->columns);
    t->columns = NULL;
    t->num_columns = 0;
}

void runs_table_release(struct runs_table *t)
{
    clear_columns(t);
    free(t->rows);
    *t = (struct runs_table){0};
}

void runs_table_filter(struct runs_table *t, const struct run_filter *f)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->num_rows; i++)
        if (run_filter_accepts(f, t->rows[i], t->now_s)) t->rows[kept++] = t->rows[i];
    t->num_rows = kept;
}

enum status runs_table_sort(struct runs_table *t, const char *column, bool reverse)
{
    enum status st = run_cell_check_column(t->list, column);
    if (st) return status_prefix(st, "--sort");
    sort_rows(t, column, reverse);
    return STATUS_OK;
}

static bool has_column(const struct runs_table *t, const char *name)
{
    for (size_t i = 0; i < t->num_columns; i++)
        if (!strcmp(t->columns[i], name)) return true;
    return false;
}

static void add_column(struct runs_table *t, const char *name, size_t len)
{
    t->columns = heap_grow(t->columns, t->num_columns + 1, sizeof *t->columns);
    t->columns[t->num_columns++] = heap_string(name, len);
}

enum status runs_table_set_columns(struct runs_table *t, const char *columns)
{
    clear_columns(t);
    for (const char *at = columns; *at;) {
        size_t len = strcspn(at, ", ");
        if (len) add_column(t, at, len);
        at += len + (at[len] != 0);
    }
    if (!t->num_columns) FAIL(USAGE, "--columns: expected names with commas between them");
    for (size_t i = 0; i < t->num_columns; i++) {
        enum status st = run_cell_check_column(t->list, t->columns[i]);
        if (st) return status_prefix(st, "--columns");
    }
    return STATUS_OK;
}

/* What differs between any two runs and says nothing about them. */
static bool is_of_no_interest(const char *key)
{
    return !strcmp(key, "job.dump_folder") || !strcmp(key, "job.config_file");
}

static bool differs(const struct runs_table *t, const char *key, size_t index)
{
    const char *first = NULL;
    bool has_first = false;
    for (size_t i = 0; i < t->num_rows; i++) {
        const struct run_settings *s = &t->rows[i]->settings;
        if (!s->count) continue; /* without a config.toml: nothing is known to differ */
        /* Files of one version have their keys at the same places. */
        bool is_there = index < s->count && !strcmp(s->all[index].key, key);
        const char *value = is_there ? s->all[index].value : run_settings_find(s, key);
        if (has_first && (!value != !first || (value && strcmp(value, first) != 0))) return true;
        first = value, has_first = true;
    }
    return false;
}

static void add_differing(struct runs_table *t)
{
    enum { MOST = 100 };
    const struct run_settings *before = NULL;
    for (size_t i = 0; i < t->num_rows; i++) {
        const struct run_settings *s = &t->rows[i]->settings;
        for (size_t k = 0; k < s->count && t->num_columns < MOST; k++) {
            const char *key = s->all[k].key;
            /* A key of the run before has been looked at. */
            bool is_known = before && ((k < before->count && !strcmp(before->all[k].key, key)) ||
                                       run_settings_find(before, key));
            if (is_known || is_of_no_interest(key) || has_column(t, key)) continue;
            if (differs(t, key, k)) add_column(t, key, strlen(key));
        }
        if (s->count) before = s;
    }
}

void runs_table_choose_columns(struct runs_table *t, bool steps)
{
    static const char *const others[] = {"state",           "step",   "steps", "loss",
                                         "best_validation", "tokens", "age"};
    clear_columns(t);
    add_column(t, "run", 3);
    add_differing(t);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (steps || strcmp(others[i], "steps")) add_column(t, others[i], strlen(others[i]));
}

static bool is_setting(const char *column) { return strchr(column, '.') != NULL; }

/* "optimizer.lr" as "lr", if no other column ends so. */
static const char *heading(const struct runs_table *t, size_t column)
{
    const char *name = t->columns[column], *dot = strrchr(name, '.');
    if (!dot || !dot[1] || strchr(name, '/')) return name;
    for (size_t i = 0; i < t->num_columns; i++) {
        const char *other = t->columns[i], *last = strrchr(other, '.');
        if (i != column && !strcmp(last ? last + 1 : other, dot + 1)) return name;
    }
    return dot + 1;
}

static void format_cell(const struct runs_table *t, const struct run_folder *r, const char *column,
                        struct text *out)
{
    const struct run_cell c = run_cell_of(r, column, t->now_s);
    text_clear(out);
    if (!c.kind)
        text_adds(out, "-");
    else if (c.text)
        text_adds(out, c.text);
    else if (!strcmp(column, "step") && r->last_step)
        text_addf(out, "%.0f/%lld", c.number, (long long)r->last_step);
    else if (!strcmp(column, "tokens") || !strcmp(column, "tokens_seen"))
        run_format_count(out, c.number);
    else if (!strcmp(column, "age") || !strcmp(column, "eta"))
        run_format_age(out, c.number);
    else if (isnan(c.number))
        text_adds(out, "nan");
    else if (strstr(column, "loss") || !strcmp(column, "best_validation"))
        text_addf(out, "%.4f", c.number);
    else if (c.number == floor(c.number) && fabs(c.number) < 1e15)
        text_addf(out, "%.0f", c.number);
    else
        text_addf(out, "%.5g", c.number);
}

/* Widths of columns as they are printed; 0: left out. */
struct table_layout {
    size_t *widths;
    bool *is_left; /* aligned */
};

static size_t total_width(const struct runs_table *t, const struct table_layout *l)
{
    size_t total = 0;
    for (size_t i = 0; i < t->num_columns; i++)
        if (l->widths[i]) total += l->widths[i] + (total ? 2 : 0);
    return total;
}

static void measure(const struct runs_table *t, struct table_layout *l)
{
    struct text cell = {0};
    for (size_t i = 0; i < t->num_columns; i++) {
        l->widths[i] = printable_width(heading(t, i));
        for (size_t r = 0; r < t->num_rows; r++) {
            const struct run_cell c = run_cell_of(t->rows[r], t->columns[i], t->now_s);
            format_cell(t, t->rows[r], t->columns[i], &cell);
            size_t width = printable_width(cell.data);
            if (width > l->widths[i]) l->widths[i] = width;
            if (c.kind == RUN_CELL_text) l->is_left[i] = true;
        }
    }
    text_release(&cell);
}

static void drop_column(const struct runs_table *t, struct table_layout *l, size_t i,
                        struct text *dropped)
{
    l->widths[i] = 0;
    text_addf(dropped, "%s%s", dropped->len ? ", " : "", t->columns[i]);
}

/* Cuts long text to `most` columns, the widest first, until the table fits. */
static void cut_text(const struct runs_table *t, struct table_layout *l, size_t width, size_t most)
{
    for (size_t total; (total = total_width(t, l)) > width;) {
        size_t widest = 0;
        bool found = false;
        for (size_t i = 0; i < t->num_columns; i++)
            if (l->is_left[i] && l->widths[i] > most &&
                (!found || l->widths[i] > l->widths[widest]))
                widest = i, found = true;
        if (!found) return;
        size_t over = total - width, room = l->widths[widest] - most;
        l->widths[widest] -= over < room ? over : room;
    }
}

static void fit(const struct runs_table *t, struct table_layout *l, size_t width,
                struct text *dropped)
{
    cut_text(t, l, width, 30);
    for (size_t i = t->num_columns; i-- > 0 && total_width(t, l) > width;)
        if (is_setting(t->columns[i])) drop_column(t, l, i, dropped);
    cut_text(t, l, width, 10);
    for (size_t i = t->num_columns; i-- > 1 && total_width(t, l) > width;)
        if (l->widths[i]) drop_column(t, l, i, dropped);
    cut_text(t, l, width, 1);
}

static void add_padded(struct text *out, const char *cell, size_t width, bool is_left)
{
    size_t own = printable_width(cell);
    if (!is_left && own < width) text_addf(out, "%*s", (int)(width - own), "");
    printable_fit(out, cell, is_left || own > width ? width : own);
}

static void end_line(struct text *out)
{
    while (out->len && out->data[out->len - 1] == ' ') out->data[--out->len] = 0;
    text_adds(out, "\n");
}

void runs_table_text(const struct runs_table *t, size_t width, struct text *out,
                     struct text *dropped)
{
    struct text cell = {0};
    struct table_layout l = {heap(t->num_columns * sizeof *l.widths),
                             heap(t->num_columns * sizeof *l.is_left)};
    measure(t, &l);
    if (width) fit(t, &l, width, dropped);
    for (size_t r = 0; r <= t->num_rows; r++) { /* row 0: the headings */
        bool is_first = true;
        for (size_t i = 0; i < t->num_columns; i++) {
            if (!l.widths[i]) continue;
            if (r) format_cell(t, t->rows[r - 1], t->columns[i], &cell);
            if (!is_first) text_adds(out, "  ");
            add_padded(out, r ? cell.data : heading(t, i), l.widths[i], l.is_left[i]);
            is_first = false;
        }
        end_line(out);
    }
    free(l.widths), free(l.is_left);
    text_release(&cell);
}

/* With as many digits as a float needs. */
static void add_number(struct text *out, double number)
{
    if (isnan(number))
        text_adds(out, "nan");
    else if (number == floor(number) && fabs(number) < 1e15)
        text_addf(out, "%.0f", number);
    else
        text_addf(out, "%.9g", number);
}

static void add_csv_text(struct text *out, const char *string)
{
    bool quotes = strpbrk(string, ",\"\r\n") || *string == ' ';
    if (quotes) text_adds(out, "\"");
    for (; *string; string++) text_addf(out, "%s%c", *string == '"' ? "\"" : "", *string);
    if (quotes) text_adds(out, "\"");
}

void runs_table_csv(const struct runs_table *t, struct text *out)
{
    for (size_t i = 0; i < t->num_columns; i++) {
        if (i) text_adds(out, ",");
        add_csv_text(out, t->columns[i]);
    }
    text_adds(out, "\r\n");
    for (size_t r = 0; r < t->num_rows; r++) {
        for (size_t i = 0; i < t->num_columns; i++) {
            const struct run_cell c = run_cell_of(t->rows[r], t->columns[i], t->now_s);
            if (i) text_adds(out, ",");
            if (c.text)
                add_csv_text(out, c.text);
            else if (c.kind)
                add_number(out, c.number);
        }
        text_adds(out, "\r\n");
    }
}

static void write_cell(struct json_writer *w, const char *column, const struct run_cell *c)
{
    struct text number = {0};
    if (c->kind == RUN_CELL_number && isfinite(c->number)) {
        add_number(&number, c->number);
        json_write_raw(w, column, number.data);
    } else if (c->text && (!strcmp(c->text, "true") || !strcmp(c->text, "false"))) {
        json_write_bool(w, column, c->text[0] == 't');
    } else {
        json_write_string(w, column, c->text);
    }
    text_release(&number);
}

void runs_table_json(const struct runs_table *t, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_array(&w, NULL, JSON_INLINE);
    for (size_t r = 0; r < t->num_rows; r++) {
        if (r) json_newline(&w, 1);
        json_begin_object(&w, NULL, JSON_INLINE);
        for (size_t i = 0; i < t->num_columns; i++) {
            const struct run_cell c = run_cell_of(t->rows[r], t->columns[i], t->now_s);
            write_cell(&w, t->columns[i], &c);
        }
        json_end_object(&w);
    }
    json_end_array(&w);
    json_finish(&w);
    text_adds(out, "\n");
}
