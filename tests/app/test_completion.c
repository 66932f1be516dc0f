// SPDX-License-Identifier: Apache-2.0
#include "test.h"

/* What the program offers for the words after its name, which `line` separates by spaces; a space
 * at its end begins an empty word. */
static void complete(const char *line, struct text *out)
{
    char *copy = heap_strdup(line), *next = copy;
    const char *argv[16] = {"--complete"};
    for (int n = 1; next && n < 15; n++) argv[n] = strsep(&next, " ");
    CHECK(test_llamero(out, NULL, argv) == 0);
    free(copy);
}

static const struct {
    const char *line, *offered, *not_offered;
} cases[] = {
    {"", "train\ttrain; resumes", "--"},
    {"tr", "train\t", "tokenizer"},
    {"help tr", "train\t", "tokenizer"},
    {"train ", ":files\n", "training."},
    {"train tr", "training.\t", "objective."},
    {"train x.toml training.st", "training.steps=\t", "training.seq_len"},
    {"train x.toml objective.name=", "objective.name=causal\t", "section"},
    {"train x.toml objective.name=m", "objective.name=masked\t", "causal"},
    {"train x.toml --training.st", "--training.steps=\t", "\ntraining.steps"},
    {"train x.toml --objective.name=m", "--objective.name=masked\t", "causal"},
    {"train x.toml --objective.name m", "masked\t", "causal"},
    {"train x.toml --metrics.enable_tensorboard t", "true\t", "false"},
    {"train x.toml job.dump_folder=", ":files\n", "="},
    {"train --qu", "--quiet\t", "--help"},
    {"train -- --qu", ":files\n", "--quiet"},
    {"check --ranks 2 ", ":files\n", "--"},
    {"convert a b --to ", "gguf\t", ":"},
    {"convert a b --to=g", "--to=gguf\t", "hf"},
    {"checkpoint ", "verify\t", ":"},
    {"checkpoint show a --as ", "v0.2\t", ":"},
    {"slurm c.toml --mpi=pm", "--mpi=pmi2\t", "cray"},
    {"generate m --temp", "--temperature\tsoftmax temperature (0 to 100, default 0.8; 0:", "top"},
    {"checkpoint verify ", ":folders\n", "verify\t"},
    {"tokenizer encode --tokenizer ", ":files\n", "train"},
    {"config explain training.ste", "training.steps\t", "="},
    {"config show training.ste", "training.steps=\t", "training.steps\t"},
    {"config explain -", "--help\t", "--training."},
    {"init llama3.1", "llama3.1-8b-mini\t", "tiny"},
    {"plot run ", ":files\n", "--"},
    {"top run ", "", ":files"},
    {"generate model ", "", ":files"},
    {"data stats a.txt data.tokenizer", "data.tokenizer=\t", ":files\n:files"},
    {"plot run --sv", "--svg\t", "--smooth"},
    {"--color never tra", "train\t", "help"},
    {"--color=never train tr", "training.\t", "objective"},
    {"--color n", "never\t", "auto"},
    {"train --color a", "always\t", "never"},
    {"--v", "--version\t", "--help"},
    {"no-such-command ", "", "a"},
};

TEST(completion_offers_commands_flags_keys_and_values)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text out = {0};
        complete(cases[i].line, &out);
        const char *got = out.data ? out.data : "";
        if (!strstr(got, cases[i].offered) || strstr(got, cases[i].not_offered))
            print_error("\"%s\":\n%s", cases[i].line, got);
        CHECK(strstr(got, cases[i].offered) && !strstr(got, cases[i].not_offered));
        text_release(&out);
    }
}
