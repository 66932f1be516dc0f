// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"

/* Loads TOML text from run.toml, whose path appears in messages. */
static enum status load(struct config *c, const char *toml)
{
    char *path = file_join(test_folder(), "run.toml");
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    enum status st = config_load(c, path, NULL, 0);
    free(path);
    return st;
}

TEST(defaults_equal_torchtitans)
{
    struct config c;
    CHECK_STATUS(OK, config_load(&c, NULL, NULL, 0));
    CHECK(c.training.local_batch_size == 8 && c.training.seq_len == 2048);
    CHECK(c.optimizer.lr == 8e-4 && c.optimizer.beta2 == 0.95 &&
          c.lr_scheduler.warmup_steps == 200);
    CHECK(!strcmp(c.job.dump_folder, "./outputs") && c.checkpoint.keep_latest_k == 10);
    CHECK(c.model.tie_embeddings == AUTO && !c.data.num_sources);
    config_release(&c);
}

/* Sets $HOME, and returns its value before, heap; NULL: unset. */
static char *set_home(const char *folder)
{
    const char *home = getenv("HOME");
    char *before = home ? heap_strdup(home) : NULL;
    setenv("HOME", folder, 1);
    return before;
}

static void reset_home(char *before)
{
    if (before)
        setenv("HOME", before, 1);
    else
        unsetenv("HOME");
    free(before);
}

TEST(a_path_that_begins_with_a_tilde_is_below_the_home_folder)
{
    struct config c;
    char *before = set_home("/home/me/");
    const char *toml = "[job]\ndump_folder = \"~/runs\"\n[data]\ncolumn = \"~/a\"\n"
                       "accept_changed = [\"*.txt\", \"~/a/b.arrow\"]\n"
                       "[validation]\ntasks = [\"~/a\", \"b=~/c,d\", \"e\", \"f~/=g\"]\n"
                       "[[data.source]]\npath = \"~/a/*.arrow\"\n"
                       "[[data.source]]\npath = \"b/~/c\"\n[[data.source]]\npath = \"d=~/e\"\n";
    CHECK_STATUS(OK, load(&c, toml));
    CHECK(!strcmp(c.job.dump_folder, "/home/me/runs") && !strcmp(c.data.column, "~/a"));
    CHECK(!strcmp(c.data.sources[0].path, "/home/me/a/*.arrow"));
    CHECK(!strcmp(c.data.sources[1].path, "b/~/c") && !strcmp(c.data.sources[2].path, "d=~/e"));
    CHECK(c.data.accept_changed.count == 2 && c.validation.tasks.count == 4);
    CHECK(!strcmp(c.data.accept_changed.items[0], "*.txt"));
    CHECK(!strcmp(c.data.accept_changed.items[1], "/home/me/a/b.arrow"));
    CHECK(!strcmp(c.validation.tasks.items[0], "/home/me/a"));
    CHECK(!strcmp(c.validation.tasks.items[1], "b=/home/me/c,d"));
    CHECK(!strcmp(c.validation.tasks.items[2], "e"));
    CHECK(!strcmp(c.validation.tasks.items[3], "f~/=g"));
    config_release(&c);
    const char *const settings[] = {"data.tokenizer=~/tokenizer.json",
                                    "validation.tasks=a=~/b,~/c"};
    CHECK_STATUS(OK, config_load(&c, NULL, settings, 2));
    CHECK(!strcmp(c.data.tokenizer, "/home/me/tokenizer.json"));
    CHECK(!strcmp(c.validation.tasks.items[0], "a=/home/me/b"));
    CHECK(!strcmp(c.validation.tasks.items[1], "/home/me/c"));
    config_release(&c);
    reset_home(before);
}

TEST(a_home_folder_that_is_empty_or_no_path_does_not_replace_a_tilde)
{
    struct config c;
    char *before = set_home("");
    CHECK_STATUS(OK, load(&c, "[job]\ndump_folder = \"~/runs\"\n"));
    CHECK(!strcmp(c.job.dump_folder, "~/runs"));
    config_release(&c);
    setenv("HOME", "s3://me", 1);
    CHECK_STATUS(CONFIG, load(&c, "[job]\ndump_folder = \"~/runs\"\n"));
    CHECK_MESSAGE("job.dump_folder: ~ is $HOME = \"s3://me\": expected a local path, got a URL");
    config_release(&c);
    reset_home(before);
}

