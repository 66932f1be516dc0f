// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/recipes.h"
#include "base/file.h"
#include "config/config.h"

/* The ranks its second line names, or 1. */
static int ranks_of(const struct recipe *r)
{
    int ranks = 1;
    const char *second = strchr(r->toml, '\n') + 1;
    return sscanf(second, "# %d ranks", &ranks) == 1 ? ranks : 1;
}

TEST(every_recipe_is_valid_on_its_number_of_ranks)
{
    int most = 1;
    for (const struct recipe *r = recipes; r->name; r++) {
        struct config c;
        struct model_shape shape;
        int ranks = ranks_of(r);
        char *path = file_join(test_folder(), "recipe.toml");
        CHECK(!strncmp(r->toml, "# ", 2));
        CHECK_STATUS(OK, file_write(path, r->toml, strlen(r->toml)));
        CHECK_STATUS(OK, config_load(&c, path, NULL, 0));
        CHECK_STATUS(OK, config_check(&c, ranks));
        CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 256));
        if (ranks > most) most = ranks;
        config_release(&c);
        free(path);
    }
    CHECK(most == 512);
}

TEST(recipes_are_found_by_name_or_prefix)
{
    static const char *const names[][2] = {{"tiny", "tiny"},
                                           {"mlm-1b", "mlm-1b-n64"},
                                           {"llama3.1-8b", "llama3.1-8b-fsdp"},
                                           {"llama2-7b", "llama2-7b"},
                                           {"llama3-150m", "llama3-150m"},
                                           {"llama3.2-1b", "llama3.2-1b"},
                                           {"qwen3", "qwen3-0.6b"},
                                           {"olmo2", "olmo2-1b"},
                                           {"neural", "neural-8b-131k"},
                                           {"mistral", "mistral-7b"},
                                           {"smollm3", "smollm3-3b"}};
    static const char *const unknown[] = {"mlm-1", "tin", "", "mini"};
    struct text others = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(!strcmp(recipes_find(names[i][0], &others)->name, names[i][1]) && !others.len);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(!recipes_find(unknown[i], &others) && !others.len);
    CHECK(!recipes_find("llama3-70b", &others));
    CHECK(!strcmp(others.data, "llama3-70b-cp, llama3-70b-tp32pp8"));
    text_release(&others);
}
