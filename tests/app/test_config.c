// SPDX-License-Identifier: Apache-2.0
#include "test.h"

TEST(config_shows_values_with_their_origins)
{
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, NULL, "config", "show", "training.steps=3") == 0);
    CHECK(strstr(out.data, "steps = 3") && strstr(out.data, "# command line"));
    CHECK(LLAMERO(&out, NULL, "config", "explain", "training.steps") == 0);
    CHECK(strstr(out.data, "Optimizer steps of the run."));
    CHECK(LLAMERO(&out, NULL, "config", "explain") == 0);
    CHECK(strstr(out.data, "mask_probability"));
    CHECK(LLAMERO(&out, NULL, "config", "document") == 0);
    CHECK(LLAMERO(NULL, &err, "config", "sing") == 64);
    CHECK(LLAMERO(NULL, &err, "config", "show", "training.stps=3") == 78);
    CHECK(strstr(err.data, "did you mean training.steps?"));
    text_release(&out), text_release(&err);
}