TEST(command_line_overrides_file_and_file_overrides_defaults)
{
    struct config c;
    char *path = file_join(test_folder(), "run.toml");
    const char *toml = "[training]\nsteps = 5\nseq_len = 64\n[[data.source]]\npath = \"a\"\n"
                       "[[data.source]]\npath = \"b\"\nweight = 2\n";
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    const char *const settings[] = {"training.steps=7", "job.dump_folder=a b",
                                    "checkpoint.exclude_from_loading=optimizer,x"};
    CHECK_STATUS(OK, config_load(&c, path, settings, 3));
    CHECK(c.training.steps == 7 && c.training.seq_len == 64);
    CHECK(!strcmp(c.job.dump_folder, "a b") && !strcmp(c.job.config_file, path));
    CHECK(c.data.num_sources == 2 && c.data.sources[1].weight == 2 &&
          c.data.sources[0].weight == 1);
    CHECK(c.checkpoint.exclude_from_loading.count == 2);
    struct text t = {0};
    config_write(&c, true, &t);
    CHECK(strstr(t.data, "# command line") && strstr(t.data, "run.toml:3"));
    text_release(&t);
    config_release(&c);
    free(path);
}

TEST(files_of_the_older_fork_load_unchanged)
{
    static const char *const files[] = {"fork-mlm-1b.toml",  "fork-8b.toml",
                                        "fork-old-1b.toml",  "fork-neuro-8b.toml",
                                        "fork-arch-2b.toml", "fork-neuro-eval.toml"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct config c;
        char *path = file_join("tests/config/data", files[i]);
        const char *accept[] = {"config.accept_loss=model.norm_type,training.token_weights"};
        bool differs = i == 2 || i == 4; /* layernorm; n_fixed */
        CHECK_STATUS(OK, config_load(&c, path, accept, differs));
        CHECK(!strcmp(c.model.name, "frontier"));
        CHECK(c.parallelism.tensor_parallel_degree == (i == 4 ? 1 : 8));
        CHECK(c.lr_scheduler.warmup_steps >= 160 && c.training.max_norm == 1);
        if (!i) {
            CHECK(c.objective.name == OBJECTIVE_masked && c.objective.mask_probability == 0.3);
            CHECK(c.training.local_batch_size == 12 && c.training.seq_len == 16384);
            CHECK(!strcmp(c.objective.mask_token, "<|reserved_special_token_100|>"));
        }
        if (i == 3) CHECK(c.model.vocab_size == 256);
        if (i == 4) CHECK(c.model.rope_theta == 10000 && c.model.vocab_size == 32000);
        if (i == 5) CHECK(c.checkpoint.interval == 60000000000000);
        config_release(&c);
        free(path);
    }
}

TEST(an_older_spelling_with_another_value_than_the_current_one_is_an_error)
{
    struct config c;
    CHECK_STATUS(CONFIG, load(&c, "[training]\nlocal_batch_size = 4\nbatch_size = 2\n"));
    CHECK_MESSAGE("run.toml:3:14: training.batch_size = 2: an older spelling of "
                  "training.local_batch_size, which is 4 in line 2; set only one");
    config_release(&c);
    CHECK_STATUS(CONFIG, load(&c, "[training]\nbatch_size = 2\nlocal_batch_size = 4\n"));
    CHECK_MESSAGE("which is 4 in line 3");
    config_release(&c);
    CHECK_STATUS(OK, load(&c, "[training]\nbatch_size = 4\nlocal_batch_size = 4\n"));
    config_release(&c);
}

