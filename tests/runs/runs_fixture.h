/* runs_fixture.h -- dump folders as tests of runs/ need them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

/* Writes folder/name, and the folders above it. */
void fixture_write(const char *folder, const char *name, const char *content);

/* Makes folder/name a run of 20 steps, of which it made `step`, a line each five steps; its loss is
 * 100 - step, its validation loss `validation` and its learning rate `lr`. */
void fixture_run(const char *folder, const char *name, int step, double validation, double lr);
