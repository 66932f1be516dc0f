// SPDX-License-Identifier: Apache-2.0
#include "system/runs.h"

#include <sys/stat.h>

struct place {
    const char *folder, *config;
};

static struct place place(void)
{
    struct place p = {.folder = test_folder()};
    const char *corpus = test_path(p.folder, "corpus.jsonl");
    p.config = test_path(p.folder, "my run.toml");
    runs_write_corpus(corpus, 300);
    runs_write_config(p.config, corpus);
    return p;
}

TEST(slurm_prints_a_script_for_the_checked_number_of_ranks)
{
    struct place p = place();
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "2", "--time", "10", "--cpus-per-rank",
                  "3", "training.global_batch_size=-1") == 0);
    CHECK(strstr(out.data, "#SBATCH --job-name=my-run\n"));
    CHECK(strstr(out.data, "#SBATCH --nodes=2\n"));
    CHECK(strstr(out.data, "#SBATCH --ntasks-per-node=1\n"));
    CHECK(strstr(out.data, "#SBATCH --cpus-per-task=3\n"));
    CHECK(strstr(out.data, "#SBATCH --signal=B:USR1@150\n"));
    CHECK(strstr(out.data,
                 "# llamero slurm: 2 ranks, pp 1 x dp_replicate 1 x dp_shard 2 x cp 1 x tp 1\n"));
    CHECK(strstr(out.data, " train training.global_batch_size=-1 -- '"));
    CHECK(strstr(out.data, "my run.toml' &\n"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "1-0",
                  "device.threads=5") == 0);
    CHECK(strstr(out.data, "#SBATCH --cpus-per-task=5\n") && !strstr(out.data, "gpu"));
    CHECK(LLAMERO(&out, NULL, "slurm", p.config, "--nodes", "1", "--time", "1-0",
                  "device.threads=5", "--cpus-per-rank", "0") == 0);
    CHECK(strstr(out.data, "#SBATCH --exclusive\n") && !strstr(out.data, "--cpus-per-task=5"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "1-0",
                  "device.threads=5") == 0);
    CHECK(strstr(out.data, "#SBATCH --signal=B:USR1@300\n"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "0:03") == 0);
    CHECK(strstr(out.data, "#SBATCH --signal=B:USR1@1\n"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "0:01") == 64);
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "1-0", "--gpus-per-node",
                  "4", "device.kind=cpu") == 0);
    CHECK(strstr(out.data, "#SBATCH --gpus-per-node=4\n"));
    CHECK(strstr(err.data, "ranks will compute on the CPU, because device.kind = \"cpu\""));
    text_release(&out), text_release(&err);
}

TEST(slurm_rejects_what_would_fail_on_the_nodes)
{
    struct place p = place();
    struct text out = {0}, err = {0};
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "3", "--time", "10",
                  "parallelism.tensor_parallel_degree=2") == 78);
    CHECK(!out.len && strstr(err.data, "number of ranks must be"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--ranks-per-node", "3", "--time",
                  "10", "parallelism.tensor_parallel_degree=3") == 78);
    CHECK(strstr(err.data, "does not divide model.n_heads = 4; try 2"));
    CHECK(LLAMERO(&out, &err, "slurm", p.config, "--nodes", "1", "--time", "10",
                  "data.tokenizer=/nowhere.model") == 66);
    static const char *const wrong[][2] = {{"--nodes=1", "--time="},
                                           {"--nodes=1", "--time=soon"},
                                           {"--nodes=1", "--account=a b"},
                                           {"--nodes=1", "--signal-before=600"},
                                           {"--nodes=1048576", "--ranks-per-node=17"},
                                           {"--nodes=1", "--interface=a;b"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(LLAMERO(&out, &err, "slurm", p.config, "--time=10", wrong[i][0], wrong[i][1]) == 64);
    text_release(&out), text_release(&err);
}

/* Runs `slurm --submit` where sbatch is this script. */
static int submit(const struct place *p, const char *sbatch, struct text *out, struct text *err)
{
    const char *bin = test_path(p->folder, "bin"), *path = test_path(bin, "sbatch");
    const char *program = getenv("LLAMERO") ? getenv("LLAMERO") : "build/llamero";
    struct text line = {0};
    CHECK_STATUS(OK, file_make_dirs(bin));
    CHECK_STATUS(OK, file_write(path, sbatch, strlen(sbatch)));
    CHECK(!chmod(path, 0755));
    text_addf(&line, "PATH=%s:$PATH exec %s slurm '%s' --nodes 1 --time 5 --submit", bin, program,
              p->config);
    int code = test_run((const char *const[]){"sh", "-c", line.data, NULL}, out, err);
    text_release(&line);
    return code;
}

TEST(slurm_submits_the_script_it_would_print)
{
    struct place p = place();
    struct text printed = {0}, out = {0}, err = {0};
    CHECK(LLAMERO(&printed, NULL, "slurm", p.config, "--nodes", "1", "--time", "5") == 0);
    CHECK(submit(&p, "#!/bin/sh\ncat\n", &out, &err) == 0);
    CHECK(!strcmp(out.data, printed.data));
    CHECK(submit(&p, "#!/bin/sh\nexit 1\n", &out, &err) == 74);
    CHECK(strstr(err.data, "sbatch rejected the job"));
    text_release(&printed), text_release(&out), text_release(&err);
}
