/* config.h -- the whole configuration: every room's options, joined.
 *
 * Order    Defaults, then the TOML file, then section.key=value of the command line.
 * Memory   A config owns its strings until config_release. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint_config.h"
#include "config/run_config.h"
#include "data/data_config.h"
#include "metrics/metrics_config.h"
#include "model/model_shape.h"
#include "optim/optim_config.h"
#include "parallel/mesh.h"
#include "parallel/stages.h"
#include "tensor/device_config.h"
#include "tokenizer/tokenizer_config.h"

struct config {
    struct job_config job;
    struct profiling_config profiling;
    struct metrics_config metrics;
    struct model_config model;
    struct optimizer_config optimizer;
    struct lr_scheduler_config lr_scheduler;
    struct training_config training;
    struct parallelism_config parallelism;
    struct checkpoint_config checkpoint;
    struct activation_checkpoint_config activation_checkpoint;
    struct float8_config float8;
    struct validation_config validation;
    struct debug_config debug;
    struct data_config data;
    struct tokenizer_config tokenizer;
    struct objective_config objective;
    struct guard_config guard;
    struct device_config device;
    struct config_book *book; /* strings, and where each value came from; config.c's own */
};

/* Defaults, the file (NULL: none), then `settings` ("section.key=value").  CONFIG:
 * file:line:column, the key, the value, what is allowed, the nearest name.  MISSING: no such file.
 * Keys of torchtitan's that mean nothing here are accepted, and one log line says that they do
 * nothing. */
enum status config_load(struct config *c, const char *path, const char *const *settings,
                        int num_settings);
void config_release(struct config *c);

/* One key set from text, as on a command line; `origin` says who did.  CONFIG as above. */
enum status config_assign(struct config *c, const char *key, const char *value, const char *origin);

/* Rules that join several keys; `num_ranks` 1 alone.  CONFIG: which keys, their values, the rule.
 */
enum status config_check(const struct config *c, int num_ranks);

/* Whether the model and the batches fit the mesh, by the rules of parallel/fit.h; shape NULL: the
 * batches alone, which config_check does, too.  CONFIG: which rule, and what would fit. */
enum status config_fit(const struct config *c, const struct model_shape *shape,
                       const struct mesh *mesh);

/* The pipeline that [parallelism] asks for on that mesh, for a model of so many blocks (0: not
 * known). CONFIG: split points that are no blocks, or layers that do not make whole stages. */
struct pipeline_config {
    struct stages stages;
    struct schedule schedule; /* micros: of an optimizer step */
    int rows;                 /* of a micro-batch; 0: all of them, as nothing is cut */
};
enum status config_pipeline(const struct config *c, const struct mesh *mesh, int blocks,
                            struct pipeline_config *p);

/* Every effective value as TOML that config_load reads back to the same configuration.  With
 * `origins` a comment behind each says where it came from. */
void config_write(const struct config *c, bool origins, struct text *toml);

/* One key's help, bounds, default, unit and aliases; CONFIG: no such key (the nearest is named). */
enum status config_explain(const char *key, struct text *out);
/* docs/options.md, from the same tables. */
void config_document(struct text *markdown);
