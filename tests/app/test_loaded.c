// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include "app/loaded.h"

TEST(a_model_is_found_in_a_folder_of_its_own_and_in_a_run)
{
    const char *folder = test_folder();
    char *config = file_join(folder, "config.json"), *found;
    CHECK_STATUS(MISSING, loaded_folder(folder, &found));
    CHECK_STATUS(OK, file_write(config, "{}", 2));
    CHECK_STATUS(OK, loaded_folder(folder, &found));
    CHECK(!strcmp(found, folder));
    free(found), free(config);
    char *corpus = file_join(folder, "corpus.txt"), *run = file_join(folder, "run.toml");
    char *dump = file_join(folder, "out");
    runs_write_corpus(corpus, 40000);
    runs_write_config(run, corpus);
    CHECK(runs_train(run, dump, "training.steps=12", NULL) == 0);
    CHECK_STATUS(OK, loaded_folder(dump, &found));
    CHECK(strstr(found, "step-12"));
    free(found), free(corpus), free(run), free(dump);
}
