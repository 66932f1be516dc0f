// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "config/config.h"

TEST(written_configuration_reads_back_unchanged)
{
    static const char *const settings[] = {"optimizer.lr=3.3333333333333331e-05",
                                           "job.description=a \"quoted\" \\ word",
                                           "model.tie_embeddings=true",
                                           "checkpoint.exclude_from_loading=[\"a\", \"b,c\"]",
                                           "data.streams=7",
                                           "training.max_norm=0",
                                           "objective.mask_token=<|mask|>",
                                           "debug.seed=1152921504606846977"};
    struct config c, again;
    struct text first = {0}, second = {0};
    char *path = file_join(test_folder(), "config.toml");
    const char *source = "[[data.source]]\npath = \"x\\ty\"\nweight = 0.44\n";
    CHECK_STATUS(OK, file_write(path, source, strlen(source)));
    CHECK_STATUS(OK, config_load(&c, path, settings, 8));
    config_write(&c, false, &first);
    CHECK_STATUS(OK, file_write(path, first.data, first.len));
    CHECK_STATUS(OK, config_load(&again, path, NULL, 0));
    config_write(&again, false, &second);
    CHECK(first.len == second.len && !memcmp(first.data, second.data, first.len));
    CHECK(again.data.sources[0].weight == 0.44 && again.model.tie_embeddings == YES);
    CHECK(again.debug.seed == 1152921504606846977LL);
    config_release(&c), config_release(&again);
    text_release(&first), text_release(&second);
    free(path);
}

TEST(explain_accepts_keys_sections_and_older_spellings)
{
    static const char *const keys[] = {"optimizer.lr", "training.batch_size", "optimizer",
                                       "weight_decay", "compile.enable",      "data.source.path",
                                       "data.source",  "data.stage",          "at_tokens"};
    struct text t = {0};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        text_clear(&t);
        CHECK_STATUS(OK, config_explain(keys[i], &t));
        CHECK(t.len > 30);
    }
    CHECK_STATUS(CONFIG, config_explain("optimizer.lrr", &t));
    CHECK_MESSAGE("did you mean optimizer.lr?");
    CHECK_STATUS(CONFIG, config_explain("data.sourze", &t));
    CHECK_MESSAGE("did you mean data.source?");
    text_release(&t);
}

TEST(options_page_has_every_section)
{
    struct text t = {0};
    config_document(&t);
    CHECK(strstr(t.data, "## [training]") && strstr(t.data, "## [[data.source]]"));
    CHECK(strstr(t.data, "| `mask_probability` | `0.3` |"));
    text_release(&t);
}
