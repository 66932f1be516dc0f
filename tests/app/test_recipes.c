// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "app/recipes.h"
#include "base/file.h"
#include "config/config.h"

TEST(every_recipe_is_a_sound_configuration_of_a_model)
{
    for (const struct recipe *r = recipes; r->name; r++) {
        struct config c;
        struct model_shape shape;
        char *path = file_join(test_folder(), "recipe.toml");
        CHECK_STATUS(OK, file_write(path, r->toml, strlen(r->toml)));
        CHECK_STATUS(OK, config_load(&c, path, NULL, 0));
        CHECK_STATUS(OK, config_check(&c, 1));
        CHECK_STATUS(OK, model_shape_resolve(&shape, &c.model, 256));
        config_release(&c);
        free(path);
    }
}
