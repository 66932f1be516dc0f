// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"

static const char *write_toml(const char *folder, const char *name, const char *toml)
{
    const char *path = test_path(folder, name);
    CHECK_STATUS(OK, file_write(path, toml, strlen(toml)));
    return path;
}

TEST(config_diff_compares_effective_values)
{
    struct text out = {0};
    const char *folder = test_folder();
    const char *a = write_toml(folder, "a.toml", "[model]\nflavor = \"8B\"\n");
    const char *b = write_toml(folder, "b.toml",
                               "[model]\nflavor = \"8B\"\ndim = 4096\n[training]\nsteps = 7\n"
                               "dataset_path = \"a \\\"b\\\"\"\n[[data.stage]]\nat_step = 3\n");
    CHECK(LLAMERO(&out, NULL, "config", "diff", a, a) == 0 && !out.len);
    CHECK(LLAMERO(&out, NULL, "config", "diff", a, b) == 0);
    CHECK(strstr(out.data, "training.steps: 10000 -> 7\n"));
    CHECK(strstr(out.data, "training.dataset_path: \"\" -> \"a \\\"b\\\"\"\n"));
    CHECK(strstr(out.data, "data.stage.0.at_step: (not set) -> 3\n"));
    CHECK(!strstr(out.data, "model.dim")); /* the flavor's */
    CHECK(LLAMERO(&out, NULL, "config", "diff", a, b, "--json") == 0);
    CHECK(strstr(out.data, "{\"key\":\"training.steps\",\"a\":10000,\"b\":7}"));
    CHECK(strstr(out.data, "\"b\":\"a \\\"b\\\"\"}"));
    CHECK(strstr(out.data, "{\"key\":\"data.stage.0.at_step\",\"a\":null,\"b\":3}"));
    text_release(&out);
}

TEST(config_diff_reads_folders_and_names_missing_files)
{
    struct text out = {0}, err = {0};
    const char *folder = test_folder();
    const char *a = write_toml(folder, "config.toml", "[training]\nsteps = 9\n");
    const char *b = write_toml(folder, "b.toml", "[training]\nsteps = 8\n");
    CHECK(LLAMERO(&out, NULL, "config", "diff", folder, b) == 0);
    CHECK(!strcmp(out.data, "training.steps: 9 -> 8\n"));
    CHECK(LLAMERO(&out, &err, "config", "diff", a, test_path(folder, "none")) == 66);
    CHECK(strstr(err.data, "none: no such file"));
    CHECK(LLAMERO(&out, &err, "config", "diff", a) == 64);
    text_release(&out), text_release(&err);
}
