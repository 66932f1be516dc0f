// SPDX-License-Identifier: Apache-2.0
#include "config/datasets.h"

#include "base/file.h"
#include "config/book.h"

#include <string.h>
#include <strings.h>

/* Which programs' files use the name in this sense. */
enum dataset_origin { DATASET_ANY, DATASET_TORCHTITAN, DATASET_FORK };

static const struct dataset {
    const char *name;
    enum dataset_origin origin;
    const char *path, *column;
    double weight;
} datasets[] = {
#define DATASET(...) {__VA_ARGS__},
#include "config/datasets.def"
#undef DATASET
};
enum { NUM_DATASETS = sizeof datasets / sizeof *datasets };

/* torchtitan compares names in lower case. */
static bool matches(const struct dataset *d, const char *name, bool is_fork)
{
    enum dataset_origin other = is_fork ? DATASET_TORCHTITAN : DATASET_FORK;
    return !strcasecmp(d->name, name) && d->origin != other;
}

static bool holds_counts(const struct dataset *d) { return !strcmp(d->column, "spike_counts"); }

static const struct dataset *find_dataset(const char *name, bool is_fork, size_t *count)
{
    const struct dataset *first = NULL;
    *count = 0;
    for (size_t i = 0; i < NUM_DATASETS; i++) {
        if (!matches(&datasets[i], name, is_fork)) continue;
        if (!first) first = &datasets[i];
        ++*count;
    }
    return first;
}

static enum status fail_unknown_name(const char *key, const char *name)
{
    struct text known = {0};
    for (size_t i = 0; i < NUM_DATASETS; i++) {
        bool repeated = i && !strcmp(datasets[i].name, datasets[i - 1].name);
        if (!repeated) text_addf(&known, "%s%s", known.len ? ", " : "", datasets[i].name);
    }
    enum status st =
        FAILURE(CONFIG, "%s = \"%s\": unknown data set; expected one of %s, or set %s_path", key,
                name, known.data, key);
    text_release(&known);
    return st;
}

/* The separator is the last ID of the vocabulary in gpt-neuro, 255 or the one after the motifs
 * here. */
static enum status check_vocabulary(struct config *c)
{
    if (file_has_suffix(c->model.tokenizer_path, ".pkl"))
        return STATUS_OK; /* checked with the file */
    if (!c->model.vocab_size) c->model.vocab_size = 256;
    if (c->model.vocab_size == 256) return STATUS_OK;
    FAIL(CONFIG,
         "training.dataset = \"%s\" holds spike counts: set model.vocab_size = 256 (is %lld), or "
         "model.tokenizer_path to the .pkl file of motifs",
         c->training.dataset, (long long)c->model.vocab_size);
}

/* gpt-neuro-arch's keys, of which its synthetic data ignores all. */
static void describe_counts(const struct config *c, struct source_config *s)
{
    if (!strcmp(s->path, "synthetic-spikes")) return;
    if (file_has_suffix(c->model.tokenizer_path, ".pkl")) s->motifs = c->model.tokenizer_path;
    s->neurons = c->training.n_fixed;
    if (!strcmp(c->training.source_dataset, "all")) return;
    s->filter_column = "source_dataset", s->filter_value = c->training.source_dataset;
}

/* The sources of a name; with a path of the user's own, its only source reads that. */
static enum status set_sources(struct config *c, const struct dataset *d, size_t count,
                               bool is_fork)
{
    const char *path = c->training.dataset_path;
    if (path[0] && count > 1) return STATUS_OK;
    if (path[0] && !holds_counts(d)) return STATUS_OK;
    if (holds_counts(d)) TRY(check_vocabulary(c));
    c->data.sources = heap(count * sizeof *c->data.sources);
    for (size_t i = 0; i < NUM_DATASETS; i++) {
        if (!matches(&datasets[i], d->name, is_fork)) continue;
        struct source_config *s = &c->data.sources[c->data.num_sources++];
        TRY(config_set_defaults(&config_arrays[ARRAY_source].element, s));
        s->path = path[0] ? path : datasets[i].path;
        s->column = datasets[i].column;
        s->weight = datasets[i].weight;
        if (holds_counts(d)) describe_counts(c, s);
    }
    c->training.dataset_path = "";
    if (!holds_counts(d)) return STATUS_OK;
    if (file_has_suffix(c->model.tokenizer_path, ".pkl")) c->model.tokenizer_path = "";
    if (book_is_default(c->book, "data.shuffle_window"))
        c->data.shuffle_window = 1; /* rows are shuffled */
    return STATUS_OK;
}

static enum status resolve_training(struct config *c, bool is_fork)
{
    struct training_config *t = &c->training;
    size_t count;
    if (!t->dataset[0] || c->data.num_sources) return STATUS_OK;
    const struct dataset *d = find_dataset(t->dataset, is_fork, &count);
    if (!d && t->dataset_path[0]) return STATUS_OK;
    if (!d) return fail_unknown_name("training.dataset", t->dataset);
    return set_sources(c, d, count, is_fork);
}

static enum status resolve_validation(struct config *c, bool is_fork)
{
    struct validation_config *v = &c->validation;
    bool holds_out = c->data.validation_share > 0 || c->data.order == ORDER_megatron;
    size_t count;
    if (!v->enable || !v->dataset[0] || v->dataset_path[0] || holds_out) return STATUS_OK;
    const struct dataset *d = find_dataset(v->dataset, is_fork, &count);
    if (!d) return fail_unknown_name("validation.dataset", v->dataset);
    if (count > 1 || holds_counts(d))
        FAIL(CONFIG, "validation.dataset = \"%s\" names training data: set validation.dataset_path",
             v->dataset);
    v->dataset_path = d->path, v->column = d->column;
    return STATUS_OK;
}

enum status datasets_resolve(struct config *c, bool is_fork)
{
    TRY(resolve_training(c, is_fork));
    return resolve_validation(c, is_fork);
}

/* Calls `each` for every row; `where` distinguishes two meanings of a name. */
static void each_dataset(void (*each)(struct text *out, const struct dataset *d, const char *where),
                         struct text *out)
{
    static const char *const origins[] = {[DATASET_ANY] = "",
                                          [DATASET_TORCHTITAN] = " (torchtitan)",
                                          [DATASET_FORK] = " (the older fork)"};
    for (size_t i = 0; i < NUM_DATASETS; i++) each(out, &datasets[i], origins[datasets[i].origin]);
}

static void explain_dataset(struct text *out, const struct dataset *d, const char *where)
{
    text_addf(out, "    %s%s: %s, column %s, weight %g\n", d->name, where, d->path, d->column,
              d->weight);
}

void datasets_explain(struct text *out)
{
    text_adds(out, "  names:\n");
    each_dataset(explain_dataset, out);
}

static void document_dataset(struct text *out, const struct dataset *d, const char *where)
{
    text_addf(out, "| `%s`%s | `%s` | `%s` | %g |\n", d->name, where, d->path, d->column,
              d->weight);
}

void datasets_document(struct text *markdown)
{
    text_adds(
        markdown,
        "\n## Names of data sets\n\n`training.dataset` and `validation.dataset`; a name with "
        "several rows is their mixture.\n\n| name | path | column | weight |\n|---|---|---|---|\n");
    each_dataset(document_dataset, markdown);
}
