// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp_directory.h"

#include "test.h"

#include <stdlib.h>

#define DCP "tests/checkpoint/data/dcp"

struct visited {
    struct dcp_directory *directory;
    size_t tensors, last;
    bool stops;
};

static enum status visit(void *context, const struct dcp_entry *e)
{
    struct visited *v = context;
    struct torch_tensor t;
    const struct file_map *map;
    int64_t whole[2];
    if (v->stops) FAIL(CONFIG, "stopped");
    if (!e->offset) return STATUS_OK;
    CHECK_STATUS(OK, dcp_directory_tensor(v->directory, e, &t, &map));
    CHECK(!strcmp(t.name, e->fqn) && t.data >= map->data && t.data < map->data + map->size);
    CHECK(dcp_directory_shape(v->directory, e->fqn, 2, whole) == t.num_dims);
    for (int d = 0; d < t.num_dims; d++) CHECK(t.shape[d] <= whole[d]);
    v->tensors++;
    free(t.name);
    return STATUS_OK;
}

TEST(entries_of_a_dcp_directory_are_visited_with_their_tensors)
{
    struct tensor_slices slices = {0};
    struct dcp_directory d;
    int64_t shape[8];
    CHECK_STATUS(OK, dcp_directory_open(&d, DCP, &slices, false));
    struct visited v = {.directory = &d};
    CHECK_STATUS(OK, dcp_directory_visit(&d, visit, &v));
    CHECK(v.tensors > 21 && slices.num_maps == 2); /* some are sharded */
    CHECK(!dcp_directory_shape(&d, "no.such.tensor", 8, shape));
    v.stops = true;
    CHECK_STATUS(CONFIG, dcp_directory_visit(&d, visit, &v));
    dcp_directory_close(&d);
    tensor_slices_release(&slices);
}

TEST(objects_of_any_class_are_read_only_on_request)
{
    static const char folder[] = "tests/checkpoint/data/megatron/iter_0000003";
    struct tensor_slices slices = {0};
    struct dcp_directory d;
    CHECK_STATUS(DATA, dcp_directory_open(&d, folder, &slices, false));
    CHECK_MESSAGE("is not allowed");
    dcp_directory_close(&d);
    CHECK_STATUS(OK, dcp_directory_open(&d, folder, &slices, true));
    dcp_directory_close(&d);
    tensor_slices_release(&slices);
}
