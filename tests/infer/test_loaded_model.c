// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "infer/loaded_model.h"

TEST(a_model_is_found_in_a_folder_of_its_own_and_in_a_run)
{
    const char *folder = test_folder();
    char *config = file_join(folder, "config.json"), *found;
    CHECK_STATUS(MISSING, loaded_model_find(folder, comm_self(), &found));
    CHECK_STATUS(OK, file_write(config, "{}", 2));
    CHECK_STATUS(OK, loaded_model_find(folder, comm_self(), &found));
    CHECK(!strcmp(found, folder));
    free(found), free(config);
    char *corpus = file_join(folder, "corpus.txt"), *run = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    runs_write_corpus(corpus, 40000);
    runs_write_config(run, corpus);
    CHECK(runs_train(run, dump, "training.steps=12", NULL) == 0);
    CHECK_STATUS(OK, loaded_model_find(dump, comm_self(), &found));
    CHECK(strstr(found, "step-12"));
    free(found), free(corpus), free(run), free(dump);
}

static struct parallelism_config layout(int64_t pp, int64_t replicate, int64_t shard, int64_t cp,
                                        int64_t tp)
{
    return (struct parallelism_config){.data_parallel_replicate_degree = replicate,
                                       .data_parallel_shard_degree = shard,
                                       .tensor_parallel_degree = tp,
                                       .pipeline_parallel_degree = pp,
                                       .context_parallel_degree = cp};
}

static bool has(const struct parallelism_config *p, int64_t replicate, int64_t shard, int64_t tp)
{
    return p->data_parallel_replicate_degree == replicate &&
           p->data_parallel_shard_degree == shard && p->tensor_parallel_degree == tp &&
           p->pipeline_parallel_degree == 1 && p->context_parallel_degree == 1;
}

TEST(inference_layout_turns_stages_and_context_ranks_into_shards)
{
    struct parallelism_config p = layout(2, 2, 4, 2, 8);
    loaded_model_choose_layout(&p, false, 256);
    CHECK(has(&p, 2, 16, 8));
    p = layout(2, 1, -1, 1, 2);
    loaded_model_choose_layout(&p, false, 8);
    CHECK(has(&p, 1, -1, 2));
}

TEST(inference_layout_falls_back_to_fsdp_unless_one_is_requested)
{
    struct parallelism_config p = layout(2, 2, 4, 1, 8);
    loaded_model_choose_layout(&p, false, 6);
    CHECK(has(&p, 1, -1, 1));
    p = layout(1, 1, -1, 1, 4);
    loaded_model_choose_layout(&p, false, 1);
    CHECK(has(&p, 1, -1, 1));
    p = layout(1, 1, -1, 1, 4);
    loaded_model_choose_layout(&p, true, 6);
    CHECK(has(&p, 1, -1, 4));
}

TEST(shards_requested_on_the_command_line_do_not_multiply_with_the_stages_of_the_run)
{
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *run = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    struct text err = {0};
    runs_write_corpus(corpus, 4000);
    runs_write_config(run, corpus);
    CHECK(runs_train_ranks(2, run, dump, "parallelism.pipeline_parallel_degree=2 training.steps=1",
                           &err) == 0);
    CHECK(LLAMERO(NULL, &err, "eval", dump, corpus, "--batches", "1", "--ranks", "2",
                  "parallelism.data_parallel_shard_degree=2") == 0);
    text_release(&err);
    free(corpus), free(run), free(dump);
}

/* Tokens of a batch of eight rows: those of the stage of the step. */
static void check_batch(const char *model, const char *corpus, const char *tokens, bool is_guess)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "eval", model, corpus, "--batches", "1") == 0);
    CHECK(strstr(out.data, tokens));
    CHECK(is_guess == (strstr(err.data, "assuming the run's last step") != NULL));
    text_release(&out), text_release(&err);
}

TEST(a_run_converted_to_dcp_has_the_rows_of_the_data_stage_of_its_step)
{
    /* the step is saved, or, of a model only, in the folder's name or unknown; only with the step
     * is config.toml saved, too */
    static const char *const rows[] = {"tokens          256\n", "tokens          128\n"};
    static const struct {
        const char *name, *step, *option;
        int stage;
        bool is_guess;
    } cases[] = {{"first", "1", "--generation=new", 0, false},
                 {"step-1", "2", "--generation=new", 1, false},
                 {"model/step-1/", "2", "--model-only", 0, false},
                 {"model/step-2", "1", "--model-only", 1, false},
                 {"weights", "1", "--model-only", 1, true}};
    const char *folder = test_folder();
    char *corpus = file_join(folder, "corpus.txt"), *run = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    char *saved = file_join(dump, "checkpoint/step-2/config.toml");
    struct text toml = {0};
    runs_write_corpus(corpus, 4000);
    runs_write_config(run, corpus);
    CHECK(runs_train(run, dump,
                     "training.steps=2 checkpoint.interval=1 data.stage.0.at_step=1 "
                     "data.stage.0.seq_len=16",
                     NULL) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *dcp = file_join(folder, cases[i].name);
        CHECK(LLAMERO(NULL, NULL, "convert", dump, dcp, "--to", "dcp", "--step", cases[i].step,
                      cases[i].option) == 0);
        char *own = file_join(dcp, "config.toml");
        CHECK_STATUS(OK, file_read(saved, 1 << 20, &toml));
        if (!file_exists(own)) CHECK_STATUS(OK, file_write(own, toml.data, toml.len));
        free(own);
        check_batch(dcp, corpus, rows[cases[i].stage], cases[i].is_guess);
        free(dcp);
    }
    text_release(&toml);
    free(saved);
    free(corpus), free(run), free(dump);
}

TEST(bytes_of_tokens_that_are_not_utf8_are_written_as_replacement_characters)
{
    static const int32_t ids[] = {'a', '"', 0xC3, 0xA9, 0, 'b'};
    struct loaded_model l = {0};
    struct text t = {0};
    struct json_writer w = {.text = &t};
    CHECK_STATUS(OK, tokenizer_open(&l.tokenizer, "bytes", &(struct tokenizer_config){0}));
    json_begin_object(&w, NULL, JSON_INLINE);
    CHECK_STATUS(OK, loaded_model_write_text(&l, ids, 4, "all", &w));
    CHECK_STATUS(OK, loaded_model_write_text(&l, ids, 3, "cut", &w));
    CHECK_STATUS(OK, loaded_model_write_text(&l, ids + 4, 2, "nul", &w));
    CHECK_STATUS(OK, loaded_model_write_text(&l, ids, 0, "none", &w));
    json_end_object(&w);
    CHECK(!strcmp(t.data, "{\"all\": \"a\\\"\303\251\", \"cut\": \"a\\\"\\ufffd\", "
                          "\"nul\": \"\\ufffdb\", \"none\": \"\"}"));
    tokenizer_close(l.tokenizer);
    text_release(&t);
}
