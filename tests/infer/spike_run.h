/* spike_run.h -- a model of spike counts, trained briefly, and the answers of commands about it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "system/runs.h"

static const char spike_train[] = "tests/data/spikes/rodent/train-*.parquet";
static const char spike_test[] = "tests/data/spikes/rodent/test-*.parquet";

static inline char *spike_run(const char *settings)
{
    const char *folder = test_folder();
    char *config = file_join(folder, "run.toml"), *dump = file_join(folder, "out");
    struct text t = {0};
    text_addf(&t,
              "[model]\ndim = 32\nn_layers = 2\nn_heads = 4\nn_kv_heads = 2\nffn_hidden = 64\n"
              "vocab_size = 256\nrope_theta = 10000\n"
              "[[data.source]]\npath = \"%s\"\ncolumn = \"spike_counts\"\n"
              "[training]\nseq_len = 64\nlocal_batch_size = 4\nsteps = 250\n"
              "mixed_precision_param = \"float32\"\n"
              "[optimizer]\nlr = 1e-2\n[lr_scheduler]\nwarmup_steps = 10\n"
              "[validation]\nenable = true\ndataset_path = \"%s\"\ncolumn = \"spike_counts\"\n"
              "freq = 1000\nlocal_batch_size = 4\n"
              "[device]\nthreads = 1\n"
              "[checkpoint]\nenable = true\ninterval = 1000\n",
              spike_train, spike_test);
    CHECK_STATUS(OK, file_write(config, t.data, t.len));
    CHECK(runs_train(config, dump, settings, NULL) == 0);
    text_release(&t);
    free(config);
    return dump;
}

static inline struct json *spike_answer(const struct text *out)
{
    struct json *v;
    CHECK_STATUS(OK, json_parse(out->data, out->len, "answer", &v));
    return v;
}

static inline double spike_number(const struct json *v, const char *key)
{
    CHECK(json_is_number(json_get(v, key)));
    return json_number(json_get(v, key));
}
