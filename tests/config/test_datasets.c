// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"
#include "config/datasets.h"

/* Loads TOML text and settings. */
static enum status load(struct config *c, const char *toml, const char *const *settings, int count)
{
    char *path = file_join(test_folder(), "run.toml");
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    enum status st = config_load(c, path, settings, count);
    free(path);
    return st;
}

static void check_source(const struct config *c, size_t i, const char *path, double weight)
{
    const struct source_config *s = &c->data.sources[i];
    if (strcmp(s->path, path)) fail_msg("source %zu is %s, expected %s", i, s->path, path);
    CHECK(s->weight == weight);
}

/* The probabilities are frontier-torchtitan's, in the order of its list. */
TEST(full_is_the_forks_mixture_of_six_sources)
{
    struct config c;
    char *path = file_join("tests/config/data", "fork-8b.toml");
    CHECK_STATUS(OK, config_load(&c, path, NULL, 0));
    CHECK(!strcmp(c.training.dataset, "full") && c.data.num_sources == 6);
    check_source(&c, 0, "hf://datasets/Zyphra/Zyda-2/data/dclm_crossdeduped/*/*.parquet", 0.40);
    check_source(&c, 1, "hf://datasets/Zyphra/Zyda-2/data/fwe3/*/*.parquet", 0.44);
    check_source(&c, 2, "hf://datasets/Zyphra/Zyda-2/data/dolma-cc_crossdeduped-filtered/*.parquet",
                 0.03);
    check_source(&c, 3, "hf://datasets/Zyphra/Zyda-2/data/zyda_crossdeduped-filtered/*/*.parquet",
                 0.02);
    check_source(&c, 4, "/lustre/orion/stf218/scratch/emin/huggingface/stack_v2_smol", 0.10);
    check_source(&c, 5, "hf://datasets/HuggingFaceTB/finemath/finemath-3plus/*.parquet", 0.01);
    for (size_t i = 0; i < 6; i++)
        CHECK(!strcmp(c.data.sources[i].column, i == 4 ? "files[].text" : "text"));
    CHECK_STATUS(OK, config_check(&c, 512));
    config_release(&c);
    free(path);
}

TEST(c4_means_english_in_torchtitan_and_news_in_the_fork)
{
    struct config c;
    CHECK_STATUS(OK, load(&c, "[training]\ndataset = \"C4\"\n", NULL, 0));
    check_source(&c, 0, "hf://datasets/allenai/c4/en/c4-train.*.json.gz", 1);
    CHECK(c.data.num_sources == 1);
    config_release(&c);
    CHECK_STATUS(OK, load(&c, "[training]\ndataset = \"c4\"\nbatch_size = 1\n", NULL, 0));
    check_source(&c, 0, "hf://datasets/allenai/c4/realnewslike/c4-train.*.json.gz", 1);
    config_release(&c);
    CHECK_STATUS(OK, load(&c, "[training]\ndataset = \"c4_test\"\n", NULL, 0));
    check_source(&c, 0, "./tests/assets/c4_test/data.json", 1);
    config_release(&c);
}

TEST(validation_names_a_data_set_only_if_nothing_else_is_given)
{
    static const char toml[] = "[validation]\nenable = true\ndataset = \"c4_validation\"\n";
    struct config c;
    CHECK_STATUS(OK, load(&c, toml, NULL, 0));
    CHECK(
        !strcmp(c.validation.dataset_path, "hf://datasets/allenai/c4/en/c4-validation.*.json.gz"));
    config_release(&c);
    static const char *const other[] = {"validation.dataset_path=a.txt",
                                        "data.validation_share=0.1", "validation.enable=false"};
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(OK, load(&c, toml, &other[i], 1));
        CHECK(!strcmp(c.validation.dataset_path, i ? "" : "a.txt"));
        config_release(&c);
    }
    CHECK_STATUS(CONFIG, load(&c, toml, (const char *const[]){"validation.dataset=full"}, 1));
    CHECK_MESSAGE("validation.dataset = \"full\" names training data");
    config_release(&c);
}

