/* draw.h -- draws random configurations and parallel layouts.  The number of a draw determines its
 * configuration. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct draw_layout {
    int ranks, readers;
    const char *settings;
};

/* The first differ only in data-parallel degrees: elastic runs may change from one to another. */
enum { DRAW_LAYOUTS = 20, DRAW_DATA_LAYOUTS = 6 };
extern const struct draw_layout draw_layouts[DRAW_LAYOUTS];

struct draw {
    uint64_t number, position; /* of the next random number */
    const char *folder;        /* has run.toml */
    const struct draw_layout *layout;
    int steps;
    double seconds;               /* that the first run took */
    const char *program;          /* NULL: that under test */
    const char *also;             /* settings that a relation adds */
    struct text config, settings; /* settings: without the layout's */
};

/* `data` has the files of draw_write_data. */
void draw_make(struct draw *d, uint64_t number, const char *data);
void draw_release(struct draw *d);
void draw_write_data(const char *data);

/* Adds settings of a run on a GPU. */
void draw_choose_gpu(struct draw *d, struct text *settings);

/* A random number from 0 to n - 1. */
int draw_below(struct draw *d, int n);
bool draw_has(const struct draw *d, const char *setting);
/* The number that the settings give a key, the last if there are several. */
int draw_number_of(const struct draw *d, const char *key, int otherwise);
