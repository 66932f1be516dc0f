// SPDX-License-Identifier: Apache-2.0
#include "app/app.h"
#include "app/arguments.h"
#include "app/checkpoint_listing.h"
#include "app/checkpoint_show.h"
#include "app/verify_tokens.h"
#include "base/escape.h"
#include "base/json.h"
#include "checkpoint/comparison.h"
#include "infer/loaded_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {[DIFFERENCE_ONLY_FIRST] = "only in the first",
                                    [DIFFERENCE_ONLY_SECOND] = "only in the second",
                                    [DIFFERENCE_SHAPE] = "shape",
                                    [DIFFERENCE_NUMBERS] = "numbers",
                                    [DIFFERENCE_VALUE] = "value"};

static void print_comparison(const struct comparison *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct difference *d = &c->all[i];
        char name[CHECKPOINT_NAME_BYTES];
        printf("%-56s ", escape_controls(name, sizeof name, d->name, ""));
        if (d->kind == DIFFERENCE_NUMBERS)
            printf("max |a-b| %.6g, |a-b|/|a| %.6g\n", d->most, d->relative);
        else if (d->first)
            printf("%s | %s\n", d->first, d->second);
        else
            printf("%s\n", kinds[d->kind]);
    }
    printf("%s: %lld tensors of %lld numbers compared\n", c->count ? "different" : "equal",
           (long long)c->num_tensors, (long long)c->num_elements);
}

static void write_difference(const struct difference *d, struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "name", d->name);
    json_write_string(w, "kind", kinds[d->kind]);
    if (d->kind == DIFFERENCE_NUMBERS) {
        json_write_real(w, "max_abs", d->most);
        json_write_real(w, "relative", d->relative);
    }
    if (d->first) {
        json_write_string(w, "first", d->first);
        json_write_string(w, "second", d->second);
    }
    json_end_object(w);
}

static void print_comparison_json(const struct comparison *c)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_bool(&w, "equal", !c->count);
    json_write_int(&w, "tensors", c->num_tensors);
    json_write_int(&w, "elements", c->num_elements);
    json_begin_array(&w, "differences", JSON_INLINE);
    for (size_t i = 0; i < c->count; i++) {
        if (i) json_newline(&w, 1);
        write_difference(&c->all[i], &w);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
    text_release(&out);
}

static enum status diff(const char *first, const char *second, bool json)
{
    char *a = NULL, *b = NULL;
    struct comparison c = {0};
    enum status st = STATUS_OK;
    TRY_OUT(loaded_model_find(first, comm_self(), &a));
    TRY_OUT(loaded_model_find(second, comm_self(), &b));
    TRY_OUT(comparison_make(&c, a, b));
    (json ? print_comparison_json : print_comparison)(&c);
out:
    comparison_release(&c);
    free(a), free(b);
    return st;
}

static const struct usage usage = {
    "checkpoint",
    {{"ls|verify|show", {USAGE_ONE(FOLDER, "FOLDER")}},
     {"diff", {USAGE_ONE(FOLDER, "FOLDER"), USAGE_ONE(FOLDER, "FOLDER")}}},
    "ls      lists a run's checkpoints: step, size, time (UTC), whether they are intact\n"
    "verify  reads every byte and reports every error; exit code 65 if there is any\n"
    "show    dimensions, parameters, step and files of a checkpoint, or of any format that\n"
    "        convert reads; with --as, the keys, dtypes and shapes that convert --to dcp would\n"
    "        write\n"
    "diff    tensors, moments, moving average, configuration and state in which two of these\n"
    "        differ\n\n"
    "FOLDER is a run's dump folder, the folder of its checkpoints, or one step-N.  For show and\n"
    "diff, a folder of several checkpoints stands for its newest intact one.  ls also lists the\n"
    "copies in s3://BUCKET/PREFIX.  verify also takes the PREFIX of token files that prepare\n"
    "wrote.",
};

enum status command_checkpoint(int argc, char **argv)
{
    bool json = false, tensors = false;
    int as = -1;
    const struct flag flags[] = {
        {"as", FLAG_CHOICE(DCP_GENERATION_WORDS), &as,
         "show: as a torch.distributed.checkpoint directory of this generation of torchtitan"},
        {"tensors", FLAG_SWITCH, &tensors, "show: list the tensors"},
        {"json", FLAG_SWITCH, &json, "print JSON: ls and verify an array, show and diff an object"},
        {0},
    };
    struct arguments a;
    TRY(arguments_read(&a, &(struct arguments_spec){&usage, flags}, argc, argv));
    if (a.help) return STATUS_OK;
    const char *verb = a.words[0];
    bool two = !strcmp(verb, "diff");
    if (as >= 0 && tensors)
        FAIL(USAGE, "--tensors has no effect with --as, which lists tensors itself");
    if (two) return diff(a.words[1], a.words[2], json);
    if (!strcmp(verb, "ls")) return checkpoint_listing_print(a.words[1], json, false);
    if (!strcmp(verb, "verify") && verify_tokens_handles(a.words[1]))
        return verify_tokens(a.words[1], json);
    if (!strcmp(verb, "verify")) return checkpoint_listing_print(a.words[1], json, true);
    if (as >= 0) return checkpoint_show_as(a.words[1], (enum dcp_generation)as, json);
    return checkpoint_show(a.words[1], tensors, json);
}
