/* checkpoint.h -- a run's state on disk: written at once or not at all, checked when read.
 *
 * checkpoint/step-N/ is a Hugging Face folder: config.json, model.safetensors.index.json and
 * model-*.safetensors (f32 master weights, Hugging Face names and layout), tokenizer files; beside
 * them optimizer-*.safetensors (<name>.exp_avg, <name>.exp_avg_sq), state.json, and manifest.json
 * with size and checksums of every file, written last.
 * Order    step-N.tmp/ -> files, fsync -> manifest, fsync -> folder, fsync -> rename to step-N ->
 *          fsync of the parent -> older ones go.  A folder without a valid manifest is not a
 *          checkpoint and is never loaded; what its manifest does not name is not part of it.
 * Ranks    A rank holds some pieces of the tensors; what is on disk does not show who held what,
 * and any ranks load it.  Every function that is given a group is collective over it, and so are
 * all of a checkpointer over the group that it was opened with: all ranks call them in the same
 * order.  A failure of one rank is all ranks'.  Elements that several ranks hold have the same bits
 * on all of them; whose are written is not said.
 * Memory   Saving synchronously streams from the caller's buffers; asynchronously it first copies
 * them into `staging`, which the caller gives.  Beside that, a few megabytes: files are put
 * together block by block (shards.h).  Loading reads a rank's own pieces only.  Where the buffers
 * are a device's, what is read or loaded goes through a few megabytes of the host's. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "checkpoint/checkpoint_config.h"
#include "comm/comm.h"
#include "formats/safetensors.h"
#include "model/shard.h"
#include "tensor/dtype.h"
#include "tensor/store.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* What a checkpoint holds. */
struct checkpoint_state {
    const struct model_shape *shape;
    const struct layout *layout; /* the whole model's: names and shapes of its tensors */
    const struct shard *shard;   /* what of them lies where in this rank's flat buffers; no element
                                      twice */
    const struct comm *world;    /* the ranks that load.  Saving has the
                                    checkpointer's */
    void *weights, *exp_avg, *exp_avg_sq; /* flat; moments NULL: model only */
    uint16_t *low;                        /* NULL: weights are f32; else bf16, exact with these */
    enum dtype moments;                   /* in memory; on disk they are f32 */
    struct queue *queue;                  /* whose memory those are in; NULL: the host's */
    enum safetensors_dtype dtype;         /* of the weights on disk; saving only */
    int64_t step;                         /* optimizer steps done */
    /* Saving; of rank 0, and nothing to the others: */
    struct text train; /* the trainer's part of state.json: one JSON object (data cursor, counts) */
    const struct tokenizer *tokenizer; /* its file is copied in; or NULL */
    const struct text *config_toml;    /* effective configuration, kept beside; or NULL */
};

static inline struct store checkpoint_weights(const struct checkpoint_state *s)
{
    return (struct store){s->weights, s->low, s->low ? BF16 : F32, s->queue};
}
/* `x` is one of the moments. */
static inline struct store checkpoint_moment(const struct checkpoint_state *s, void *x)
{
    return (struct store){.x = x, .dtype = s->moments, .queue = s->queue};
}

struct checkpointer;

struct checkpointer_options {
    const char *folder; /* <dump>/<checkpoint.folder> */
    int keep_latest_k;
    bool async;
    void *staging;            /* async: checkpoint_staging_bytes, borrowed until close */
    const struct comm *world; /* the ranks that save.  A group of the
                                 checkpointer's own is made of it, so the exchange of a save under
                                 way never mixes with what else the ranks do.  Async: transfers on
                                 that group start in the thread that writes */
};

/* Of a rank that holds these pieces. */
size_t checkpoint_staging_bytes(const struct shard *p);
/* What a save takes beside that, on one of so many ranks: blocks of a file, and what is exchanged.
 */
size_t checkpoint_save_bytes(int ranks);

enum status checkpointer_open(struct checkpointer **out, const struct checkpointer_options *o);
/* Waits for a save under way.  Returns its failure, if it failed: on all ranks, the same. */
enum status checkpointer_close(struct checkpointer *c);

/* Saves step-<state->step>.  Async: returns when the state is copied (shape, layout, pieces and
 * tokenizer stay borrowed until the save is done), and a thread of every rank writes; waits for a
 * previous save first, whose failure is warned about.  IO: nothing was left under the final name,
 * and an older one of that name is untouched. */
enum status checkpointer_save(struct checkpointer *c, const struct checkpoint_state *state);
/* Waits for the save under way, at the same point of every rank.  Returns its failure, if it
 * failed: on all ranks, the same. */
enum status checkpointer_wait(struct checkpointer *c);

/* Newest complete checkpoint of the folder whose step is below `limit` (INT64_MAX: any): *found is
 * its path (heap, the caller frees), NULL if there is none.  Damaged ones are skipped with a
 * warning that says what is wrong with them.  Rank 0 looks, and all get what it found. */
enum status checkpoint_find(const char *folder, int64_t limit, const struct comm *world,
                            char **found);
/* Exactly that step.  MISSING: it is not there.  DATA: it is damaged. */
enum status checkpoint_find_step(const char *folder, int64_t step, const struct comm *world,
                                 char **found);

/* The folder of the model that a path here means: itself, or of a run, or of the folder of its
 * checkpoints, ours or torch's, that of `step`; below 0: of the newest complete one.  Heap.
 * MISSING: nothing is there, or not that step.  CONFIG: of one model a step is asked for.  DATA:
 * that step is damaged. */
enum status checkpoint_locate(const char *path, int64_t step, const struct comm *world,
                              char **folder);

/* Is the folder a checkpoint of ours?  Then its every byte is checked against its manifest, by one
 * rank or another.  DATA: one that is damaged, or was never finished. */
enum status checkpoint_check_native(const char *folder, const struct comm *world, bool *ours);

/* What checkpoint_load found beside the tensors. */
struct checkpoint_found {
    int64_t step;
    struct json *state;       /* state.json; the caller frees it; NULL in a plain folder */
    const struct json *train; /* the trainer's object in it, or NULL */
    bool has_moments;
};

/* Fills the buffers of `state` from a folder: a checkpoint of ours (checked against its manifest)
 * or any Hugging Face Llama folder (safetensors or pytorch_bin.h, any float dtype, one file or
 * sharded, tied), or torch's files of any kind (torch_files.h).
 * `exclude`: tensors or parts to leave as they are.  DATA: a tensor is missing, has another shape,
 * or bytes do not match their checksum; which, and where.  CONFIG: config.json there has other
 * heads, or there is another vocabulary; another rotary embedding or epsilon is warned about.
 * UNSUPPORTED: moments are wanted, and those there are NxD Training's. */
enum status checkpoint_load(const char *folder, struct checkpoint_state *state,
                            const struct option_list *exclude, struct checkpoint_found *found);

/* The weights alone, as numbers of `dtype`, from the same folders with the same errors; of `state`,
 * which model, which pieces of it, and which ranks.  MEMORY: nothing beside `weights` that grows
 * with the model. */
enum status checkpoint_load_weights(const char *folder, const struct checkpoint_state *state,
                                    enum dtype dtype, void *weights);

/* Reads every byte: sizes, checksums, safetensors structure. */
enum status checkpoint_verify(const char *folder);

/* The model's dimensions from a folder's config.json (old and new spellings), or from params.json
 * and the weights beside it. */
enum status checkpoint_read_shape(const char *folder, struct model_shape *shape);
