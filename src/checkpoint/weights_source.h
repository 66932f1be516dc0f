/* weights_source.h -- a folder of weights opened to be loaded into a model, which it must match.
 *
 * On this rank alone. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.h"
#include "checkpoint/tensor_origins.h"

struct weights_source {
    const char *folder;
    struct model_files files;
    struct tensor_rules rules;
    struct tensor_origins origins;
    bool drops_head;     /* it has a head, and the model is tied */
    bool drops_own_head; /* that head is, or may be, different from the embedding */
};

/* Opens the files and compares names and shapes; reads no elements.  `rules` NULL: all tensors are
 * required.  `log`: warns of differences that are allowed.  Errors: those of checkpoint_load.
 * Close it even if opening fails. */
enum status weights_source_open(struct weights_source *o, const char *folder,
                                const struct checkpoint_state *s, const struct load_rules *rules,
                                bool log);
void weights_source_close(struct weights_source *o);
/* CONFIG: a tied model would lose a head that differs from the embedding.  Reads both. */
enum status weights_source_check_head(const struct weights_source *o);
/* Logs in one line which tensors are loaded, copied, left out or kept. */
void weights_source_log(const struct weights_source *o);