/* The files of gpt-neuro and gpt-neuro-arch: spike counts, or motifs of some neurons and rows. */
TEST(neural_names_have_the_forks_tokens)
{
    struct config c;
    CHECK_STATUS(OK, config_load(&c, "tests/config/data/fork-neuro-8b.toml", NULL, 0));
    check_source(&c, 0, "hf://datasets/eminorhan/neural-pile-rodent/data/train-*.parquet", 1);
    const struct source_config *s = c.data.sources;
    CHECK(c.data.num_sources == 1 && !strcmp(s->column, "spike_counts") && !s->motifs[0]);
    CHECK(s->neurons == 0 && !s->filter_column[0] && c.model.vocab_size == 256);
    CHECK(c.data.shuffle_window == 1 && c.data.streams == 256);
    config_release(&c);

    const char *const accept[] = {"config.accept_loss=training.token_weights"};
    CHECK_STATUS(OK, config_load(&c, "tests/config/data/fork-arch-2b.toml", accept, 1));
    check_source(&c, 0, "hf://datasets/eminorhan/neural-pile-primate/data/train-*.parquet", 1);
    s = c.data.sources;
    CHECK(!strcmp(s->motifs, "./tokenizers/tokenizer_primate_1x15_32k.pkl"));
    CHECK(s->neurons == 256 && !strcmp(s->filter_column, "source_dataset"));
    CHECK(!strcmp(s->filter_value, "chen") && !c.model.tokenizer_path[0]);
    config_release(&c);

    /* data of one's own at another path */
    CHECK_STATUS(
        OK, config_load(&c, "tests/config/data/fork-arch-2b.toml",
                        (const char *const[]){accept[0], "training.dataset_path=p/*.arrow"}, 2));
    check_source(&c, 0, "p/*.arrow", 1);
    CHECK(c.data.sources->neurons == 256 && !c.training.dataset_path[0]);
    config_release(&c);
}

TEST(neural_names_require_the_vocabulary_of_their_tokens)
{
    struct config c;
    static const char counts[] = "[training]\ndataset = \"primate\"\n";
    CHECK_STATUS(OK, load(&c, counts, NULL, 0));
    CHECK(c.model.vocab_size == 256);
    config_release(&c);
    CHECK_STATUS(CONFIG, load(&c, counts, (const char *const[]){"model.vocab_size=32000"}, 1));
    CHECK_MESSAGE("set model.vocab_size = 256 (is 32000), or model.tokenizer_path");
    config_release(&c);
    CHECK_STATUS(OK, load(&c, counts, (const char *const[]){"training.dataset=synthetic"}, 1));
    check_source(&c, 0, "synthetic-spikes", 1);
    config_release(&c);
    CHECK_STATUS(OK,
                 load(&c, counts, (const char *const[]){"training.dataset=willett-churchland"}, 1));
    check_source(&c, 1, "hf://datasets/eminorhan/churchland/data/train-*.parquet", 1);
    config_release(&c);
}

TEST(unknown_names_are_errors_unless_a_path_is_given)
{
    struct config c;
    static const char toml[] = "[training]\ndataset = \"pile\"\n";
    CHECK_STATUS(CONFIG, load(&c, toml, NULL, 0));
    CHECK_MESSAGE("training.dataset = \"pile\": unknown data set; expected one of c4, "
                  "c4_validation, c4_test, full, rodent");
    config_release(&c);
    CHECK_STATUS(OK, load(&c, toml, (const char *const[]){"training.dataset_path=a.txt"}, 1));
    CHECK(!c.data.num_sources && !strcmp(c.training.dataset_path, "a.txt"));
    config_release(&c);
    CHECK_STATUS(
        OK, load(&c, "[training]\ndataset = \"pile\"\n[[data.source]]\npath = \"a\"\n", NULL, 0));
    CHECK(c.data.num_sources == 1);
    config_release(&c);
}

TEST(config_explain_lists_the_names)
{
    struct text out = {0};
    CHECK_STATUS(OK, config_explain("training.dataset", &out));
    CHECK(strstr(out.data, "full: hf://datasets/Zyphra/Zyda-2/data/fwe3/*/*.parquet, column text, "
                           "weight 0.44"));
    CHECK(strstr(out.data, "column files[].text, weight 0.1"));
    CHECK(strstr(out.data, "c4 (the older fork)") && strstr(out.data, "c4 (torchtitan)"));
    text_release(&out);
}