TEST(errors_name_position_value_and_allowed_values)
{
    static const struct {
        const char *toml, *message;
    } cases[] = {
        {"[training]\nstep = 3\n",
         "run.toml:2:8: unknown key training.step; did you mean training.steps?"},
        {"[training]\nsteps = -1\n",
         "2:9: training.steps = -1: expected a whole number (steps) from 0"},
        {"[training]\nsteps = 1.5\n", "training.steps = 1.5: expected a whole number"},
        {"[training]\nsteps = \"10\"\n", "training.steps = \"10\": expected a whole number"},
        {"[training]\nseq_len = 0\n", "from 1"},
        {"[training]\nlocal_batch_size = true\n", "= true"},
        {"[training]\ndtype = \"fp32\"\n",
         "run.toml:2:9: training.dtype = \"fp32\": master weights are"},
        {"[training]\nmax_norm = -1\n", "training.max_norm"},
        {"[training]\nbatchsize = 1\n", "unknown key training.batchsize"},
        {"[trainig]\nsteps = 1\n", "did you mean training.steps?"},
        {"steps = 1\n", "unknown key steps"},
        {"[model]\ndim = \"wide\"\n", "model.dim"},
        {"[model]\nn_layer = 2\n", "did you mean model.n_layers?"},
        {"[model]\ntie_embeddings = \"yes\"\n", "true, false or \"auto\""},
        {"[model]\nrope_scaling = \"ntk\"\n",
         "auto, none, llama3, linear, dynamic, yarn or longrope"},
        {"[model]\nnorm_type = \"batchnorm\"\n", "normalization is RMSNorm"},
        {"[optimizer]\nname = \"Adam\"\n", "AdamW or Muon"},
        {"[optimizer]\nlr = \"3e-4\"\n", "expected a number"},
        {"[optimizer]\nbeta1 = 1.1\n", "from 0 to 1"},
        {"[optimizer]\nlearning_rate = 1\n", "unknown key"},
        {"[lr_scheduler]\ndecay_type = \"exp\"\n",
         "linear, sqrt, cosine, exponential or inverse_sqrt"},
        {"[lr_scheduler]\nwarmup_step = 1\n", "did you mean lr_scheduler.warmup_steps?"},
        {"[checkpoint]\nasync_mode = \"yes\"\n", "disabled, async"},
        {"[checkpoint]\nexclude_from_loading = \"optimizer\"\n", "an array of strings"},
        {"[checkpoint]\nexclude_from_loading = [1]\n", "an array of strings"},
        {"[checkpoint]\nenable = 1\n", "true or false"},
        {"[data]\ntokenizer = 1\n", "a string"},
        {"[data]\nstreams = 0\n", "from 1"},
        {"[data]\nvalidation_share = 0.9\n", "to 0.5"},
        {"[data]\nsource = \"a.txt\"\n", "[[data.source]]"},
        {"[data]\nsource = [1]\n", "[[data.source]]"},
        {"[[data.source]]\nweight = 1\n", "path is required in [[data.source]]"},
        {"[[data.source]]\npath = \"a\"\nwight = 1\n", "unknown key data.source.wight"},
        {"[[data.source]]\npath = 3\n", "data.source.path = 3"},
        {"[[data.source]]\npath = \"a\"\nweight = -1\n", "data.source.weight"},
        {"[objective]\nname = \"prefix\"\n", "causal, masked or diffusion"},
        {"[objective]\nmask_probability = 2\n", "from 0 to 1"},
        {"[device]\nkind = \"tpu\"\n", "auto, cpu, cuda or hip"},
        {"[device]\nthreads = -1\n", "from 0"},
        {"[guard]\nnonfinite = \"ignore\"\n", "stop, skip or rollback"},
        {"[metrics]\nlog_freq = 0\n", "from 1"},
        {"[metrics]\nlogfreq = 1\n", "did you mean metrics.log_freq?"},
        {"[validation]\nfreq = 0\n", "from 1"},
        {"[parallelism]\ntensor_parallel_degree = 0\n", "from 1"},
        {"[activation_checkpoint]\nmode = \"some\"\n", "none, selective, full or memory_budget"},
        {"[debug]\nseed = -1\n", "from 0"},
        {"[tokenizer]\nmeta_cuts = 1\n", "true or false"},
        {"[profiling]\nprofile_freq = 0\n", "from 1"},
        {"[job]\ndump_folder = 1\n", "a string"},
        {"[unknown]\nx = 1\n", "unknown key unknown.x"},
        {"[training.extra]\nx = 1\n", "unknown key training.extra.x"},
        {"[training]\nsteps = 1\nsteps = 2\n", "run.toml:3:7: \"steps\" is already defined"},
        {"[training\nsteps = 1\n", "expected ] after the name"},
        {"[training]\nsteps 1\n", "expected = after the key"},
        {"[training]\nsteps = \n", "expected a value"},
        {"[training]\nsteps = 1e\n", "not a valid TOML value"},
        {"[training]\nbatch_size = 0\n", "training.batch_size = 0"},
        {"[training]\nwarmup_steps = -1\n", "training.warmup_steps = -1"},
        {"[checkpoint]\nenable_checkpoint = \"no\"\n", "true or false"},
        {"[checkpoint]\nkeep_latest_k = 1.0\n", "a whole number"},
        {"[checkpoint]\ninterval_type = \"minutes\"\n", "steps or seconds"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        enum status st = load(&c, cases[i].toml);
        if (st != STATUS_CONFIG || !strstr(status_message(), cases[i].message))
            fail_msg("%s gave %s: %s", cases[i].toml, status_name(st), status_message());
        config_release(&c);
    }
}

TEST(wrong_command_line_settings_are_errors)
{
    static const struct {
        const char *setting, *message;
    } cases[] = {
        {"training.steps=x", "command line: training.steps=x: expected a whole number"},
        {"training.stepz=1", "did you mean training.steps?"},
        {"training.dtype=half", "config.accept_loss=training.dtype\n"},
        {"training.steps", "expected section.key=value"},
        {"optimizer.lr=", "expected a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        CHECK_STATUS(CONFIG, config_load(&c, NULL, &cases[i].setting, 1));
        CHECK_MESSAGE(cases[i].message);
        config_release(&c);
    }
    struct config c;
    CHECK_STATUS(MISSING, config_load(&c, "/nowhere/run.toml", NULL, 0));
    config_release(&c);
}

TEST(torchtitans_keys_without_meaning_here_are_accepted)
{
    struct config c;
    CHECK_STATUS(OK, load(&c, "[compile]\nenable = true\ncomponents = [\"model\"]\n[comm]\n"
                              "trace_buf_size = 0\n[quantize.linear.float8]\nemulate = true\n"
                              "[training.dataloader]\nnum_workers = 4\n[float8]\n"
                              "enable_float8_linear = false\n[fault_tolerance]\nenable = false\n"));
    config_release(&c);
}

TEST(keys_that_change_the_result_are_errors_unless_accepted)
{
    static const char *const rows[][2] = {
        {"[training]\ntoken_weights = \"w.pt\"\n", "training.token_weights"},
        {"[training]\ndtype = \"bfloat16\"\n", "training.dtype"},
        {"[model]\nnorm_type = \"layernorm\"\n", "model.norm_type"},
        {"[fault_tolerance]\nenable = true\n", "fault_tolerance.enable"},
        {"[optimizer]\nearly_step_in_backward = true\n", "optimizer.early_step_in_backward"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct config c;
        struct text toml = {0}, line = {0}, saved = {0};
        text_addf(&line, "[config]\n  accept_loss = [\"%s\"]", rows[i][1]);
        CHECK_STATUS(CONFIG, load(&c, rows[i][0]));
        CHECK_MESSAGE(line.data);
        CHECK_MESSAGE("run.toml:2:");
        config_release(&c);
        text_addf(&toml, "%s\n%s", line.data, rows[i][0]);
        CHECK_STATUS(OK, load(&c, toml.data));
        config_write(&c, false, &saved); /* kept in config.toml */
        CHECK(strstr(saved.data, rows[i][1]));
        config_release(&c);
        text_release(&toml), text_release(&line), text_release(&saved);
    }
    struct config c; /* the values that Llamero implements */
    CHECK_STATUS(OK,
                 load(&c, "[training]\ndtype = \"float32\"\n[model]\n"
                          "norm_type = \"fused_rmsnorm\"\n[fault_tolerance]\nenable = false\n"));
    config_release(&c);
}

TEST(sources_can_be_set_on_the_command_line)
{
    struct config c;
    const char *const two[] = {"data.column=body",           "data.source.0.path=a.jsonl",
                               "data.source.1.path=b.jsonl", "data.source.1.weight=3",
                               "data.source.1.column=text",  "data.source.0.motif_neurons=7"};
    CHECK_STATUS(OK, config_load(&c, NULL, two, 6));
    CHECK(c.data.num_sources == 2 && !strcmp(c.data.sources[0].path, "a.jsonl"));
    CHECK(!strcmp(c.data.sources[0].column, "body") && !strcmp(c.data.sources[1].column, "text"));
    CHECK(c.data.sources[1].weight == 3 && c.data.sources[0].neurons == 7);
    config_release(&c);
    /* one of a named mixture */
    const char *const named[] = {"data.source.4.path=stack", "training.dataset=full"};
    CHECK_STATUS(OK, config_load(&c, NULL, named, 2));
    CHECK(c.data.num_sources == 6 && !strcmp(c.data.sources[4].path, "stack"));
    CHECK(!strcmp(c.data.sources[4].column, "files[].text"));
    config_release(&c);
    static const struct {
        const char *setting, *message;
    } wrong[] = {
        {"data.source.1.path=a", "the configuration has 0 [[data.source]]: N must be from 0 to 0"},
        {"data.source.0.pth=a", "unknown key data.source.0.pth"},
        {"data.source.0.weight=x", "data.source.0.weight=x: expected a number"},
        {"data.source.0.weight=1", "data.source.0.path is required"},
        {"data.source.path=a", "expected data.source.N.key"},
        {"data.source.0=a", "expected data.source.N.key"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(CONFIG, config_load(&c, NULL, &wrong[i].setting, 1));
        CHECK_MESSAGE(wrong[i].message);
        config_release(&c);
    }
}

TEST(flavors_with_flexible_attention_mask_documents)
{
    struct config c;
    static const char *const flavors[] = {"model.flavor=8B_flex", "model.flavor=8B_varlen",
                                          "model.flavor=debugmodel_flex_attn", "model.flavor=8B"};
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(OK, config_load(&c, NULL, &flavors[i], 1));
        CHECK(c.model.attn_mask_type == (i < 3 ? ATTN_MASK_block_causal : ATTN_MASK_causal));
        config_release(&c);
    }
    CHECK_STATUS(
        OK,
        config_load(&c, NULL, (const char *const[]){flavors[0], "model.attn_mask_type=causal"}, 2));
    CHECK(c.model.attn_mask_type == ATTN_MASK_causal);
    config_release(&c);
}
