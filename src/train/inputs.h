/* inputs.h -- what a configuration names that lies elsewhere, brought here before it is opened. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "config/config.h"
#include "tokenizer/tokenizer.h"

/* Fetches the hf:// paths among a run's tokenizer and data.  Collective; NULL: a
 * rank alone.  What hub_fetch fails with. */
enum status inputs_fetch(const struct config *c, const struct comm *world);
/* Those of them that say how text is read. */
enum status inputs_fetch_tokenizer(const struct config *c, const struct comm *world);

/* The tokenizer that the configuration names, or where it names none the one beside the weights of
 * checkpoint.initial_load_path; `tells`: that it is so is logged.  *t NULL: there is neither.  What
 * tokenizer_open fails with. */
enum status inputs_open_tokenizer(const struct config *c, bool tells, struct tokenizer **t);
