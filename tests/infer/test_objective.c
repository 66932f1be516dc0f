// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "infer/objective.h"
#include "test.h"

/* Resolves with these files in a folder (NULL: no such file) and a setting. */
static enum status resolve(struct config *c, const char *config_json, const char *tokenizer_config,
                           const char *setting, struct text *text)
{
    const char *folder = test_folder();
    if (config_json)
        CHECK_STATUS(
            OK, file_write(test_path(folder, "config.json"), config_json, strlen(config_json)));
    if (tokenizer_config)
        CHECK_STATUS(OK, file_write(test_path(folder, "tokenizer_config.json"), tokenizer_config,
                                    strlen(tokenizer_config)));
    CHECK_STATUS(OK, config_load(c, NULL, &setting, setting != NULL));
    text_clear(text);
    return objective_resolve(c, folder, NULL, text);
}

TEST(objective_comes_from_the_command_line_else_from_config_json)
{
    static const struct {
        const char *config, *setting, *want;
    } cases[] = {
        {NULL, NULL, "causal (the default: no config.json)"},
        {"{}", NULL, ""},
        {"{\"is_causal\": null}", NULL, ""},
        {"{\"is_causal\": true}", NULL, ""},
        {"{\"is_causal\": false}", NULL, "masked (config.json: is_causal = false)"},
        {"{\"is_causal\": false, \"masked_diffusion\": true}", NULL,
         "diffusion (config.json: is_causal = false, masked_diffusion = true)"},
        {"{\"is_causal\": true, \"masked_diffusion\": true}", NULL, ""},
        {"{\"is_causal\": false}", "objective.name=causal", ""},
        {"{\"is_causal\": true}", "objective.name=masked", "masked (command line: objective.name)"},
    };
    struct text text = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct config c;
        CHECK_STATUS(OK, resolve(&c, cases[i].config, NULL, cases[i].setting, &text));
        if (strcmp(text.data ? text.data : "", cases[i].want) != 0) fail_msg("%s", text.data);
        CHECK((c.objective.name == OBJECTIVE_masked) == (cases[i].want[0] == 'm'));
        config_release(&c);
    }
    text_release(&text);
}

TEST(mask_token_and_probability_come_from_the_folder)
{
    static const char config[] = "{\"is_causal\": false, \"mlm_probability\": 0.15}";
    static const char *const tokens[] = {"{\"mask_token\": \"<mask>\"}",
                                         "{\"mask_token\": {\"content\": \"<mask>\"}}"};
    struct text text = {0};
    struct config c;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(OK, resolve(&c, config, tokens[i], NULL, &text));
        CHECK(!strcmp(c.objective.mask_token, "<mask>"));
        CHECK(fabs(c.objective.mask_probability - 0.15) < 1e-15);
        config_release(&c);
    }
    CHECK_STATUS(OK, resolve(&c, config, tokens[0], "objective.mask_token=<other>", &text));
    CHECK(!strcmp(c.objective.mask_token, "<other>"));
    config_release(&c);
    text_release(&text);
}

TEST(malformed_objective_in_config_json_is_rejected)
{
    static const char *const wrong[] = {"{\"is_causal\": 0}",
                                        "{\"is_causal\": \"false\"}",
                                        "{\"is_causal\": false, \"mlm_probability\": 2}",
                                        "{\"is_causal\": false, \"mlm_probability\": -1}",
                                        "{\"is_causal\": false, \"mlm_probability\": \"x\"}",
                                        "{\"is_causal\": false, \"masked_diffusion\": 1}",
                                        "{"};
    struct text text = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct config c;
        CHECK_STATUS(DATA, resolve(&c, wrong[i], NULL, NULL, &text));
        CHECK_MESSAGE("config.json");
        config_release(&c);
    }
    text_release(&text);
}
