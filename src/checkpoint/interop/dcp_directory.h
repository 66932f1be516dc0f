/* dcp_directory.h -- the entries of a torch.distributed.checkpoint (DCP) directory, whatever their
 * names, and the bytes of its files.
 *
 * .metadata is a pickle that maps (FQN, offset of a shard) to bytes of __R_N.distcp.
 * Memory   The files are mapped, once each, and stay mapped with the tensor_slices. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/interop/tensor_slices.h"

struct dcp_directory {
    struct tensor_slices *slices; /* maps the files; borrowed, as is the path */
    const char *path;
    struct text metadata;
    struct pickle pickle;
    char **names; /* names[i] is the file that slices->maps[i] maps; owned */
    size_t count;
};

/* A shard of a tensor, or an object. */
struct dcp_entry {
    const char *fqn;
    const struct pickle_value *offset; /* of a shard, a tuple; NULL: an object */
    const struct pickle_value *info;
};

/* `slices` must not map a file yet.  `any_class`: .metadata may have objects of other classes than
 * torch's (pickle_parse_any).  DATA: it is malformed.  Close `d` even after a failure. */
enum status dcp_directory_open(struct dcp_directory *d, const char *path,
                               struct tensor_slices *slices, bool any_class);
void dcp_directory_close(struct dcp_directory *d);

/* Calls `visit` for each entry, in the order of .metadata, until it fails.  DATA: an entry has no
 * name. */
enum status dcp_directory_visit(const struct dcp_directory *d,
                                enum status (*visit)(void *context, const struct dcp_entry *e),
                                void *context);
/* The dims of a tensor in `shape`; 0: no such tensor, or more than `max` dimensions. */
int dcp_directory_shape(const struct dcp_directory *d, const char *fqn, int max, int64_t *shape);

/* The bytes of an entry: an archive of torch.save. */
struct dcp_bytes {
    const struct file_map *map;
    const unsigned char *bytes;
    uint64_t size;
};
/* DATA: the entry exceeds its file, or names one outside the folder.  UNSUPPORTED: saved with a
 * transform. */
enum status dcp_directory_find(struct dcp_directory *d, const struct dcp_entry *e,
                               struct dcp_bytes *item);
/* Reads the tensor of a shard; its name is the entry's and owned.  DATA: another number of
 * tensors. */
enum status dcp_directory_tensor(struct dcp_directory *d, const struct dcp_entry *e,
                                 struct torch_tensor *tensor, const struct file_map **map);
