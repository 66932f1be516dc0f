// SPDX-License-Identifier: Apache-2.0
#include "app/dcp_listing.h"

#include "base/escape.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/interop/dcp_items.h"
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>

/* The entries that convert --to dcp writes of this folder for a generation of torchtitan. */
static enum status make_items(const struct dcp_listing *l, struct dcp_target *target,
                              struct dcp_items *items)
{
    struct config config = {0};
    struct torch_model m = {.shape = l->shape, .layout = l->layout, .dtype = SAFETENSORS_F32};
    bool resumes = l->resumes;
    const struct dcp_run run = {.train = ""}; /* values are not printed */
    enum safetensors_dtype has;
    char *toml = file_join(l->folder, "config.toml");
    enum status st = config_load(&config, file_exists(toml) ? toml : NULL, NULL, 0);
    target->seq_len = config.training.seq_len;
    if (resumes && config.optimizer.name != OPTIMIZER_AdamW) {
        log_line(LOG_INFO, "%s: the state of %s cannot be converted: listing only the weights",
                 l->folder, optimizer_name_word(config.optimizer.name));
        resumes = false;
    }
    config_release(&config);
    free(toml);
    TRY(st);
    if (model_files_dtype(l->files, &l->layout->tensors[0], &has) &&
        (has == SAFETENSORS_BF16 || has == SAFETENSORS_F16))
        m.dtype = has;
    dcp_items_make(items, &m, target, resumes ? &run : NULL);
    return STATUS_OK;
}

static void print_items(const struct dcp_items *items)
{
    for (size_t i = 0; i < items->count; i++) {
        const struct dcp_item *item = &items->all[i];
        bool is_object = item->kind == DCP_OBJECT;
        char name[512];
        printf("%-72s %s", escape_controls(name, sizeof name, item->name, ""),
               is_object ? item->type : torch_dtype_name(item->tensor.dtype));
        for (int d = 0; d < item->tensor.num_dims; d++)
            printf("%s%lld", d ? ", " : " [", (long long)item->tensor.shape[d]);
        printf(is_object ? "\n" : item->tensor.num_dims ? "]\n" : " []\n");
    }
}

static void write_item(const struct dcp_item *item, struct json_writer *w)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "key", item->name);
    if (item->kind == DCP_OBJECT) {
        json_write_string(w, "type", item->type);
    } else {
        json_write_string(w, "dtype", torch_dtype_name(item->tensor.dtype));
        json_begin_array(w, "shape", JSON_INLINE);
        for (int d = 0; d < item->tensor.num_dims; d++)
            json_write_int(w, NULL, item->tensor.shape[d]);
        json_end_array(w);
    }
    json_end_object(w);
}

static void print_items_json(const struct dcp_items *items, const char *generation)
{
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_string(&w, "generation", generation);
    json_begin_array(&w, "keys", JSON_INLINE);
    for (size_t i = 0; i < items->count; i++) {
        json_newline(&w, 1);
        write_item(&items->all[i], &w);
    }
    json_end_array(&w);
    json_end_object(&w);
    json_finish(&w);
    puts(out.data);
    text_release(&out);
}

enum status dcp_listing_print(const struct dcp_listing *l, enum dcp_generation generation,
                              bool json)
{
    struct dcp_target target = {.generation = generation};
    struct dcp_items items = {0};
    TRY(make_items(l, &target, &items));
    if (json)
        print_items_json(&items, dcp_generations[generation].name);
    else
        print_items(&items);
    dcp_items_release(&items);
    return STATUS_OK;
}
