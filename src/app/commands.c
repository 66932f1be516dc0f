// SPDX-License-Identifier: Apache-2.0
#include "app/commands.h"
#include "app/app.h"
#include "base/closest.h"

#include <string.h>

const struct command commands[] = {
#define COMMAND(name, summary) {#name, summary, command_##name},
#include "app/commands.def"
#undef COMMAND
    {NULL, NULL, NULL},
};

const struct command *commands_find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(c->name, name)) return c;
    return NULL;
}

/* What other programs call a command, and subcommands without their command. */
static const struct closest_synonym synonyms[] = {
    {"benchmark", "bench"},
    {"chat", "generate"},
    {"complete", "generate"},
    {"decode", "tokenizer decode"},
    {"diff", "checkpoint diff"},
    {"download", "fetch"},
    {"encode", "tokenizer encode"},
    {"estimate", "plan"},
    {"evaluate", "eval"},
    {"explain", "config explain"},
    {"export", "convert"},
    {"finetune", "train"},
    {"fit", "train"},
    {"graph", "plot"},
    {"import", "config import"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"list", "checkpoint ls"},
    {"ls", "checkpoint ls"},
    {"new", "init"},
    {"preprocess", "prepare"},
    {"pretrain", "train"},
    {"pull", "fetch"},
    {"recipe", "init"},
    {"resume", "train"},
    {"run", "train"},
    {"sample", "generate"},
    {"sbatch", "slurm"},
    {"show", "config show"},
    {"stats", "data stats"},
    {"submit", "slurm"},
    {"test", "eval"},
    {"tokenise", "prepare"},
    {"tokenize", "prepare"},
    {"upload", "push"},
    {"validate", "check"},
    {"verify", "checkpoint verify"},
    {"version", "--version"},
};

const char *commands_suggest(const char *name)
{
    const char *known = closest_find_synonym(synonyms, sizeof synonyms / sizeof *synonyms, name);
    struct closest closest = closest_to(name);
    for (const struct command *c = commands; c->name; c++) closest_offer(&closest, c->name);
    closest_offer(&closest, "--version"), closest_offer(&closest, "--help");
    return known ? known : closest.name;
}
