// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "app/preflight.h"

static enum status fly(struct preflight *p, const char *setting, int ranks)
{
    const char *folder = test_folder(), *corpus = test_path(folder, "corpus.jsonl");
    const char *path = test_path(folder, "run.toml");
    struct config c;
    runs_write_corpus(corpus, 300);
    runs_write_config(path, corpus);
    CHECK_STATUS(OK, config_load(&c, path, &setting, 1));
    enum status st = preflight(p, &c, ranks);
    preflight_release(p);
    config_release(&c);
    return st;
}

TEST(preflight_resolves_the_mesh_and_the_model)
{
    struct preflight p;
    CHECK_STATUS(OK, fly(&p, "model.dim=64", 2));
    CHECK(p.mesh.degree[AXIS_dp_shard] == 2 && p.shape.D == 64 && p.shape.V == 259);
}

TEST(preflight_finds_conflicts_of_ranks_model_and_data)
{
    struct preflight p;
    CHECK_STATUS(CONFIG, fly(&p, "parallelism.tensor_parallel_degree=3", 2));
    CHECK_MESSAGE("number of ranks, 2");
    CHECK_STATUS(OK, fly(&p, "parallelism.tensor_parallel_degree=2", 2)); /* 259 tokens */
    CHECK_STATUS(OK, fly(&p, "data.streams=3", 2));
    CHECK_STATUS(MISSING, fly(&p, "data.tokenizer=/nowhere.model", 1));
}
