/* dcp.c -- fuzzes the readers of torch.distributed.checkpoint directories, torchtitan's and
 * Megatron-LM's: any .metadata and data file must yield weights, moments and steps within them, or
 * a clean error.  The data file is also the only rank of a checkpoint of --ckpt-format torch.
 *
 * The first two bytes give the length of .metadata, which follows, and is also the pickle of
 * distrib_optim.pt.  The rest is the file "f" if it begins like a ZIP archive, else the pickle of
 * an archive that becomes "f": see archive.h. */
// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/dcp.h"
#include "base/log.h"
#include "checkpoint/interop/megatron_dist.h"
#include "checkpoint/interop/megatron_ranks.h"

#include "fuzz/archive.h"
#include "fuzz/folder.h"
#include "fuzz/tensor_slices.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void use_moments(const struct tensor_slices *p, const struct torch_state *state)
{
    struct text json = {0};
    BUG_IF(p->count && state->step < 0);
    tensor_slices_use(p);
    torch_state_json(state, &json);
    text_release(&json);
}

static void link_rank(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/mp_rank_00", folder());
    BUG_IF(mkdir(path, 0700));
    snprintf(path, sizeof path, "%s/mp_rank_00/model_optim_rng.pt", folder());
    BUG_IF(symlink("../f", path));
}

static void put_optimizer(const void *pickle, size_t len)
{
    static int optimizer;
    unsigned char archive[ARCHIVE_BYTES];
    archive_make(archive, pickle, len);
    folder_put(&optimizer, "mp_rank_00/distrib_optim.pt", archive, sizeof archive);
}

static void use_ranks(const struct model_shape *shape)
{
    struct tensor_slices p;
    if (!megatron_ranks_open(&p, folder(), shape)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    struct torch_state state;
    torch_state_init(&state);
    if (!megatron_ranks_open_moments(&p, folder(), shape, &state)) {
        use_moments(&p, &state);
        tensor_slices_release(&p);
    }
    torch_state_release(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static int metadata, numbers;
    static const struct model_shape known = {.D = 4, .H = 1, .G = 1, .K = 4, .F = 4, .V = 4};
    const struct model_shape *shape = len & 1 ? &known : NULL;
    unsigned char archive[ARCHIVE_BYTES];
    struct tensor_slices p;
    struct torch_state state;
    struct megatron_state arguments;
    if (len < 2) return 0;
    if (!metadata) link_rank(), log_set_rank(1); /* only rank 0 warns */
    size_t first = bytes[0] | (size_t)bytes[1] << 8;
    bytes += 2, len -= 2;
    if (first > len) first = len;
    folder_put(&metadata, ".metadata", bytes, first);
    put_optimizer(bytes, first);
    bool is_archive = first < len && bytes[first] == 'P';
    if (!is_archive) archive_make(archive, bytes + first, len - first);
    folder_put(&numbers, "f", is_archive ? bytes + first : archive,
               is_archive ? len - first : sizeof archive);
    if (!dcp_open(&p, folder(), shape)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    if (!dcp_open_moments(&p, folder(), shape, &state)) {
        use_moments(&p, &state);
        tensor_slices_release(&p);
    }
    torch_state_release(&state);
    if (!megatron_dist_open(&p, folder(), &known)) {
        tensor_slices_use(&p);
        tensor_slices_release(&p);
    }
    if (!megatron_dist_open_moments(&p, folder(), &known, &state)) {
        use_moments(&p, &state);
        tensor_slices_release(&p);
    }
    torch_state_release(&state);
    if (!megatron_dist_read_state(folder(), &arguments) && arguments.has_args)
        BUG_IF(model_shape_check(&arguments.shape));
    megatron_state_release(&arguments);
    use_ranks(shape);
    return 0;
}
