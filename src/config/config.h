/* config.h -- the whole configuration: all rooms' options in one struct.
 *
 * Order    Later values override earlier ones: defaults, the TOML file, then section.key=value
 *          from the command line.
 * Memory   A config owns its strings until config_release. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "config/options.h"
#include "data/row_split.h"
#include "parallel/elastic.h"
#include "parallel/mesh.h"
#include "parallel/stages.h"

/* Loads the defaults, the file (NULL: no file), then `settings` ("section.key=value").  A path's ~/
 * becomes $HOME/.  CONFIG: the message has file:line:column, key, value, the allowed values and a
 * suggestion.  MISSING: the file does not exist.
 * torchtitan's keys that change no result are accepted, and one log line lists them; those that
 * would change it are errors unless config.accept_loss names them. */
enum status config_load(struct config *c, const char *path, const char *const *settings,
                        int num_settings);
void config_release(struct config *c);

/* Sets one key from text, as on the command line.  `origin` names who set it, for config show.
 * CONFIG: as in config_load. */
enum status config_assign(struct config *c, const char *key, const char *value, const char *origin);

/* Where a known key was set: "FILE:line", "command line", the origin given to config_assign, or
 * "default". */
const char *config_key_origin(const struct config *c, const char *key);

/* Notes that a key of the original would change the result and is not supported; `what` has its
 * place, value and the reason. */
void config_refuse(struct config *c, const char *key, const char *what);
/* CONFIG: a noted key that config.accept_loss does not name (refusals.h). */
enum status config_check_refusals(const struct config *c);

/* Checks the rules that involve several keys, for a run of num_ranks ranks.  CONFIG: the message
 * has the keys, their values and the rule. */
enum status config_check(const struct config *c, int num_ranks);

/* Checks that the model and the batch sizes fit the mesh (parallel/fit.h).  With shape NULL only
 * the batch sizes, as config_check does.  CONFIG: the rule, and the closest values that fit. */
enum status config_fit(const struct config *c, const struct model_shape *shape,
                       const struct mesh *mesh);

/* Which reader trains on which rows, and how many rows of a step of `step_rows` each has room for:
 * whole microbatches, of which the last may have rows without labels where the rows do not divide
 * evenly. */
struct row_split config_row_split(const struct config *c, const struct mesh *mesh);
int64_t config_reader_rows(const struct config *c, const struct mesh *mesh, int64_t step_rows);
/* Rows of a full step, after a batch ramp. */
int64_t config_step_rows(const struct config *c, const struct mesh *mesh);

/* The pipeline that [parallelism] describes on that mesh, for a model of `blocks` blocks (0:
 * unknown).  CONFIG: a split point is not a block, or the layers do not divide into stages. */
struct pipeline_config {
    struct stages stages;
    struct schedule schedule; /* num_microbatches: of an optimizer step */
    int rows;                 /* of a microbatch; 0: all rows, without a pipeline */
};
enum status config_pipeline(const struct config *c, const struct mesh *mesh, int blocks,
                            struct pipeline_config *p);

/* The sums that training.determinism = "elastic" prescribes on that mesh (parallel/elastic.h). */
struct elastic config_elastic(const struct config *c, const struct mesh *mesh);

/* Whether the configuration names documents for the validation loss. */
bool config_has_validation_data(const struct config *c);

/* Writes all effective values (effective.h) as TOML; config_load reads it back to the same model.
 * With `origins` a comment after each value names its origin. */
void config_write(const struct config *c, bool origins, struct text *toml);

/* Calls each(context, "section.key", value as TOML) for every effective value; the keys of sources
 * are "data.source.0.path" and so on. */
void config_for_each(const struct config *c,
                     void (*each)(void *context, const char *key, const char *value),
                     void *context);

/* Calls each(context, "section", row) for every option of every section, those of arrays last. */
void config_for_each_option(void (*each)(void *context, const char *section,
                                         const struct option *row),
                            void *context);

/* How a run differs from its checkpoint. */
struct config_changes {
    /* A line "key: old -> new (CLASS)" for each setting that differs and may change results: not
     * those of [job], [metrics], [profiling], [checkpoint], [device], [config] and [comm], nor
     * data.accept_changed.  CLASS is what a resumed run does: it continues, restarts the source, or
     * refuses the change. */
    struct text lines;
    /* "key was old, is new" for each change that the resume refuses, separated by "; ". */
    struct text refused;
    struct text names;   /* of those that checkpoint.accept_changed may name, as items in TOML */
    bool is_other_model; /* one of them gives the weights other shapes */
    bool is_other_data;  /* one of them is refused unless the data start over */
};

/* A configuration and the shape of its model.  NULL: unknown; never the new configuration. */
struct config_model {
    const struct config *config;
    const struct model_shape *shape;
};

/* Compares them.  With both shapes, their sizes are compared instead of the options of [model] that
 * determine them, so that it does not matter whether a file or a flavor sets a size. */
void config_compare(const struct config_model *old, const struct config_model *now,
                    struct config_changes *out);
void config_changes_release(struct config_changes *x);
/* CONFIG: checkpoint.accept_changed names a key whose change cannot be accepted. */
enum status config_check_accepted(const struct config *c);

/* Help, bounds, default, unit and aliases of one key.  CONFIG: unknown key, with a suggestion. */
enum status config_explain(const char *key, struct text *out);
/* Writes docs/options.md from the same tables. */
void config_document(struct text *markdown);
/* Writes llamero.toml(5) from the same tables, as the source of a man page. */
void config_write_man(struct text *roff);
