// SPDX-License-Identifier: Apache-2.0
#include "runs/runs_fixture.h"

#include "test.h"

#include "base/file.h"

void fixture_write(const char *folder, const char *name, const char *content)
{
    char *path = file_join(folder, name), *above = heap_strdup(path);
    *strrchr(above, '/') = 0;
    CHECK_STATUS(OK, file_make_dirs(above));
    CHECK_STATUS(OK, file_write(path, content, strlen(content)));
    free(path), free(above);
}

void fixture_run(const char *folder, const char *name, int step, double validation, double lr)
{
    struct text toml = {0}, lines = {0};
    char *run = file_join(folder, name);
    text_addf(&toml,
              "[job]\ndump_folder = '%s'\n[training]\nsteps = 20\n[optimizer]\nlr = %g\n"
              "[model]\nname = \"llama3\"\n",
              name, lr);
    for (int i = 5; i <= step; i += 5)
        text_addf(&lines, "{\"step\":%d,\"loss\":%d,\"tokens_seen\":%d}\n", i, 100 - i, 1000 * i);
    text_addf(&lines, "{\"step\":%d,\"validation_loss\":%g}\n", step, validation);
    fixture_write(run, "config.toml", toml.data);
    fixture_write(run, "metrics.jsonl", lines.data);
    fixture_write(run, "log.txt", "2026-11-24 02:43:13 step:  5  loss: 3\n");
    fixture_write(run, "checkpoint/.lock", "");
    text_release(&toml), text_release(&lines);
    free(run);
}
