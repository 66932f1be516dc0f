/* tensor_origins.h -- where each tensor of a model comes from when a folder is loaded into it: the
 * folder's tensor of that name, for an untied model's head the embedding of a tied one, or the
 * model's own initialization. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/option.h"
#include "checkpoint/interop/model_files.h"

enum tensor_origin {
    ORIGIN_FILE,      /* the tensor of that name */
    ORIGIN_EMBEDDING, /* a head: the folder's embedding */
    ORIGIN_EXCLUDED,  /* initialization: the user excluded it */
    ORIGIN_MISSING,   /* initialization: the folder, which may be partial, lacks it */
    ORIGIN_COUNT
};

struct tensor_rules {
    const struct option_list *exclude; /* names, * matches any text; may be NULL */
    bool partial;                      /* a partial model: tensors may be missing */
    bool tied;                         /* the folder's head is, or may be, its embedding */
    uint32_t omitted; /* kinds of weights (a set, params.h) to leave out: ORIGIN_EXCLUDED */
};

struct tensor_origins {
    const struct layout *layout;     /* borrowed */
    const struct model_files *files; /* borrowed */
    enum tensor_origin *of;          /* of each tensor of the layout; owned */
    struct tensor_reader *readers;   /* of each tensor; open if it comes from a file; owned */
};

/* Whether the list names the tensor or part, or matches it. */
bool tensor_origins_excludes(const struct option_list *exclude, const char *name);

/* CONFIG: an item of checkpoint.exclude_from_loading is neither a part nor matches a tensor. */
enum status tensor_origins_check_excluded(const struct option_list *exclude,
                                          const struct layout *l);

/* Finds the origin of every tensor, in the model's order; `suffix` follows the names ("", or a
 * moment's).  Reads no elements.  CONFIG: a tensor is missing; or it has another shape, and the
 * message names both shapes and the keys to set. */
enum status tensor_origins_find(struct tensor_origins *o, const struct model_files *files,
                                const struct layout *l, const char *suffix,
                                const struct tensor_rules *rules);
void tensor_origins_release(struct tensor_origins *o);

int tensor_origins_count(const struct tensor_origins *o, enum tensor_origin origin);
/* Appends the names of the tensors of that origin, in the model's order, consecutive whole blocks
 * as "model.layers.0-15.*". */
void tensor_origins_list(const struct tensor_origins *o, enum tensor_origin origin,
                         struct text *out);
