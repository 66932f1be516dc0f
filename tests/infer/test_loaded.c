// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/loaded.h"

TEST(a_model_is_found_in_a_folder_of_its_own_and_in_a_run)
{
    const char *folder = test_folder();
    char *config = file_join(folder, "config.json"), *found;
    CHECK_STATUS(MISSING, loaded_folder(folder, comm_self(), &found));
    CHECK_STATUS(OK, file_write(config, "{}", 2));
    CHECK_STATUS(OK, loaded_folder(folder, comm_self(), &found));
    CHECK(!strcmp(found, folder));
    free(found), free(config);
    char *corpus = file_join(folder, "corpus.txt"), *run = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    runs_write_corpus(corpus, 40000);
    runs_write_config(run, corpus);
    CHECK(runs_train(run, dump, "training.steps=12", NULL) == 0);
    CHECK_STATUS(OK, loaded_folder(dump, comm_self(), &found));
    CHECK(strstr(found, "step-12"));
    free(found), free(corpus), free(run), free(dump);
}

static struct parallelism_config layout(int64_t pp, int64_t copies, int64_t shard, int64_t cp,
                                        int64_t tp)
{
    return (struct parallelism_config){.data_parallel_replicate_degree = copies,
                                       .data_parallel_shard_degree = shard,
                                       .tensor_parallel_degree = tp,
                                       .pipeline_parallel_degree = pp,
                                       .context_parallel_degree = cp};
}

static bool has(const struct parallelism_config *p, int64_t copies, int64_t shard, int64_t tp)
{
    return p->data_parallel_replicate_degree == copies && p->data_parallel_shard_degree == shard &&
           p->tensor_parallel_degree == tp && p->pipeline_parallel_degree == 1 &&
           p->context_parallel_degree == 1;
}

TEST(a_model_is_used_in_the_layout_it_was_trained_in_without_stages_and_cut_rows)
{
    struct parallelism_config p = layout(2, 2, 4, 2, 8);
    loaded_layout(&p, false, 256);
    CHECK(has(&p, 2, 16, 8));
    p = layout(2, 1, -1, 1, 2);
    loaded_layout(&p, false, 8);
    CHECK(has(&p, 1, -1, 2));
}

TEST(another_number_of_ranks_shares_out_the_weights_unless_a_layout_is_asked_for)
{
    struct parallelism_config p = layout(2, 2, 4, 1, 8);
    loaded_layout(&p, false, 6);
    CHECK(has(&p, 1, -1, 1));
    p = layout(1, 1, -1, 1, 4);
    loaded_layout(&p, false, 1);
    CHECK(has(&p, 1, -1, 1));
    p = layout(1, 1, -1, 1, 4);
    loaded_layout(&p, true, 6);
    CHECK(has(&p, 1, -1, 4));
}
