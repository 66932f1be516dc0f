/* model_json.c -- fuzzes the readers of the JSON files that accompany weights: config.json,
 * params.json, model.safetensors.index.json and a checkpoint's manifest.  The first byte selects
 * one.
 *
 * A manifest ends with its own checksum, which no fuzzer would guess, so we append it. */
// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.h"
#include "checkpoint/interop/hf_config.h"
#include "checkpoint/interop/model_files.h"
#include "checkpoint/interop/params_json.h"
#include "checkpoint/manifest.h"

#include "fuzz/folder.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void read_config(const char *path)
{
    struct model_shape shape;
    struct hf_usage usage = {.bos = 1, .eos = 2};
    if (!hf_config_read(path, &shape)) {
        struct text again = {0};
        hf_config_write(&shape, "float32", &usage, &again);
        text_release(&again);
    }
    if (hf_config_read_usage(path, &usage)) return;
    BUG_IF(usage.bos < -1 || usage.eos < -1);
    BUG_IF(!(usage.mlm_probability >= 0 && usage.mlm_probability <= 1));
}

static void read_params(const char *path)
{
    static struct sliced_tensor tensors[] = {
        {.name = {.id = PARAM_embed, .layer = -1}, .rows = 32, .columns = 16},
        {.name = {.id = PARAM_mlp_gate, .layer = 0}, .rows = 24, .columns = 16},
        {.name = {.id = PARAM_last_norm, .layer = -1}, .rows = 16, .columns = 1},
        {.name = {.id = PARAM_head, .layer = -1}, .rows = 32, .columns = 16}};
    const struct tensor_slices p = {.path = (char[]){"fuzz"}, .tensors = tensors, .count = 4};
    struct model_shape shape;
    if (!params_json_read(path, &p, &shape)) {
        struct text again = {0};
        params_json_write(&shape, &again);
        text_release(&again);
    }
}

static void read_index(const char *path)
{
    struct model_files m;
    (void)path;
    if (!model_files_open(&m, folder())) {
        for (size_t i = 0; i < m.count; i++) BUG_IF(m.files[i].count != 2);
        model_files_close(&m);
    }
}

static void read_manifest(const char *path)
{
    struct file_list names = {0};
    int64_t step = 0;
    (void)path;
    if (!manifest_check(folder(), &step)) BUG_IF(step < 0);
    manifest_verify(folder(), NULL);
    if (!manifest_list(folder(), &names))
        for (size_t i = 0; i < names.count; i++) BUG_IF(strchr(names.paths[i], '/'));
    file_list_release(&names);
}

static const struct {
    const char *name;
    void (*read)(const char *path);
} kinds[] = {{"config.json", read_config},
             {"params.json", read_params},
             {"model.safetensors.index.json", read_index},
             {MANIFEST_NAME, read_manifest}};
enum { KINDS = sizeof kinds / sizeof *kinds, MANIFEST = KINDS - 1 };

/* Writes files for the index and the manifest to refer to. */
static void write_data_files(void)
{
    static int fds[2];
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}    ";
    struct text file = {0};
    if (fds[0]) return;
    uint64_t size = sizeof header - 1;
    text_add(&file, &size, sizeof size);
    text_add(&file, header, size);
    text_add(&file, "\0\0\200\77\0\0\0\100", 8);
    folder_put(&fds[0], "one.safetensors", file.data, file.len);
    folder_put(&fds[1], "two.safetensors", file.data, file.len);
    text_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int fds[KINDS];
    char path[96];
    if (!len) return 0;
    int kind = bytes[0] % KINDS;
    struct text file = {0};
    write_data_files();
    text_add(&file, bytes + 1, len - 1);
    if (kind == MANIFEST) {
        text_adds(&file, "\n");
        text_addf(&file, "\"manifest_crc32c\": \"%08x\"}\n",
                  checksum_crc32c(0, file.data, file.len));
    }
    folder_put(&fds[kind], kinds[kind].name, file.data, file.len);
    snprintf(path, sizeof path, "%s/%s", folder(), kinds[kind].name);
    kinds[kind].read(path);
    text_release(&file);
    return 0;
}
